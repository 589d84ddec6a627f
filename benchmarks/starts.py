"""Hundreds of synchronised starts of eight ranks: does any of them take a second longer?

    python -m benchmarks.starts                     200 starts with this machine's name server
    python -m benchmarks.starts --without-dns       in a namespace whose name server never answers
    python -m benchmarks.starts --starts 20

One job is restarted again and again. Each attempt is timed from its first rank's first line to its
last rank's first all_reduce, which is when everybody has met in the store. A lookup that gets no
reply would show as five seconds. Fails if a start took a second longer than the median.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import percentile, surroundings

RANKS = 8
OUTLIER_SECONDS = 1.0

WORKER = """\
import os, sys, time
import torch, torch.distributed as dist

def stamp(event):
    name = f"{sys.argv[1]}/{event}.{os.environ['DLROVER_ATTEMPT']}.{os.environ['RANK']}"
    with open(name, "w") as file:
        file.write(repr(time.monotonic()))

stamp("line")
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
stamp("work")
weight = torch.nn.Parameter(torch.ones(1))
weight.grad = torch.ones(1)
torch.optim.SGD([weight], lr=0.1).step()  # progress, after which a restart comes at once
dist.barrier()
attempts = int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
os._exit(0 if int(os.environ["TORCHELASTIC_RESTART_COUNT"]) == attempts else 3)
"""
# Names are asked for at an address that is never answered from.
WITHOUT_DNS = """\
set -e
printf 'nameserver 192.0.2.1\\n' > "$0/resolv.conf"
mount --bind "$0/resolv.conf" /etc/resolv.conf
exec "$@"
"""


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    with tempfile.TemporaryDirectory(prefix="starts-") as name:
        seconds = _seconds_of_starts(Path(name), options.starts, options.without_dns)
    median = statistics.median(seconds)
    late = [each for each in seconds if each > median + OUTLIER_SECONDS]
    names = "a name server that never answers" if options.without_dns else "this name server"
    where = ", ".join(f"{name} {value}" for name, value in surroundings().items())
    print(f"{len(seconds)} starts of {RANKS} ranks with {names}. {where}.\n")
    print("| seconds | median | p95 | max | outliers of a second |")
    print("|---|---|---|---|---|")
    shown = " | ".join(f"{each:.3f}" for each in (median, percentile(seconds, 0.95), max(seconds)))
    print(f"| first line → all ranks' all_reduce | {shown} | {len(late)} |")
    return 1 if late or len(seconds) != options.starts else 0


def _seconds_of_starts(directory: Path, starts: int, without_dns: bool) -> list[float]:
    worker = directory / "worker.py"
    worker.write_text(WORKER)
    stamps = directory / "stamps"
    stamps.mkdir()
    launcher = Path(sys.executable).with_name("dlrover-run")
    command = [
        str(launcher),
        "--standalone",
        f"--nproc-per-node={RANKS}",
        f"--max-restarts={starts - 1}",
        str(worker),
        str(stamps),
    ]
    if without_dns:
        command = ["unshare", "--mount", "sh", "-c", WITHOUT_DNS, str(directory), *command]
    env = {**os.environ, "XDG_STATE_HOME": str(directory / "state"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=env, check=True, stderr=subprocess.DEVNULL, timeout=1800)
    return [_seconds_of(stamps, attempt) for attempt in range(starts)]


def _seconds_of(stamps: Path, attempt: int) -> float:
    def read(event: str) -> list[float]:
        return [float((stamps / f"{event}.{attempt}.{rank}").read_text()) for rank in range(RANKS)]

    return max(read("work")) - min(read("line"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.starts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--without-dns", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
