"""Small packages that are really built and installed, into a folder of the test, offline."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


def install(source: Path, folder: Path) -> Path:
    """Install the package in ``source``; the folder that has to be on the path."""
    # Building writes beside the sources.
    copy, site = folder / "source", folder / "site"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *_OFFLINE, f"--target={site}", copy],
        check=True,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    return site
