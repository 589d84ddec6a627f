"""The end of a training over gloo, where torch by itself may wait for its own thread for ever."""

from collections.abc import Callable

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
