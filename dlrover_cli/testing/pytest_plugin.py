"""The pytest plugin `dlrover`: modules that import DLRover's paths can be imported by tests.

Where the `dlrover` package is installed, it is used. `-p no:dlrover` turns the plugin off.
"""

import pytest

from dlrover_cli.plugins.shims import install_import_shims


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before the first conftest.py, which may import an extension already."""
    install_import_shims()
