"""docs/how-to/queues.md: the file that it shows is the example, and that loads and runs."""

import re
import shutil
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.job_file import read_job_file
from dlrover_cli.scheduling.reading import read_extender_file
from tests.jobs.conftest import jobs
from tests.jobs.submitted import Jobs

__all__ = ["jobs"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "queues"


def test_the_file_on_the_page_is_the_example() -> None:
    page = (ROOT / "docs" / "how-to" / "queues.md").read_text()
    [shown] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert (EXAMPLES / "extender.yaml").read_text().endswith(shown)
    config = read_extender_file(EXAMPLES / "extender.yaml")
    assert config.actions == ("reclaim", "allocate", "backfill", "preempt")
    assert config.queues["research"].capacity == {"agents": 4.0}
    queues = {job.values["queue"] for job in read_job_file(EXAMPLES / "jobs.yaml").jobs}
    assert queues == set(config.queues)


@pytest.mark.full
def test_the_example_runs(jobs: Jobs) -> None:
    shutil.copytree(EXAMPLES, jobs.project, dirs_exist_ok=True)

    jobs.command("submit", "--extender", "extender.yaml", "jobs.yaml")

    runs = jobs.runs()
    assert [run.ended().state for run in runs] == [RunState.FINISHED] * 2
