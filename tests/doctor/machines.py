"""Machines for the checks to look at: files below a folder, and answers instead of questions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.doctor.commands import Ran
from dlrover_cli.doctor.machine import Machine, Space

MIB = 1 << 20


def machine(root: Path, *, flags: Mapping[str, object] | None = None, **facts: Any) -> Machine:
    """One where all is well but for what `facts` say; `flags` are settings on a command line."""
    environ = facts.pop("environ", {})
    settings = resolve_settings({**(flags or {}), "training_script": "t.py"}, environ, root)
    usual: dict[str, Any] = {
        "hostname": lambda: "node7",
        "look_up": lambda host, seconds: ("10.0.0.7",),
        "reach": lambda host, port, seconds: 0.001,
        "is_own_address": lambda address: address == "10.0.0.7",
        "is_port_free": lambda port: True,
        "interfaces": lambda: ("lo", "eth0", "ib0"),
        "space": lambda path: Space(100_000 * MIB, 50_000 * MIB),
        "run": answers(Ran(0)),
        "seconds": 5.0,
    }
    return Machine(settings=settings, environ=environ, root=root, **{**usual, **facts})


def answers(*rans: Ran) -> Any:
    """Commands that end like this, one after the other; the last one again and again."""
    left = list(rans)

    def run(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> Ran:
        return left.pop(0) if len(left) > 1 else left[0]

    return run


def raising(error: Exception) -> Any:
    def ask(*_: Any) -> Any:
        raise error

    return ask


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
