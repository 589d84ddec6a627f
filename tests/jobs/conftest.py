"""Runs with real runners, in a state directory of the test's own."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.jobs.submitted import Jobs, environment, make_jobs


@pytest.fixture
def jobs(tmp_path: Path, process_token: str) -> Iterator[Jobs]:
    """Submits jobs, and stops at the end what a test has left running."""
    made = make_jobs(tmp_path / "jobs", environment())
    yield made
    for method in ("wait", "generate_job_resource", "submit_job", "stop_job", "cleanup_job"):
        made.let_go(method)
    left = [run for run in made.runs() if run.files.events.exists() and _has_owner(run)]
    for run in left:
        with suppress(AssertionError):
            made.command("stop", "--grace=0", run.run_id, check=False)


def _has_owner(run: object) -> bool:
    owner = run.story.owner  # type: ignore[attr-defined]
    return owner is not None and owner.is_alive()
