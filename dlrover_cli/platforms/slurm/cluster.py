"""An allocation of Slurm as a cluster: its nodes that are up, and one srun step per agent.

Slurm is asked in threads of their own. A node that Slurm has not given up yet, but whose slurmd
does not answer, gets no agent; one that has an agent keeps it, since slurmd may just be restarted.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlrover_cli.manager.cluster import AgentEnded, AgentUnseen, Node, NodesChanged, Post
from dlrover_cli.platforms.slurm.commands import NoSuchJob, Slurm, SlurmError
from dlrover_cli.platforms.slurm.facts import JobFacts
from dlrover_cli.platforms.slurm.meaning import time_limit_is_near
from dlrover_cli.platforms.slurm.probing import answering
from dlrover_cli.platforms.slurm.steps import SLURM_FAILED, node_of, srun, srun_environ

LOOK_SECONDS = 2.0
_STOP_SECONDS = 10.0
_CLOSE_SECONDS = 12.0


@dataclass(slots=True)
class _Running:
    """The srun of one agent."""

    node: str
    job_id: str
    process: "subprocess.Popen[bytes]"
    is_given_up: bool = False
    """Whether it was killed: its node has to show that it is well before it is used again."""
    waiter: threading.Thread | None = None


@dataclass(slots=True)
class SlurmCluster:
    """Its methods belong to the manager's thread; what it posts comes from its own."""

    slurm: Slurm
    job_id: str
    say: Callable[[str], None]
    slurmd_port: int = 6818
    run_directory: Path | None = None
    """Where agents leave their results: srun's word for a success is not enough."""
    lead: float = 0.0
    """How long before the time limit the job has to end; Slurm's own warning may be lost."""
    binds: bool = False
    """Whether this Slurm binds tasks to CPUs: an agent needs all of its job's on the node."""
    _post: Post = lambda observation: None
    _running: dict[str, _Running] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _look_now: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None
    _stoppers: list[threading.Thread] = field(default_factory=list)
    _is_silent: bool = False
    _joined: list[str] = field(default_factory=list)
    """Further jobs, whose nodes are ours too."""

    def open(self, post: Post) -> None:
        self._post = post
        self.look()
        self._watcher = threading.Thread(target=self._watch, name="slurm-nodes", daemon=True)
        self._watcher.start()

    def start(
        self, node: Node, agent: str, argv: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        job_id = node.envs.get("SLURM_JOB_ID", self.job_id)
        process = subprocess.Popen(
            [*srun(job_id, node.id, agent, binds=self.binds), *argv],
            env=srun_environ(environ, is_elsewhere=job_id != self.job_id),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the manager's to deal with
        )
        running = _Running(node.id, job_id, process)
        running.waiter = threading.Thread(
            target=self._wait, args=(agent, running), name=f"srun-{agent}", daemon=True
        )
        with self._lock:
            self._running[agent] = running
        running.waiter.start()

    def stop(self, agent: str) -> None:
        """srun would kill the step at once: the step itself has to be signalled."""
        running = self._get(agent)
        if running is None:
            return
        stopper = threading.Thread(
            target=self._signal_step, args=(agent, running), name=f"stop-{agent}", daemon=True
        )
        self._stoppers.append(stopper)
        stopper.start()

    def kill(self, agent: str) -> None:
        """On this signal srun has Slurm kill the step, and waits for its end."""
        running = self._get(agent)
        if running is not None:
            running.is_given_up = True
            _signal(running.process, signal.SIGTERM)

    def close(self) -> None:
        self._closed.set()
        self._look_now.set()
        with self._lock:
            left = list(self._running.values())
        for running in left:
            _signal(running.process, signal.SIGTERM)
        threads = [each.waiter for each in left] + [self._watcher, *self._stoppers]
        for thread in threads:
            if thread is not None:
                thread.join(_CLOSE_SECONDS)

    # ---- looking -------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closed.is_set():
            self._look_now.wait(LOOK_SECONDS)
            self._look_now.clear()
            if not self._closed.is_set():
                self.look()

    def look(self) -> None:
        """Post the nodes of now; if Slurm does not answer, those of before stay."""
        with self._looking:
            try:
                found = self.find_nodes()
            except SlurmError as error:
                self._note_silence(error)
                return
            if self._is_silent:
                self.say("Slurm answers again")
            self._is_silent = False
            self._post(NodesChanged(tuple(found)))

    def find_nodes(self) -> list[Node]:
        """The nodes that may have agents. Raises SlurmError."""
        job = self.slurm.job(self.job_id)
        left = job.seconds_left(time.time())
        if left is not None and left <= self.lead and job.state == "RUNNING":
            self._post(time_limit_is_near(job))
        found = {node.id: node for node in self._nodes_of(job, self.job_id)}
        for job_id in list(self._joined):
            try:
                job = self.slurm.job(job_id)
            except NoSuchJob:
                self._joined.remove(job_id)
                continue
            if job.state == "RUNNING":
                found |= {node.id: node for node in self._nodes_of(job, job_id)}
        return list(found.values())

    def join(self, job_id: str) -> None:
        """The nodes of this job are nodes of the cluster, too."""
        self._joined.append(job_id)
        self._look_now.set()

    def usable_nodes(self) -> set[str]:
        """Those that have an agent or could have one, as of now. Raises SlurmError."""
        return {node.id for node in self.find_nodes()}

    def _nodes_of(self, job: JobFacts, job_id: str) -> list[Node]:
        facts = self.slurm.nodes(job.node_list)
        busy = self._busy_nodes()
        free = [each for each in facts if each.takes_steps and each.name not in busy]
        up = answering({each.name: (each.address, each.port or self.slurmd_port) for each in free})
        return [
            node_of(each, job_id)
            for each in facts
            if (each.name in busy and not each.is_gone) or each.name in up
        ]

    def _busy_nodes(self) -> set[str]:
        with self._lock:
            return {each.node for each in self._running.values() if not each.is_given_up}

    def _note_silence(self, error: SlurmError) -> None:
        if not self._is_silent and not self._closed.is_set():
            self._is_silent = True
            self.say(f"{error.message}; the job goes on with the nodes that it has")

    # ---- agents --------------------------------------------------------------------------------

    def _get(self, agent: str) -> _Running | None:
        with self._lock:
            return self._running.get(agent)

    def _wait(self, agent: str, running: _Running) -> None:
        code = running.process.wait()
        with self._lock:
            self._running.pop(agent, None)
        was_slurm = code in (SLURM_FAILED, -signal.SIGKILL) or (
            code == 0 and not self._has_succeeded(agent)
        )
        if (was_slurm or running.is_given_up) and not self._closed.is_set():
            self.look()  # so that nobody is sent to a node that has just died
        if was_slurm:
            self._post(AgentUnseen(agent, f"Slurm lost the agent on {running.node}"))
        else:
            self._post(AgentEnded(agent, code))

    def _has_succeeded(self, agent: str) -> bool:
        """An srun that gave up waiting for a dead node says the same as after a success."""
        if self.run_directory is None:
            return True
        path = self.run_directory / "nodes" / agent / "result.json"
        try:
            return bool(json.loads(path.read_text())["exit_code"] == 0)
        except (OSError, ValueError, KeyError):
            return False

    def _signal_step(self, agent: str, running: _Running) -> None:
        try:
            listed = self.slurm.run(
                *("squeue", "--steps", "--noheader", f"--jobs={running.job_id}"),
                "--format=%i %j",
                deadline=_STOP_SECONDS,
            )
            steps = [line.split()[0] for line in listed.splitlines() if line.split()[1:] == [agent]]
            for step in steps:
                self.slurm.run("scancel", "--signal=TERM", step, deadline=_STOP_SECONDS)
        except NoSuchJob:
            pass  # what scancel says of a step that takes the signal to heart, and is gone
        except SlurmError as error:
            self.say(f"{error.message}; {agent} is killed instead")
            self.kill(agent)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
