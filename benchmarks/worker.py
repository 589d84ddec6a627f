"""The worker of the races: does one piece of work and writes down when it was done.

Stamps are files `<event>.<attempt>.<rank>` in $RACE_DIRECTORY that hold CLOCK_MONOTONIC, which all
processes of a machine share, and the process id. Nothing but the standard library is imported
before the first stamp.
"""

import os
import sys
import time

RANK = int(os.environ["RANK"])
DIRECTORY = os.environ["RACE_DIRECTORY"]
CRASHING_RANK = 1
# Launchers count restarts differently, on several nodes above all; what started after the crash is
# the next attempt for each of them.
ATTEMPT = int(os.path.exists(f"{DIRECTORY}/crash.0.{CRASHING_RANK}"))
SECONDS_BEFORE_CRASH = 1.0
# The processors are not busy with the work itself, as where accelerators do it.
SECONDS_PER_STEP = 0.01


def stamp(event: str) -> None:
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    path = f"{DIRECTORY}/{event}.{ATTEMPT}.{RANK}"
    # No pathlib here: its import would be part of what is measured.
    with open(path + ".new", "w") as file:
        file.write(f"{now!r} {os.getpid()}")
    os.rename(path + ".new", path)


def main(work: str, then: str) -> None:
    stamp("line")
    if work == "line":
        return

    import torch.distributed as dist

    dist.init_process_group("gloo")
    job = Communication() if work == "all_reduce" else Training()
    job.step()
    stamp("work")
    if then == "idle":
        stamp("idle")
        time.sleep(3600)
    if then == "crash" and ATTEMPT == 0:
        train_until_the_crash(job)
    if then == "crash_beside_idle_ranks" and ATTEMPT == 0:
        crash_beside_idle_ranks()
    dist.barrier()
    stamp("last")
    dist.destroy_process_group()


class Communication:
    def step(self) -> None:
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))


class Training:
    def __init__(self) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        self.model = DistributedDataParallel(torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self) -> None:
        import torch

        self.optimizer.zero_grad()
        self.model(torch.ones(4, 16)).sum().backward()
        self.optimizer.step()


def train_until_the_crash(job: Communication | Training) -> None:
    """One rank dies in the middle; the others go on until they notice or are ended."""
    end = time.monotonic() + SECONDS_BEFORE_CRASH
    while True:
        job.step()
        time.sleep(SECONDS_PER_STEP)
        if RANK == CRASHING_RANK and time.monotonic() >= end:
            crash()


def crash_beside_idle_ranks() -> None:
    """The others are in no collective, so that nothing but their launcher can end them."""
    if RANK != CRASHING_RANK:
        stamp("idle")
        time.sleep(3600)
    time.sleep(SECONDS_BEFORE_CRASH)
    crash()


def crash() -> None:
    stamp("crash")
    os._exit(13)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "end")
