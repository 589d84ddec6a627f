"""The probes of one node in one stage: started as workers are, read, and ended on every way out."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.agent.checking import Surroundings
from dlrover_cli.agent.environment import base_environment, local_rank_environment
from dlrover_cli.agent.observations import LostPeer
from dlrover_cli.errors import LaunchError
from dlrover_cli.preflight.judging import Kind, Reading
from dlrover_cli.preflight.probe import Task
from dlrover_cli.words import signal_name
from dlrover_cli.workers.api import StartRequest, WorkerExit, WorkerLaunch, Workers
from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams

_PROBE = ("-u", "-m", "dlrover_cli.preflight.probe")
_KILL_SECONDS = 5.0
_WARM_UP_SECONDS = 86_400.0  # imports take what they take; a node that never reports is noticed
_SILENCE_SECONDS = 3.0
_PATIENCE = 0.8
"""What part of its time a probe waits for others, so that it can still say who did not come."""


class PeerIsLost(Exception):
    """The manager says that a node of the job is gone: the round is over."""


@dataclass(frozen=True, slots=True)
class Part:
    """What this node does in a stage."""

    kind: Kind
    level: int
    first_rank: int
    """Of its own workers in the group."""
    world_size: int
    """Workers in the group."""
    address: str
    port: int
    prefix: str


class Probes:
    """Starts probes through the agent's own starter, so that they are as warm as workers will be.

    Only workers that are functions have another one; then the probes get a starter of their own.
    """

    def __init__(
        self, agent: Surroundings, directory: Path, seconds: float, say: Callable[[str], None]
    ) -> None:
        self._agent = agent
        self._directory = directory
        self._seconds = seconds
        self._say = say
        self._number = 0
        self._own: CommandStarter | None = None
        self._starter = agent.starter
        if not isinstance(agent.starter, CommandStarter):
            self._starter = self._own = CommandStarter(say)

    def close(self) -> None:
        """End what was started for the probes alone."""
        if self._own is not None:
            self._own.close(leave_survivors=False)

    def run(self, part: Part) -> Reading:
        """Raises SignalException, TakenOut or PeerIsLost; the probes are gone in any case."""
        self._number -= 1  # numbers that no attempt has
        self._agent.loop.call("warm-up", self._starter.ready, _WARM_UP_SECONDS)
        deadline = time.monotonic() + self._seconds
        try:
            request = self._request(part)
            workers = self._starter.start(request, self._agent.inbox)
        except (LaunchError, OSError) as error:
            return Reading(trouble=f"the check could not be started: {error}")
        try:
            exits = self._await_exits(workers, deadline)
        finally:
            workers.kill(_KILL_SECONDS)
            workers.close()
        return _reading(part, [self._result(launch, exits) for launch in request.launches])

    def _request(self, part: Part) -> StartRequest:
        spec = self._agent.spec
        launches = []
        for local_rank in range(spec.local_world_size):
            directory = self._directory / str(-self._number) / str(local_rank)
            directory.mkdir(parents=True, mode=0o700)
            task = Task(
                kind=part.kind.value,
                level=part.level,
                rank=part.first_rank + local_rank,
                world_size=part.world_size,
                local_world_size=spec.local_world_size,
                address=part.address,
                port=part.port,
                prefix=part.prefix,
                seconds=self._seconds * _PATIENCE,
                result=str(directory / "result.json"),
            )
            (directory / "task.json").write_text(task.to_json())
            launches.append(self._launch(local_rank, directory))
        numa_options = getattr(spec, "numa_options", None)
        return StartRequest(self._number, sys.executable, tuple(launches), numa_options)

    def _launch(self, local_rank: int, directory: Path) -> WorkerLaunch:
        base = base_environment()
        virtual = bool(getattr(self._agent.spec, "virtual_local_rank", False))
        return WorkerLaunch(
            local_rank,
            (*_PROBE, str(directory / "task.json")),
            # Without the current directory, where a module may hide one that the probe needs.
            {**base, **local_rank_environment(base, local_rank, virtual=virtual)}
            | {"PYTHONSAFEPATH": "1"},
            WorkerStreams(
                StreamPlan(file=str(directory / "stdout.log")),
                StreamPlan(file=str(directory / "stderr.log")),
            ),
            "",
        )

    def _await_exits(self, workers: Workers, deadline: float) -> Mapping[int, int]:
        """The status of each probe that ended by itself; after a failure nobody is waited for."""
        running = set(workers.pids())
        exits: dict[int, int] = {}
        notice: float | None = time.monotonic() + _SILENCE_SECONDS
        while running:
            until = deadline if notice is None else min(notice, deadline)
            match self._agent.loop.next(until):
                case None if notice is not None and until < deadline:
                    notice = None
                    self._say(f"checking this node; it has {self._seconds:g} s for it")
                case WorkerExit(attempt=self._number, local_rank=local_rank, status=status):
                    running.discard(local_rank)
                    exits[local_rank] = status
                    if status != 0:
                        return exits
                case LostPeer():
                    raise PeerIsLost
                case None:
                    return exits
                case _:
                    pass  # of an earlier stage or attempt
        return exits

    def _result(self, launch: WorkerLaunch, exits: Mapping[int, int]) -> dict[str, Any]:
        directory = Path(launch.args[-1]).parent
        try:
            result: dict[str, Any] = json.loads((directory / "result.json").read_text())
        except (OSError, ValueError):
            status = exits.get(launch.local_rank)
            return {"trouble": self._why_nothing(status, directory), "is_cut_off": status is None}
        return result

    def _why_nothing(self, status: int | None, directory: Path) -> str:
        if status is None:
            return f"not done after {self._seconds:g} s"
        if status < 0:
            return f"killed by {signal_name(-status)}"
        return _last_line(directory / "stderr.log") or f"exit code {status}"


def _reading(part: Part, results: list[dict[str, Any]]) -> Reading:
    """Of a node: the slowest of its workers, or what went wrong first."""
    troubled = [
        (bool(result.get("is_cut_off")), rank, result["trouble"])
        for rank, result in enumerate(results)
        if "trouble" in result
    ]
    if troubled:
        # Whoever was still waiting when another one failed has less to say than that one.
        _, rank, trouble = min(troubled)
        return Reading(trouble=f"local rank {rank}: {trouble}" if len(results) > 1 else trouble)
    sizes = tuple(
        (size, max(result["sizes"][index][1] for result in results))
        for index, (size, _) in enumerate(results[0]["sizes"])
    )
    if part.kind is Kind.BANDWIDTH:
        return Reading(sizes=sizes)
    return Reading(
        matmul=max(result["matmul"] for result in results),
        all_reduce=max(seconds for _, seconds in sizes) if part.world_size > 1 else None,
    )


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
