"""Loads one extension as a run would, in a process of its own, and says how that went.

A failover extension is constructed, as every run does at its start. Handlers are only looked at:
constructing one may open ports or connect to something.
"""

import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from dlrover_cli.doctor.answers import tell
from dlrover_cli.errors import DlroverError
from dlrover_cli.plugins.failover_extension import load_failover_extension
from dlrover_cli.plugins.reference import check_callable, check_class, resolve
from dlrover_cli.plugins.shims import install_import_shims
from dlrover_cli.telemetry.metrics_loading import check_metrics_handler


def load(field: str, option: str, reference: str, roots: Sequence[Path]) -> None:
    """Raises DlroverError."""
    install_import_shims()
    if field == "dynamic_failover_extension":
        load_failover_extension(reference, roots, option=option)
        return
    found = resolve(reference, option=option, roots=roots)
    if field == "metrics_handler":
        check_metrics_handler(found)
    elif isinstance(found.value, type):
        # Not needed by the others, and takes a second.
        rendezvous = import_module("torch.distributed.elastic.rendezvous")
        check_class(found, rendezvous.RendezvousHandler)
    else:
        check_callable(found)


def main() -> None:
    field, option, reference = sys.argv[1:]
    # What the extension prints is its own business; the last line is ours.
    stdout, sys.stdout = sys.stdout, sys.stderr
    started = time.perf_counter()
    error = hint = None
    try:
        load(field, option, reference, [Path.cwd()])
    except DlroverError as fault:
        error, hint = fault.message, fault.hint
    answer = {"seconds": time.perf_counter() - started, "error": error, "hint": hint}
    print(tell(answer), file=stdout, flush=True)


if __name__ == "__main__":
    main()
