"""Jobs that last until a test lets them end, submitted with an extender file."""

import json
from typing import Any

from tests.jobs.submitted import Jobs, SubmittedRun, shell

_LASTS = "for i in $(seq 600); do [ -e {name}.end ] && exit 0; sleep 0.05; done; exit 9"


def lasting(name: str, **more: Any) -> dict[str, Any]:
    """Notes its start, and ends after ``end``; after half a minute in any case."""
    return shell(f"echo {name} >> started; {_LASTS.format(name=name)}", **more)


def end(jobs: Jobs, name: str) -> None:
    (jobs.project / f"{name}.end").touch()


def started(jobs: Jobs) -> list[str]:
    """The names of the jobs that have started, one after the other."""
    path = jobs.project / "started"
    return path.read_text().split() if path.exists() else []


def write_extender(jobs: Jobs, **content: Any) -> None:
    (jobs.project / "extender.yaml").write_text(json.dumps(content))


def submit(jobs: Jobs, **described: dict[str, Any]) -> list[SubmittedRun]:
    done = jobs.command("submit", "--extender", "extender.yaml", jobs.write(described))
    ids = {name: run_id for run_id, name in map(str.split, done.stdout.strip().splitlines())}
    return [jobs.run(ids[name]) for name in described]


def book(jobs: Jobs) -> dict[str, dict[str, Any]]:
    """What the book says, by the names of jobs."""
    document = json.loads((jobs.state / "queue.json").read_text())
    return {entry["name"]: entry for entry in (*document["entries"], *document["ended"])}
