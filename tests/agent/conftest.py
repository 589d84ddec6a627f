"""For all tests of the agent's parts."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def short_name_lookups() -> Iterator[None]:
    """TCPStore looks up every peer's name in its only thread: a lost reply costs 1 s, not 5."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RES_OPTIONS", "timeout:1 attempts:1")
        yield
