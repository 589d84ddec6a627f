"""Ends the job of a run whose runner is gone: `python -m dlrover_cli.admission.stop_lost`.

In a process of its own, since whoever stops a run owns it for as long as the process lives, and
others wait for the end of that.
"""

import sys
from pathlib import Path

from dlrover_cli.errors import DlroverError
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.runner import say
from dlrover_cli.jobs.stopping import stop_run


def main(state: Path, run_id: str) -> None:
    """What keeps it from ending is said; the run is LOST then, and holds its place."""
    try:
        with Ledger.open(state, say) as ledger:
            stop_run(run_id, ledger, state, on_problem=say)
    except DlroverError as error:
        say(f"run {run_id} cannot be stopped: {error.message}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
