"""Services that a test needs and a machine may not have: skip without them, except in CI."""

import os
import shutil
from typing import NoReturn

import pytest


def need_program(name: str, package: str) -> str:
    """The path of an installed program. Where CI installs the engines, its absence is a failure."""
    path = shutil.which(name)
    if path is None:
        absent(f"{name} is not installed: apt-get install {package}")
    return path


def need_module(name: str, extra: str) -> None:
    """The same for a Python package that comes with one of our extras."""
    try:
        __import__(name)
    except ImportError:
        absent(f"there is no module {name}: pip install 'dlrover-cli[{extra}]'")


def absent(reason: str) -> NoReturn:
    """Skip the test; where CI has installed the engines, fail it."""
    if are_required():
        pytest.fail(reason)
    pytest.skip(reason)


def are_required() -> bool:
    """Whether somebody has seen to it that every engine is there."""
    return bool(os.environ.get("DLROVER_CI_ENGINES"))
