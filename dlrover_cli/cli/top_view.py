"""The picture of a running job as rows: all of them in a pipe, as many as fit on a screen."""

from collections.abc import Sequence

from dlrover_cli import words
from dlrover_cli.cli.output import Cell, Column
from dlrover_cli.cli.run_view import STYLES
from dlrover_cli.cli.top_picture import Picture, ShownRank
from dlrover_cli.cli.why_view import lost_in_words
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.telemetry.live import RankState

COLUMNS = (
    Column("Rank"),
    Column("Node"),
    Column("Pid"),
    Column("State"),
    Column("Step"),
    Column("Steps/s"),
    Column("CPU"),
    Column("Memory"),
    Column("Moved"),
    Column("Remark"),
)
_STATES = {
    RankState.RUNNING: "",
    RankState.SUCCEEDED: "green",
    RankState.FAILED: "bold red",
    RankState.STOPPED: "yellow",
}
_UNKNOWN = "-"
_SPARE = ("Pid", "Memory", "CPU")
_LONGEST = 24
"""Characters; the rest of a remark can be cut."""
NOTHING = "nothing is known about its workers yet"
NEVER = "nothing is known about its workers: it has left no samples"


def facts_of(picture: Picture) -> list[tuple[str, Cell]]:
    """What stands above the ranks; those facts that are known."""
    story = picture.story
    facts = [
        ("Run", Cell(f"{story.about.run_id}  {words.one_line(story.about.name)}")),
        ("State", _state(picture)),
        ("Attempt", Cell(_attempt(picture))),
        ("Speed", Cell(_speed(picture))),
        ("Goodput", Cell(_goodput(picture))),
        ("Failed", Cell(_last_failure(picture), "red")),
        ("Silent", Cell(_silent(picture), "bold yellow")),
    ]
    return [(name, cell) for name, cell in facts if cell.text]


def rank_cells(each: ShownRank, now: float) -> list[Cell]:
    """One row."""
    rank = each.rank
    is_running = rank.state is RankState.RUNNING
    state = rank.phase.value if is_running and rank.phase.value != "unknown" else rank.state.value
    speed = rank.steps_per_second if is_running else None
    return [
        Cell(str(rank.global_rank)),
        Cell(words.one_line(each.host)),
        Cell(str(rank.pid)),
        Cell(state, _STATES[rank.state]),
        Cell(f"{rank.steps:,}" if rank.steps else _UNKNOWN),
        Cell(_UNKNOWN if speed is None else _number(speed)),
        Cell(_UNKNOWN if rank.cpu_percent is None else f"{rank.cpu_percent:.0f}%"),
        Cell(_UNKNOWN if rank.memory_bytes is None else words.memory(rank.memory_bytes)),
        Cell(_UNKNOWN if rank.last_moved is None else words.age(rank.last_moved, now)),
        Cell(each.remark, "yellow"),
    ]


def fitting(
    rows: Sequence[Sequence[Cell]], width: int | None
) -> tuple[list[Column], list[list[Cell]]]:
    """The columns for a screen of that width; None for all that say something.

    Remarks in which there is none give their room to the others, and where that is not enough,
    what is known elsewhere goes before the numbers are cut.
    """
    shown = list(range(len(COLUMNS)))
    if not any(row[-1].text for row in rows):
        shown.pop()
    widths = [
        min(_LONGEST, max([len(column.heading), *(len(row[number].text) for row in rows)])) + 2
        for number, column in enumerate(COLUMNS)
    ]
    for number in (n for name in _SPARE for n, c in enumerate(COLUMNS) if c.heading == name):
        if width is not None and sum(widths[each] for each in shown) - 2 > width:
            shown.remove(number)
    return [COLUMNS[n] for n in shown], [[row[n] for n in shown] for row in rows]


def _state(picture: Picture) -> Cell:
    about = picture.story.about
    code = "" if about.exit_code is None else f", exit {about.exit_code}"
    took = words.duration(picture.story.costs.wall)
    told = f": {words.one_line(picture.story.reason)}" if picture.story.reason else ""
    how_long = f"took {took}" if picture.is_over else f"for {took}"
    if about.state is RunState.LOST:
        how_long += " up to its last event"
    over = "; the run is over" if picture.is_over else ""
    text = f"{about.state.value}{code}{told}, {how_long}{over}"
    return Cell(text, STYLES[about.state])


def _attempt(picture: Picture) -> str:
    if picture.attempt is None:
        return ""
    ranks = words.counted(picture.world_size, "rank")
    nodes = words.counted(len(picture.nodes), "node")
    parts = [f"{picture.attempt}, {ranks} on {nodes}"]
    if picture.missing:
        parts.append(f"{picture.missing} of them not heard of")
    parts.append(f"{words.counted(picture.restart_count, 'restart')} charged")
    if picture.generation:
        parts.append(words.counted(picture.generation, "fresh start"))
    return ", ".join(parts)


def _speed(picture: Picture) -> str:
    if not picture.steps:
        return ""
    step = f"step {picture.steps:,}"
    if picture.steps_per_second is None or picture.is_over:
        return step
    return f"{step}, {words.rate(picture.steps_per_second)}"


def _goodput(picture: Picture) -> str:
    goodput = picture.story.costs.goodput
    if goodput is None:
        return ""
    lost = lost_in_words(picture.story)
    so_far = "" if picture.is_over else " so far"
    return f"{goodput:.0%}{so_far}" + (f"; lost {lost}" if lost else "")


def _last_failure(picture: Picture) -> str:
    failure = picture.last_failure()
    if failure is None:
        return ""
    at, what = failure
    return f"{words.age(at, picture.now)} ago: {words.one_line(what)}"


def _silent(picture: Picture) -> str:
    silent = [node for node in picture.nodes if node.is_stale]
    if not silent:
        return ""
    since = min(node.time for node in silent)
    names = ", ".join(words.one_line(node.host) for node in silent[:3])
    more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
    return f"nothing heard of {names}{more} for {words.duration(picture.now - since)}"


def _number(speed: float) -> str:
    return f"{speed:.1f}" if speed >= 0.95 else f"{speed:.3f}"
