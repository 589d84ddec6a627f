from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.user_code import UserCode, forgetting_imports


@pytest.fixture
def user(tmp_path: Path) -> Iterator[UserCode]:
    """The folder in which a user works, and whose modules are forgotten after the test."""
    with forgetting_imports(tmp_path):
        yield UserCode(tmp_path)
