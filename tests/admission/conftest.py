"""Runs with real runners that wait in real queues."""

from tests.jobs.conftest import jobs

__all__ = ["jobs"]
