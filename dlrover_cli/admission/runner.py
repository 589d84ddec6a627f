"""The process of a run that waits in a queue: `python -m dlrover_cli.admission.runner RUN LEADER`.

It is that of any submitted run, with a gate.
"""

import sys
from pathlib import Path

from dlrover_cli.admission.gate import QueueGate
from dlrover_cli.jobs.runner import main

if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), QueueGate)
