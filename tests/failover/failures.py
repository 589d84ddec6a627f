"""Failures and histories for tests, said briefly."""

from typing import Any

from dlrover_cli.contracts import AgentFailureInfo, WorkerFailure, WorkerPhase
from dlrover_cli.failover.advice import History

NOTHING_BEFORE = History()
_OF_WORKER = frozenset({"exit_code", "signal", "exception_type", "message", "traceback", "oom"})


def failure(**facts: Any) -> AgentFailureInfo:
    """One failed worker; facts of the worker and of the failure may be mixed."""
    of_worker = {key: facts.pop(key) for key in _OF_WORKER & facts.keys()}
    if not {"exit_code", "signal"} & of_worker.keys():
        of_worker["exit_code"] = 1
    worker = WorkerFailure(global_rank=0, local_rank=0, root_cause=True, **of_worker)
    facts = {"timestamp": 0, "workers": (worker,), "host": "host-a", **facts}
    facts["phase"] = WorkerPhase(facts.get("phase", "unknown"))
    return AgentFailureInfo(**facts)


def after(*failures: AgentFailureInfo) -> History:
    """A run that had these failures before."""
    return History(failures)
