"""Asks Slurm for another node in the place of a lost one: a job of one node that joins this one.

An allocation cannot grow, and loses a dead node for good. So the new node, which may well be the
old one once it is mended, comes with a job of its own. That job does nothing but hold the node, and
ends with the one that it belongs to.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dlrover_cli.manager.cluster import Node, Post
from dlrover_cli.manager.replacing import Relaunched
from dlrover_cli.platforms.slurm.batch import without_overrides
from dlrover_cli.platforms.slurm.commands import NoSuchJob, Slurm, SlurmError
from dlrover_cli.platforms.slurm.facts import JobFacts
from dlrover_cli.telemetry.events import Recorder

PATIENCE_SECONDS = 60.0
"""How long a job that has too few nodes waits for one before it uses an excluded one again."""
_ASK_SECONDS = 1.0
_HOLD = """\
while [ "$(squeue --noheader --format=%T --jobs={job_id})" = RUNNING ]; do sleep 3; done
"""


class Members(Protocol):
    """The cluster, as far as its growing goes."""

    def join(self, job_id: str) -> None:
        """The nodes of this job are nodes of the cluster, too."""
        ...

    def look(self) -> None:
        """Post the nodes of now."""
        ...

    def usable_nodes(self) -> set[str]:
        """Those that have an agent or could have one, as of now. Raises SlurmError."""
        ...


class NodeRequests:
    """A Replacer: a spare of the allocation if there is one, else a further job."""

    def __init__(
        self,
        slurm: Slurm,
        job_id: str,
        members: Members,
        wanted: int,
        options: Mapping[str, str | None],
        directory: Path,
        record: Recorder,
        say: Callable[[str], None],
    ) -> None:
        """``wanted`` is how many nodes the job may have. ``options`` are those of sbatch for one
        more; the script is kept in ``directory``.
        """
        self._slurm = slurm
        self._job_id = job_id
        self._members = members
        self._wanted = wanted
        self._options = options
        self._directory = directory
        self._record = record
        self._say = say
        self._bad: set[str] = set()
        self._jobs: list[str] = []
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def ask(self, nodes: Sequence[Node], post: Post) -> None:
        self._bad |= {node.id for node in nodes}
        thread = threading.Thread(
            target=self._replace, args=(nodes, post), name="slurm-request", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Cancel what was asked for."""
        self._closed.set()
        for thread in self._threads:
            thread.join(_ASK_SECONDS + 1.0)
        for job_id in self._jobs:
            with suppress(SlurmError):
                self._slurm.run("scancel", job_id, deadline=5.0)

    def _replace(self, nodes: Sequence[Node], post: Post) -> None:
        asked = tuple(node.id for node in nodes)
        problem = ""
        try:
            if len(self._members.usable_nodes() - self._bad) >= self._wanted:
                problem = "a spare of the allocation takes its place"
                return
            job_id = self._request(nodes)
            self._members.join(job_id)
            if self._comes(job_id):
                self._members.look()  # the manager knows the new node before it has our answer
            else:
                problem = f"Slurm job {job_id}, which asks for another node, still waits"
        except SlurmError as error:
            problem = error.message
        finally:
            post(Relaunched(asked, (), problem))

    def _request(self, nodes: Sequence[Node]) -> str:
        # All that live are avoided: the bad ones, and those that we have, since Slurm may share out
        # what is left of them. A dead one is not: it is welcome as soon as it is back. Should Slurm
        # send the request there before it knows, it finds out and puts it back into the queue.
        avoided = sorted(self._members.usable_nodes())
        options = dict(self._options)
        exclude = ",".join(filter(None, (options.pop("exclude", None), *avoided)))
        if exclude:
            options["exclude"] = exclude
        script = self._directory / "node.sh"
        lines = ["#!/bin/sh"]
        lines += [
            f"#SBATCH --{key}" + (f"={text}" if text else "") for key, text in options.items()
        ]
        script.write_text("\n".join(lines) + "\n" + _HOLD.format(job_id=self._job_id))
        slurm = Slurm(without_overrides(self._slurm.environ, options))
        job_id = slurm.run("sbatch", "--parsable", str(script)).strip().partition(";")[0]
        self._jobs.append(job_id)
        lost = ", ".join(node.hostname for node in nodes)
        self._record("node_requested", job_id=job_id, instead_of=[node.id for node in nodes])
        self._say(f"asked Slurm for a node in the place of {lost}: job {job_id}")
        return job_id

    def _comes(self, job_id: str) -> bool:
        """Whether it runs within our patience."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._closed.is_set() and time.monotonic() < deadline:
            if self._state(job_id).state == "RUNNING":
                return True
            self._closed.wait(_ASK_SECONDS)
        return False

    def _state(self, job_id: str) -> JobFacts:
        try:
            return self._slurm.job(job_id)
        except NoSuchJob:
            return JobFacts("CANCELLED")
