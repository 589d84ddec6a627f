"""Stores in this process, which no name server can slow down."""

from collections.abc import Iterator

import pytest
from torch.distributed import TCPStore

from dlrover_cli.rendezvous.no_lookups import spare_torch_its_lookups
from tests.rendezvous.nodes import Job


@pytest.fixture(scope="session", autouse=True)
def no_lookups() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    spare_torch_its_lookups(lambda: TCPStore("127.0.0.1", store.port, wait_for_workers=False))


@pytest.fixture
def job() -> Iterator[Job]:
    """A job that has no nodes yet; those that it gets are let go of."""
    job = Job()
    yield job
    for node in job.nodes:
        node.handler.release()
