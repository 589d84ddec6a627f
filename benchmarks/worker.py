"""The worker of the races: does one piece of work and writes down when it was done.

Stamps are files `<event>.<attempt>.<rank>` in $RACE_DIRECTORY that hold CLOCK_MONOTONIC, which all
processes of a machine share. Nothing but the standard library is imported before the first stamp.
"""

import os
import sys
import time

RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
DIRECTORY = os.environ["RACE_DIRECTORY"]


def stamp(event: str) -> None:
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    path = f"{DIRECTORY}/{event}.{ATTEMPT}.{RANK}"
    # No pathlib here: its import would be part of what is measured.
    with open(path + ".new", "w") as file:
        file.write(repr(now))
    os.rename(path + ".new", path)


def main(work: str, crash: bool) -> None:
    stamp("line")
    if work == "line":
        return

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if work == "all_reduce":
        dist.all_reduce(torch.ones(1))
    else:
        optimizer_step()
    stamp("work")
    dist.barrier()
    if crash and ATTEMPT == 0 and RANK == 1:
        stamp("crash")
        os._exit(13)
    if crash and ATTEMPT == 0:
        dist.barrier()  # the peer's death is noticed here, or the launcher ends us first
    stamp("last")
    dist.destroy_process_group()


def optimizer_step() -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1], crash="--crash" in sys.argv[2:])
