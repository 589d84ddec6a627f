"""A node that replaces itself: the same process run again from the first line, in the same run.

Nothing of the old interpreter is left: no imported module, no thread, no store. What survives is
the process id, for whoever watches it, and the run: its directory, its events, its counters.
"""

import json
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, Self

from dlrover_cli.failover.decide import Counters
from dlrover_cli.launch.command import launcher_command

VARIABLE = "DLROVER_RESUME"


@dataclass(frozen=True, slots=True)
class Resume:
    """What the next incarnation has to know."""

    run_id: str
    run_directory: str
    agent: str
    started: float
    counters: Counters
    is_given: bool = False
    """Whether somebody else has set up the run, and keeps the journal of its life."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: Mapping[str, Any] = json.loads(text)
        return cls(**{**data, "counters": Counters(**data["counters"])})


def take_resume(environ: MutableMapping[str, str]) -> Resume | None:
    """What the incarnation before us left; taken out of the environment, which workers inherit."""
    text = environ.pop(VARIABLE, None)
    return None if text is None else Resume.from_json(text)


def run_again(argv: Sequence[str], resume: Resume) -> NoReturn:
    """Replace this process. Returns only by raising OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    environ = {**os.environ, VARIABLE: resume.to_json()}
    os.execve(sys.executable, [*launcher_command(), *argv], environ)
