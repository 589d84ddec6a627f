"""What to say to a person who means a run that cannot be found."""

from collections.abc import Sequence

from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.ledger_rows import RunRow


def ambiguous(text: str, begun: Sequence[RunRow], *, shown: int) -> UsageError:
    """``text`` is the beginning of several run ids."""
    names = [f"{row.run_id} ({row.name})" for row in begun[:shown]]
    more = ", …" if len(begun) > shown else ""
    return UsageError(
        f"{text!r} is the beginning of several runs: {', '.join(names)}{more}",
        hint="give more of the run id",
    )


def not_found(text: str, recent: Sequence[RunRow]) -> UsageError:
    """Nothing is called so, but perhaps nearly so."""
    from difflib import get_close_matches

    names = get_close_matches(text, dict.fromkeys(row.name for row in recent), n=3)
    # Ids of one day are much alike, and most people type only how one begins.
    begun = {row.run_id[: len(text)]: row.run_id for row in reversed(recent)}
    ids = get_close_matches(text, begun, n=3, cutoff=_ALIKE)
    near = [*names, *(begun[each] for each in ids)]
    hint = f"did you mean {' or '.join(near)}?" if near else "see `dlrover-job list`"
    return UsageError(f"there is no run or job {text!r}", hint=hint)


_ALIKE = 0.9
"""As much as two ids that differ by a typing error; those of one second rarely are."""
