"""The end of a training over gloo, where torch by itself may wait for ever, or abort."""

from collections.abc import Callable

import pytest

from tests.harness.launcher import Finished
from tests.harness.scripts import Scripts

# The model goes after its group and right after a collective; under torchrun the first few rounds
# suffice for a deadlock.
ROUNDS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(number):
    store = dist.FileStore(os.path.join(DIRECTORY, f"store.{number}"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


for number in range(40):
    train(number)
leave("end")
"""


def test_a_model_that_outlives_its_process_group_does_not_hold_up_the_end(
    launch: Callable[..., Finished], scripts: Scripts
) -> None:
    script = scripts.write("rounds.py", ROUNDS)
    finished = launch(["--standalone", "--nproc-per-node=2", script])
    assert finished.returncode == 0, finished
    assert len(scripts.facts("end")) == 2


# Under torchrun about every second run of this ends with SIGABRT.
COLLECTIVES = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for group in [dist.new_group() for _ in range(8)]:
    dist.all_reduce(torch.ones(8), group=group)
"""

# Rank 1 never takes part in it.
PENDING = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(8))
if rank == 0:
    dist.all_reduce(torch.ones(8), async_op=True)
leave("end")
"""


@pytest.mark.parametrize("way", ["warm", pytest.param("fresh", marks=pytest.mark.full)])
def test_a_training_may_end_right_after_a_collective(
    launch: Callable[..., Finished], scripts: Scripts, way: str
) -> None:
    script = scripts.write("collectives.py", COLLECTIVES)
    options = ["--standalone", "--nproc-per-node=2", "--preload=none", f"--worker_start={way}"]
    for _ in range(4 if way == "warm" else 2):
        finished = launch([*options, script])
        assert finished.returncode == 0, finished


def test_a_collective_that_nobody_ends_does_not_hold_up_the_end(
    launch: Callable[..., Finished], scripts: Scripts
) -> None:
    script = scripts.write("pending.py", PENDING)
    finished = launch(["--standalone", "--nproc-per-node=2", "--preload=none", script])
    assert len(scripts.facts("end")) == 2, finished
