"""What torch's own classes expect from an agent: metric names, group fields, failure objects."""

import functools
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.agent.server.api import Worker, WorkerGroup
from torch.distributed.elastic.metrics import prof
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from dlrover_cli.agent.rounds import Round
from dlrover_cli.contracts import WorkerFailure
from dlrover_cli.exit_codes import ExitCode


def profiled_as(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """torch's ``@prof`` under the name that torch's own method has in the metrics."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        method.__qualname__ = name
        profiled: Callable[..., Any] = prof(method)
        return functools.wraps(method)(profiled)

    return decorate


def workers_of(round_: Round, local_world_size: int) -> list[Worker]:
    """torch's view of this node's workers in a round."""
    placement = round_.placement
    return [
        Worker(
            local_rank=local_rank,
            global_rank=placement.first_global_rank + local_rank,
            role_rank=placement.first_role_rank + local_rank,
            world_size=placement.world_size,
            role_world_size=placement.role_world_size,
        )
        for local_rank in range(local_world_size)
    ]


def fill_group(group: WorkerGroup, round_: Round) -> None:
    """What torch's events and subclasses read off the group after a rendezvous."""
    for name, value in (
        ("store", round_.store),
        ("group_rank", round_.rank),
        ("group_world_size", round_.world_size),
        ("master_addr", round_.master_addr),
        ("master_port", round_.master_port),
    ):
        setattr(group, name, value)


def process_failure(worker: WorkerFailure, error_file: str) -> ProcessFailure:
    """torch's form of a failure, for ChildFailedError and torch's events."""
    status = worker.exit_code
    if status is None:
        status = ExitCode.HANG if worker.signal is None else -worker.signal
    try:
        failure = ProcessFailure(worker.local_rank, worker.pid, status, error_file)
    # An error file that is not torch's: torch raises again whatever reading it raised.
    except Exception:  # noqa: BLE001
        failure = ProcessFailure(worker.local_rank, worker.pid, status, "")
    failure.timestamp = worker.time_ns // 1_000_000_000
    return failure
