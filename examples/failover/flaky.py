"""A worker that fails as you tell it to, on rank 0; needs nothing but Python. See --help."""

import argparse
import os
import signal
import time

parser = argparse.ArgumentParser(description=__doc__)
how = parser.add_mutually_exclusive_group()
how.add_argument("--exit-code", type=int, help="exit with this code")
how.add_argument("--error", metavar="WORDS", help="raise a RuntimeError with these words")
how.add_argument("--signal", metavar="NAME", help="die of this signal, for example SIGSEGV")
how.add_argument("--hang", action="store_true", help="go to sleep for a day")
parser.add_argument("--times", type=int, default=10**9, help="in so many attempts; default: all")
arguments = parser.parse_args()

rank = int(os.environ.get("RANK", "0"))
attempt = int(os.environ.get("DLROVER_ATTEMPT", "0"))

if rank == 0 and attempt < arguments.times:
    print(f"attempt {attempt}: failing on purpose", flush=True)
    if arguments.exit_code is not None:
        os._exit(arguments.exit_code)
    if arguments.error is not None:
        raise RuntimeError(arguments.error)
    if arguments.signal is not None:
        os.kill(os.getpid(), signal.Signals[arguments.signal])
    if arguments.hang:
        time.sleep(86_400)
print(f"attempt {attempt}: rank {rank} is done", flush=True)
