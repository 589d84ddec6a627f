"""A small training that goes on from its checkpoint, and fails as you tell it to."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
parser.add_argument("--fail", choices=["never", "once", "always"], default="never")
options = parser.parse_args()

dist.init_process_group("gloo")
rank, first = dist.get_rank(), 0
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
if options.checkpoint.exists():
    saved = torch.load(options.checkpoint)
    model.load_state_dict(saved["model"])
    first = saved["step"]
    if rank == 0:
        print(f"going on from step {first}", flush=True)

parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(first, options.steps):
    features = torch.randn(32, 8)
    loss = (parallel(features) - features.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 9:
        print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
        torch.save({"model": model.state_dict(), "step": step + 1}, options.checkpoint)
    if rank == 1 and step == 15:
        if options.fail == "once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise ConnectionError("the data server has hung up")
        if options.fail == "always":
            raise ValueError("shard 3 is not a tensor file")
dist.destroy_process_group()
