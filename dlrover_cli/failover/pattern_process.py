"""Searches texts for patterns in a process of its own, which can be ended when one takes too long.

Started by path with `python -I -S`, so it must import nothing of ours. It says `+` when it is
ready. Each question on stdin is one line of JSON, `[pattern, flags, text]`; the answer is `1` for
found or `0`, always one byte.
"""

import json
import os
import re
import signal
import sys

_LIFETIME = 30
"""Seconds. The asker ends this process much earlier; this is for when the asker was killed."""


def main() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(_LIFETIME)
    os.write(1, b"+")
    for line in sys.stdin:
        pattern, flags, text = json.loads(line)
        os.write(1, b"1" if re.search(pattern, text, flags) else b"0")


if __name__ == "__main__":
    main()
