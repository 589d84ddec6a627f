"""A store outside of the agents, shared by the jobs of a test session."""

from collections.abc import Iterator

import pytest

from tests.failover.nodes import store_process


@pytest.fixture(scope="session")
def outside_store() -> Iterator[int]:
    """The port of a store that no agent hosts; jobs on it differ by their --rdzv-id."""
    with store_process() as port:
        yield port
