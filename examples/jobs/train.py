"""Find the line through the points of prepare.py, with DistributedDataParallel.

dlrover-run --standalone --nproc-per-node=2 train.py --data data --epochs 3
"""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS_PER_EPOCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the directory of prepare.py")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    points = torch.tensor(json.loads((options.data / "points.json").read_text()))
    mine = points[dist.get_rank() :: dist.get_world_size()]
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(options.epochs):
        for _ in range(STEPS_PER_EPOCH):
            loss = nn.functional.mse_loss(model(mine[:, :1]), mine[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}/{options.epochs}: loss {loss.item():.4f}", flush=True)

    if dist.get_rank() == 0:
        line = model.module
        print(f"y = {line.weight.item():.1f} x {line.bias.item():+.1f}", flush=True)
    del model  # while the group lives: it waits for the group's thread
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
