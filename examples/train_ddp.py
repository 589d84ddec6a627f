r"""Train a small model with DistributedDataParallel, and go on from the checkpoint after a restart.

    dlrover-run --standalone --nproc-per-node=2 examples/train_ddp.py --epochs 2

See it recover: rank 1 raises in the second epoch of the first attempt, the launcher restarts the
workers, and they resume from the checkpoint of the first epoch.

    dlrover-run --standalone --nproc-per-node=2 --max-restarts=1 \
        examples/train_ddp.py --epochs 3 --checkpoint /tmp/ddp.pt --crash-at-step 12 --crash-rank 1

The script knows nothing of its launcher: torchrun runs it just as well.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES = 1024
FEATURES = 16


@record
def main() -> None:
    options = parse_options()
    device = init_process_group()
    torch.manual_seed(0)

    checkpoint = load_checkpoint(options.checkpoint)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    first_epoch = 0
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first_epoch = checkpoint["epochs"]
        report(f"resumed after epoch {first_epoch}")

    ddp_model = DistributedDataParallel(model, [device.index] if device.type == "cuda" else None)
    data = synthetic_data()
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=options.batch_size, sampler=sampler)
    step = first_epoch * len(loader)
    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for features, targets in loader:
            crash_if_asked(options, step)
            loss = nn.functional.mse_loss(ddp_model(features.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            step += 1
        dist.all_reduce(total)
        mean = total.item() / len(loader) / dist.get_world_size()
        report(f"epoch {epoch + 1}/{options.epochs}: loss {mean:.4f}, step {step}")
        save_checkpoint(options.checkpoint, model, optimizer, epochs=epoch + 1)

    del ddp_model  # while the group lives: it waits for the group's thread, holding Python's lock
    dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="per worker")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument(
        "--checkpoint", type=Path, help="save here after each epoch, resume from here"
    )
    parser.add_argument("--crash-at-step", type=int, help="fail at this step of the first attempt")
    parser.add_argument("--crash-rank", type=int, default=0, help="the rank that fails")
    return parser.parse_args()


def init_process_group() -> torch.device:
    """Join the other workers; NCCL with one GPU per worker where there are GPUs, else gloo."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def synthetic_data() -> TensorDataset:
    """A noisy linear function; every rank makes the same data and the sampler deals it out."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(SAMPLES, FEATURES, generator=generator)
    weights = torch.randn(FEATURES, 1, generator=generator)
    noise = 0.1 * torch.randn(SAMPLES, 1, generator=generator)
    return TensorDataset(features, features @ weights + noise)


def load_checkpoint(path: Path | None) -> dict[str, Any] | None:
    """Rank 0 reads and tells the others: they need no shared file system and cannot disagree."""
    box: list[dict[str, Any] | None] = [None]
    if dist.get_rank() == 0 and path is not None and path.exists():
        box[0] = torch.load(path, map_location="cpu", weights_only=True)
    dist.broadcast_object_list(box, src=0)
    return box[0]


def save_checkpoint(
    path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, *, epochs: int
) -> None:
    """Rank 0 writes beside the old file and then takes its place: a crash leaves a whole one."""
    if path is None or dist.get_rank() != 0:
        return
    new = path.with_name(path.name + ".new")
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs}, new
    )
    new.replace(path)


def crash_if_asked(options: argparse.Namespace, step: int) -> None:
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if first_attempt and step == options.crash_at_step and dist.get_rank() == options.crash_rank:
        raise RuntimeError(f"rank {options.crash_rank} was asked to crash at step {step}")


def report(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
