"""Counts, a number a second, and says where."""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--to", type=int, default=3)
parser.add_argument("--seconds", type=float, default=1)
parser.add_argument("--exit-code", type=int, default=0)
options = parser.parse_args()

print(f"counting in {os.path.basename(os.getcwd())}", flush=True)
for number in range(options.to):
    time.sleep(options.seconds)
    print(number + 1, flush=True)
raise SystemExit(options.exit_code)
