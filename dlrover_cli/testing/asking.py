"""Asking an extension the way the agent does: by its reference, in a process of its own."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.extension import ExtensionAdviser, OnError


def ask_extension(
    reference: str,
    *failures: AgentFailureInfo,
    roots: Sequence[Path] | None = None,
    timeout: float = 30.0,
    on_error: OnError = "normal",
) -> list[Verdict | None]:
    """Its verdicts on failures that follow one another; None where it has no opinion.

    Raises PluginError if it cannot be loaded. It is looked for in `roots`, by default in the
    current directory, and wherever else Python finds modules. What went wrong while it was asked is
    in a verdict's `problems`. What it prints is printed here, at the end.
    """
    with tempfile.TemporaryDirectory(prefix="dlrover-") as directory:
        log = Path(directory, "extension.log")
        adviser = ExtensionAdviser(
            reference,
            [Path.cwd()] if roots is None else roots,
            timeout=timeout,
            on_error=on_error,
            log_path=log,
            log_shown_as="its output",
        )
        try:
            adviser.start()
            return [
                adviser.advise(failure, History(failures[:index]))
                for index, failure in enumerate(failures)
            ]
        finally:
            adviser.close()
            if log.exists():
                sys.stdout.write(log.read_text(errors="replace"))
