"""`dlrover-job why`: the story of a run."""

import time
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Output, print_document, remark
from dlrover_cli.cli.run_ids import RunArgument, find_run, opened_ledger
from dlrover_cli.cli.run_view import as_document
from dlrover_cli.cli.why_view import story_lines
from dlrover_cli.diagnosis.papers import read_papers
from dlrover_cli.diagnosis.run_story import About, RunStory
from dlrover_cli.diagnosis.telling import tell
from dlrover_cli.jobs.ledger import RunRow

app = commands()


@command(app, "why")
def explain_run(
    run: RunArgument = None,
    output: Output = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a page for a browser instead."),
    ] = None,
) -> None:
    """Tell the story of a run: how it ended, why, at what cost.

    Its attempts one by one, what failed, what was decided by whom, and the time that was lost.
    """
    with opened_ledger() as (ledger, _):
        row = find_run(ledger, run)
    story = story_of(row)
    if html is not None:
        # Not needed for anything else.
        from dlrover_cli.cli.why_page import write_page

        write_page(story, Path(html))
        remark(f"the story of run {row.run_id} is in {html}")
    if output is not None:
        print_document({"run": as_document(row), **story.to_json()}, output)
    if output is not None or html is not None:
        return
    for line in story_lines(story):
        print(line)


def story_of(row: RunRow) -> RunStory:
    """As far as it has come."""
    about = About(
        run_id=row.run_id,
        name=row.name,
        platform=row.platform,
        engine=row.engine,
        state=row.state,
        exit_code=row.exit_code,
        reason=row.reason,
        submitted=row.submitted,
        started=row.started,
        ended=row.ended,
        directory=row.directory,
    )
    return tell(read_papers(row.directory), about, now=time.time())
