"""Extensions written for one test, and the advisers that ask them."""

import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.extension import ExtensionAdviser

PATIENT = 60.0
REFERENCE = "myext::MyExtension"
HEADER = """\
import ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
from dlrover_cli.contracts import *

HERE = Path(__file__).parent
NODE, GLOBAL = FailoverStrategy.NODE_FAILOVER, FailoverStrategy.GLOBAL_FAILOVER

"""


class Advisers:
    """Writes `myext.py` into a folder and makes advisers for the class in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "extension.log"
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._made: list[ExtensionAdviser] = []

    def write(self, answer: str, *, construct: str = "pass", before: str = "") -> None:
        """The extension's module: the bodies of its method and of its constructor."""
        source = (
            HEADER
            + textwrap.dedent(before)
            + "\nclass MyExtension(DynamicAgentFailoverExtension):\n"
            + _method("__init__(self)", construct)
            + _method("get_user_failover_strategy(self, info)", answer)
        )
        (self.folder / "myext.py").write_text(source)

    def make(self, reference: str = REFERENCE, **options: Any) -> ExtensionAdviser:
        """An adviser that has not begun; it is closed at the end of the test."""
        settings = {"timeout": PATIENT, "log_path": self.log, "record": self._record} | options
        adviser = ExtensionAdviser(reference, [self.folder], **settings)
        self._made.append(adviser)
        return adviser

    def started(self, answer: str, **options: Any) -> ExtensionAdviser:
        """An adviser for an extension with this method body, loaded."""
        parts = {name: options.pop(name) for name in ("construct", "before") if name in options}
        self.write(answer, **parts)
        adviser = self.make(**{"load_timeout": PATIENT, **options})
        adviser.start()
        return adviser

    def close(self) -> None:
        for adviser in self._made:
            adviser.close()

    def final_log(self) -> str:
        """All that the extensions printed; they have ended then."""
        self.close()
        return self.log.read_text(errors="replace")

    def recorded(self, kind: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == kind]

    def _record(self, kind: str, **data: Any) -> None:
        self.events.append((kind, data))


def ask(adviser: ExtensionAdviser, **facts: Any) -> Verdict | None:
    return adviser.advise(AgentFailureInfo(**facts), History())


def verdict(adviser: ExtensionAdviser, **facts: Any) -> Verdict:
    """As `ask`, for an extension that has an opinion or fails."""
    answer = ask(adviser, **facts)
    assert answer is not None
    return answer


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.monotonic()
    return call(), time.monotonic() - started


def _method(head: str, body: str) -> str:
    return f"    def {head}:\n{textwrap.indent(textwrap.dedent(body).strip(), ' ' * 8)}\n"
