"""Before a process group or the interpreter goes, gloo's threads come to rest.

A thread of gloo that has done a collective drops the tensors of it, and needs the interpreter lock
for that. Both of these happen under torchrun as well:

- The interpreter has begun to end by then: C++ aborts the process, and a training whose last line
  is a collective succeeds and then ends with SIGABRT (``terminate called without an active
  exception``).
- Whoever drops the group, a DDP model at the end of main() perhaps, holds the lock while it waits
  for the thread: for ever.

So before either, whoever is still on the way gets a moment.
"""

import os
import sys
from time import monotonic, sleep

_NAME = "pt_gloo_runloop"
_LOOK_SECONDS = 0.001
_LONGEST_SECONDS = 0.5
_TELLING = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


def await_rest() -> None:
    """Let the interpreter go until no thread of gloo has moved between two looks.

    One that waits for its peers in a collective rests, too: nobody knows when that will end.
    """
    if "torch.distributed" not in sys.modules:
        return
    deadline = monotonic() + _LONGEST_SECONDS
    before = None
    now = _looks()
    while now and (now != before or _is_moving(now)) and monotonic() < deadline:
        before = now
        sleep(_LOOK_SECONDS)
        now = _looks()


def _looks() -> "dict[str, list[str]]":
    """What the kernel says of each of these threads: its state, and how often it was switched."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/status", encoding="latin-1") as file:
                lines = file.readlines()
        except OSError:  # it has just ended
            continue
        if lines[0].split()[1] == _NAME:
            found[thread] = [line for line in lines if line.startswith(_TELLING)]
    return found


def _is_moving(looks: "dict[str, list[str]]") -> bool:
    return any(state.split()[1] != "S" for state, *_ in looks.values())
