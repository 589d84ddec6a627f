"""What a node is checked with: a matmul on the device and all-reduces, run as a worker would be.

Started as ``python -u -m dlrover_cli.preflight.probe TASK``, one process per worker, with the
environment that a worker has. What it measures is in the file that the task names once it is done.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

MIB = 1 << 20
_FLOAT_BYTES = 4
_EXACT = 256
"""Rows of the matmul whose result is checked; small enough to be exact in every way to add up."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much work a check is."""

    matmul: int
    """Rows and columns; 0 for none."""
    sizes: tuple[int, ...]
    """Bytes of the all-reduces."""
    repeats: int
    """Of each all-reduce: all processes have to make the same number."""
    seconds: float
    """How long matmuls are repeated."""


_LOADS = {
    (1, "cpu"): Load(256, (4 * MIB,), 20, 0.1),
    (2, "cpu"): Load(512, (16 * MIB,), 40, 0.5),
    (1, "gpu"): Load(8192, (64 * MIB,), 20, 0.2),
    (2, "gpu"): Load(16384, (256 * MIB,), 40, 1.0),
}
_BANDWIDTH = {
    "cpu": Load(0, (MIB, 16 * MIB), 10, 0.0),
    "gpu": Load(0, (16 * MIB, 256 * MIB), 20, 0.0),
}


def load_of(kind: str, level: int, device: str) -> Load:
    """What a stage of this kind does on this device; all but the bandwidth do the same."""
    place = "cpu" if device == "cpu" else "gpu"
    if kind == "bandwidth":
        return _BANDWIDTH[place]
    return _LOADS[2 if level > 1 else 1, place]


@dataclass(frozen=True, slots=True)
class Task:
    """What one process of a check does."""

    kind: str
    level: int
    rank: int
    world_size: int
    local_world_size: int
    address: str
    port: int
    prefix: str
    """Of the group's keys in the store at that address."""
    seconds: float
    result: str
    """The file for the result."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: str) -> Self:
        return cls(**json.loads(Path(path).read_text()))


def main(path: str) -> NoReturn:
    """Do the task, write the result, and be gone: ending a process group may take its time."""
    task = Task.read(path)
    result, status = {}, 0
    try:
        result = perform(task)
    # The boundary to torch, drivers and the network: whatever they raise is the result.
    except Exception as error:  # noqa: BLE001
        result, status = {"trouble": _in_a_line(error)}, 1
    draft = Path(f"{task.result}.part")
    draft.write_text(json.dumps(result))
    draft.rename(task.result)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def perform(task: Task) -> dict[str, Any]:
    """Seconds of a matmul and of all-reduces by size.

    Each is the shortest of several: what else the machine does makes some longer and none shorter.
    """
    device = _device()
    load = load_of(task.kind, task.level, device.type)
    result: dict[str, Any] = {"device": str(device)}
    if load.matmul:
        _check_arithmetic(device)
        result["matmul"] = _time_matmul(device, load)
    result["sizes"] = _time_all_reduces(task, device, load)
    return result


def _device() -> Any:
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        # Several threads wait for each other, and on a busy machine that is all one would measure.
        torch.set_num_threads(1)
        return torch.device("cpu")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(accelerator.type, index)


def _check_arithmetic(device: Any) -> None:
    """A device that computes nonsense is worse than a slow one. Small whole numbers are exact."""
    import torch

    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randint(-2, 3, (_EXACT, _EXACT), generator=generator).float() for _ in range(2)
    )
    expected = left.long() @ right.long()
    if not torch.equal((left.to(device) @ right.to(device)).cpu().long(), expected):
        raise ArithmeticError(f"a matmul on {device} has a wrong result")


def _time_matmul(device: Any, load: Load) -> float:
    import torch

    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    matrix = torch.ones(load.matmul, load.matmul, dtype=dtype, device=device)
    with torch.no_grad():
        work = partial(torch.matmul, matrix, matrix)
        deadline = time.perf_counter() + load.seconds
        times = [_seconds(work, device) for _ in range(3)]  # the first ones warm up
        while time.perf_counter() < deadline:
            times.append(_seconds(work, device))
    return min(times)


def _time_all_reduces(task: Task, device: Any, load: Load) -> list[tuple[int, float]]:
    import torch
    import torch.distributed as dist

    shares_devices = device.type != "cpu" and _device_count() < task.local_world_size
    if shares_devices:  # which NCCL refuses, and a training would too if it tried
        device = torch.device("cpu")
    patience = timedelta(seconds=task.seconds)
    store = dist.TCPStore(task.address, task.port, timeout=patience)
    group_store = dist.PrefixStore(task.prefix, store)
    dist.init_process_group(
        dist.get_default_backend_for_device(device.type),
        store=group_store,
        rank=task.rank,
        world_size=task.world_size,
        timeout=patience,
    )
    times = []
    for size in load.sizes:
        tensor = torch.ones(size // _FLOAT_BYTES, device=device)
        dist.all_reduce(tensor)
        if not bool((tensor == task.world_size).all()):
            raise ArithmeticError("an all-reduce has a wrong result")
        work = partial(dist.all_reduce, tensor)
        times.append((size, min(_seconds(work, device) for _ in range(load.repeats))))
    _end_together(task, group_store)
    return times


def _seconds(work: Callable[[], Any], device: Any) -> float:
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize()
    started = time.perf_counter()
    work()
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter() - started


def _end_together(task: Task, store: Any) -> None:
    """Nobody closes its connections while another one still reads from them."""
    if store.add("ended", 1) == task.world_size:
        store.set("all_ended", "1")
    store.wait(["all_ended"], timedelta(seconds=task.seconds))


def _device_count() -> int:
    import torch

    return int(torch.accelerator.device_count())


def _in_a_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1])
