"""Services that a test needs and a machine may not have: skip without them, except in CI."""

import os
import shutil

import pytest


def need_program(name: str, package: str) -> str:
    """The path of an installed program. Where CI installs the engines, its absence is a failure."""
    path = shutil.which(name)
    if path is None:
        _missing(f"{name} is not installed: apt-get install {package}")
    return path


def need_module(name: str, extra: str) -> None:
    """The same for a Python package that comes with one of our extras."""
    try:
        __import__(name)
    except ImportError:
        _missing(f"there is no module {name}: pip install 'dlrover-cli[{extra}]'")


def _missing(reason: str) -> None:
    if os.environ.get("CI") and os.environ.get("DLROVER_CI_ENGINES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
