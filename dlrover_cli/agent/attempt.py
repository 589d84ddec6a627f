"""One attempt on this node: its workers from their start to the end of the last of them."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli.agent.facts import is_collateral, worker_failure
from dlrover_cli.agent.oom import OomKills, count_oom_kills
from dlrover_cli.agent.progress import Activity
from dlrover_cli.agent.requests import OperatorRequest
from dlrover_cli.contracts import WorkerFailure
from dlrover_cli.leash.client import Fenced, Unleashed
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.workers.api import WorkerExit, Workers
from dlrover_cli.workers.beats import Beat, BeatPage, steps_done
from dlrover_cli.workers.bootstrap.in_worker.page import AT_PROMPT
from dlrover_cli.workers.inbox import Inbox, SignalReceived
from dlrover_cli.workers.stacks import dump_stacks

_KILL_SECONDS = 5.0
_STACKS_SECONDS = 2.0


@dataclass(slots=True)
class RunningAttempt:
    """The workers that were started, which of them run, and how the others ended."""

    number: int
    workers: Workers
    global_ranks: Mapping[int, int]
    error_files: Mapping[int, str]
    directories: Mapping[int, Path]
    pages: Mapping[int, BeatPage]
    record: Recorder
    say: Callable[[str], None]
    running: set[int] = field(init=False)
    exits: dict[int, WorkerExit] = field(init=False, default_factory=dict)
    started: float = field(init=False, default_factory=time.monotonic)
    stopped: set[int] = field(init=False, default_factory=set)
    """The local ranks that ran until we ended them."""
    _tails: dict[int, str] = field(init=False, default_factory=dict)
    _dumping: threading.Lock = field(init=False, default_factory=threading.Lock)
    oom_before: OomKills = field(init=False, default_factory=count_oom_kills)

    def __post_init__(self) -> None:
        self.running = set(self.workers.pids())

    def note(self, exit_: WorkerExit) -> bool:
        """Take down a worker's end; False if it belongs to another attempt."""
        if exit_.attempt != self.number:
            return False
        self.running.discard(exit_.local_rank)
        self.exits[exit_.local_rank] = exit_
        self.record(
            "worker_exited",
            global_rank=self.global_ranks[exit_.local_rank],
            local_rank=exit_.local_rank,
            pid=exit_.pid,
            status=exit_.status,
            **exit_.usage,
        )
        return True

    def has_succeeded(self) -> bool:
        """Whether every worker of this node has ended well."""
        return not self.running and all(exit_.status == 0 for exit_ in self.exits.values())

    def lifetime(self) -> float:
        """Seconds since the workers were started."""
        return time.monotonic() - self.started

    def active_seconds(self) -> float:
        """Seconds from the start to the last sign of life."""
        return max(0.0, self.last_moved() - self.started)

    def beats(self) -> dict[int, Beat]:
        """How far each worker is, by local rank."""
        return {rank: page.read() for rank, page in self.pages.items()}

    def steps(self) -> int | None:
        """Optimizer steps of the furthest worker; None where nobody counted."""
        return steps_done(self.beats())

    def looked_into(self) -> list[Beat]:
        """The workers that a person is busy with."""
        beats = (page.read() for rank, page in self.pages.items() if rank in self.running)
        return [beat for beat in beats if beat.prompt]

    def interrupt_prompt(self) -> bool:
        """Interrupt the worker that a person talks to, if there is one."""
        pids = [beat.pid for beat in self.looked_into() if beat.prompt == AT_PROMPT]
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGINT)
        return bool(pids)

    def activities(self, others_moved_at: float = 0.0) -> dict[int, Activity]:
        """What the running workers have shown; other nodes' movement counts for each of them."""
        beats = self.beats()
        if self.looked_into():  # a person may take as long as it takes
            others_moved_at = time.monotonic()
        else:
            last_prompt = max((beat.prompt_ns for beat in beats.values()), default=0) / 1e9
            others_moved_at = max(others_moved_at, last_prompt)
        return {
            rank: Activity(
                beats.get(rank, Beat()),
                max(self.workers.last_output(rank) or 0.0, others_moved_at) or None,
            )
            for rank in self.running
        }

    def last_moved(self) -> float:
        """When any worker of this node last gave a sign of life."""
        moved = [activity.last_moved for activity in self.activities().values()]
        ended = [beat.last_ns / 1e9 for beat in self.beats().values()]
        return max([self.started, *moved, *ended])

    def error_file(self, global_rank: int) -> str:
        """Where a worker of this node records its error; empty for those of other nodes."""
        local_ranks = {of_all: local for local, of_all in self.global_ranks.items()}
        return self.error_files.get(local_ranks.get(global_rank, -1), "")

    def return_values(self) -> dict[int, Any]:
        """What the workers returned, by global rank."""
        return {
            self.global_ranks[rank]: exit_.return_value
            for rank, exit_ in sorted(self.exits.items())
        }

    def failures(self) -> list[WorkerFailure]:
        """The workers that failed so far, with what they left behind about it."""
        oom = count_oom_kills().since(self.oom_before)
        beats = self.beats()
        return [
            worker_failure(
                exit_,
                self.global_ranks[rank],
                self.error_files.get(rank, ""),
                worker_dir=self.directories.get(rank),
                beat=beats.get(rank),
                tail=self.tail(rank),
                oom=oom,
            )
            for rank, exit_ in self.exits.items()
            if exit_.status != 0
        ]

    def stacks(self, seconds: float = _STACKS_SECONDS) -> dict[int, str]:
        """The Python stacks of the running workers, by local rank. Blocks; for any thread."""
        pids = {rank: pid for rank, pid in self.workers.pids().items() if rank in self.running}
        with self._dumping:  # dumps that are asked for at the same time end up in one another
            return dump_stacks(pids, self.directories, self.pages, time.monotonic() + seconds)

    def stacks_by_global_rank(self, seconds: float) -> dict[int, str]:
        """The same for other nodes' sake."""
        return {self.global_ranks[rank]: text for rank, text in self.stacks(seconds).items()}

    def running_pids(self) -> dict[int, int]:
        """The processes of the running workers, by global rank."""
        pids = self.workers.pids()
        return {self.global_ranks[rank]: pids[rank] for rank in sorted(self.running & set(pids))}

    def has_only_consequences(self, failures: Sequence[WorkerFailure]) -> bool:
        """Whether every failed worker looks as if it went down because of another one."""
        return all(is_collateral(failure, self.tail(failure.local_rank)) for failure in failures)

    def failed_alone(self) -> tuple[int, ...]:
        """The global ranks whose own exception ended them, and not a peer's end or a signal."""
        return tuple(
            failure.global_rank
            for failure in self.failures()
            if failure.exception_type is not None
            and not is_collateral(failure, self.tail(failure.local_rank))
        )

    def succeeded(self) -> tuple[int, ...]:
        """The global ranks that ended well, and by themselves."""
        return tuple(
            self.global_ranks[rank]
            for rank, exit_ in sorted(self.exits.items())
            if exit_.status == 0 and rank not in self.stopped
        )

    def tail(self, local_rank: int) -> str:
        """The end of a worker's stderr; of one that has ended, as it was at the first look."""
        if local_rank not in self.exits:
            return self.workers.tail(local_rank) or ""
        if local_rank not in self._tails:
            self._tails[local_rank] = self.workers.tail(local_rank) or ""
        return self._tails[local_rank]

    def end(
        self, inbox: Inbox, signum: signal.Signals, timeout: float, *, forward_to_all: bool
    ) -> None:
        """End every worker with its descendants; all of them are gone when this returns.

        After a failure only the workers that catch the signal get it, with ``timeout`` as their
        grace; the others could do nothing with it and are killed at once. A signal to the launcher
        itself is forwarded to all. A Ctrl-C on top of it ends the patience; other signals may come
        twice by themselves, from timeout(1) or a batch system.
        """
        was_running = sorted(self.running)
        self.stopped.update(was_running)
        if was_running:
            self.record("workers_stopping", signal=signum.name, local_ranks=was_running)
            for local_rank in was_running:
                pid = self.workers.pids()[local_rank]
                graceful = forward_to_all or _catches(pid, signum)
                self.workers.signal(local_rank, signum if graceful else signal.SIGKILL)
            self._await_exits(inbox, time.monotonic() + timeout)
        if was_running or any(exit_.status != 0 for exit_ in self.exits.values()):
            self._report_stuck(self.workers.kill(_KILL_SECONDS))
        self.workers.close()
        for page in self.pages.values():
            page.close()

    def _await_exits(self, inbox: Inbox, deadline: float) -> None:
        """What is said to the agent itself stays in the inbox: another attempt may follow."""
        for_the_agent: list[object] = []
        try:
            while self.running:
                observation = inbox.next(deadline)
                match observation:
                    case None:
                        return
                    case WorkerExit() as exit_:
                        self.note(exit_)
                    case SignalReceived() | Fenced() | Unleashed() | OperatorRequest():
                        for_the_agent.append(observation)
                        if observation == SignalReceived(signal.SIGINT):
                            return
                    case _:
                        pass  # whatever it is, the attempt is over
        finally:
            for observation in for_the_agent:
                inbox.post(observation)

    def _report_stuck(self, pids: list[int]) -> None:
        if pids:
            self.record("workers_stuck", pids=pids)
            self.say(
                f"processes {', '.join(map(str, pids))} do not die, most likely stuck in the "
                "kernel on a device; they are left behind"
            )


def _catches(pid: int, signum: int) -> bool:
    """Whether the process has a handler for the signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False
