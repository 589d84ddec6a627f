"""torch's own hooks beat the page: which ways to train are seen, and what a script notices."""

import json
from pathlib import Path

import pytest

from dlrover_cli.contracts import WorkerPhase
from tests.workers.bootstrapped import Workers

# Runs every scenario in one process; each prints what it added to the page.
SCENARIOS = """
import json, os, struct, sys, time
import torch
from torch.optim.lr_scheduler import StepLR

def page():
    with open(os.environ["DLROVER_BEAT_FILE"], "rb") as file:
        numbers = struct.unpack("=10Q", file.read(80))
    return {"beats": numbers[4], "steps": numbers[5]}

def backward(model):
    model(torch.ones(2, 4)).sum().backward()

def linear():
    return torch.nn.Linear(4, 4)

def loop(step, model, count=5):
    for _ in range(count):
        backward(model)
        step()

def sgd():
    model = linear()
    loop(torch.optim.SGD(model.parameters(), lr=0.1).step, model)

def adam_foreach():
    model = linear()
    loop(torch.optim.Adam(model.parameters(), foreach=True).step, model)

def adam_fused():
    model = linear()
    loop(torch.optim.AdamW(model.parameters(), fused=True).step, model)

def lbfgs():
    model = linear()
    optimizer = torch.optim.LBFGS(model.parameters())
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss
    loop(lambda: optimizer.step(closure), model)

def grad_scaler():
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    def step():
        scaler.step(optimizer)
        scaler.update()
    for _ in range(5):
        scaler.scale(model(torch.ones(2, 4)).sum()).backward()
        step()

def scheduler():
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = StepLR(optimizer, 1)
    def step():
        optimizer.step()
        schedule.step()
    loop(step, model)

def two_optimizers():
    model = linear()
    first = torch.optim.SGD([model.weight], lr=0.1)
    second = torch.optim.Adam([model.bias])
    def step():
        first.step()
        second.step()
    loop(step, model)

class Careful(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)

def subclass():
    model = linear()
    torch.optim.SGD(model.parameters(), lr=0.1)  # now both levels of step are wrapped
    loop(Careful(model.parameters(), lr=0.1).step, model)

class Wrapping(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
        self.inner = torch.optim.SGD(self.param_groups[0]["params"], lr=0.1)
    def step(self, closure=None):
        return self.inner.step(closure)

def wrapped():
    model = linear()
    loop(Wrapping(model.parameters()).step, model)

def in_backward():
    model = torch.nn.Sequential(linear(), linear())
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(5):
        backward(model)

class Failing(torch.optim.SGD):
    fails = False
    def step(self, closure=None):
        if self.fails:
            raise RuntimeError("out of memory")
        return super().step(closure)

def failed_steps():
    # A training loop that catches an error and goes on.
    model = linear()
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Failing(model.parameters(), lr=0.1)
    for attempt in range(8):
        backward(model)
        optimizer.fails = attempt < 3
        try:
            optimizer.step()
        except RuntimeError:
            pass

def forked_child():
    if os.fork() == 0:
        sgd()
        os._exit(0)
    os.wait()

def by_hand():
    model = linear()
    backward(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad

results = {}
for scenario in (sgd, adam_foreach, adam_fused, lbfgs, grad_scaler, scheduler, two_optimizers,
                 subclass, wrapped, in_backward, failed_steps, forked_child, by_hand):
    before = page()
    scenario()
    after = page()
    results[scenario.__name__] = [after[name] - before[name] for name in ("beats", "steps")]
results["meta_path"] = [type(finder).__name__ for finder in sys.meta_path]
results["loader"] = [name for name in vars(sys.modules["torch.optim.optimizer"].__loader__)]
print(json.dumps(results))
"""


@pytest.mark.full
def test_every_way_to_train_is_seen(tmp_path: Path) -> None:
    ended = Workers(tmp_path).run(SCENARIOS)
    assert ended.status == 0, ended.stderr
    assert ended.problems == ""
    counted = json.loads(ended.stdout)

    finders, loader = counted.pop("meta_path"), counted.pop("loader")
    assert "ImportWatch" not in finders
    assert "exec_module" not in loader

    assert {scenario: beats for scenario, (beats, _) in counted.items()} == {
        "sgd": 5,
        "adam_foreach": 5,
        "adam_fused": 5,
        "lbfgs": 5,
        "grad_scaler": 5,
        "scheduler": 5,
        "two_optimizers": 10,
        "subclass": 5,
        "wrapped": 5,
        "in_backward": 20,
        "failed_steps": 5,
        "forked_child": 0,
        "by_hand": 0,
    }
    # One less than there were: an optimizer that is new does not open a round by itself.
    for scenario, (beats, steps) in counted.items():
        assert steps in ((4, 5) if beats else (0,)), scenario

    beat = ended.beat
    assert beat.phase is WorkerPhase.TRAINING
    assert 0 < beat.first_step_ns < beat.step_ns == beat.last_ns
    assert beat.usual_step is not None
    assert 0 < beat.usual_step < 1


DISTRIBUTED = """
import os, sys
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

def phase():
    with open(os.environ["DLROVER_BEAT_FILE"], "rb") as file:
        return int.from_bytes(file.read(24)[16:], sys.byteorder)

@record
def main():
    before = phase()
    try:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=1, world_size=2,
                                timeout=__import__("datetime").timedelta(milliseconds=100))
    except Exception as error:
        import traceback
        traced = traceback.extract_tb(error.__traceback__)
        print([frame.filename for frame in traced if "dlrover_cli" in frame.filename])
    failed = phase()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    print(before, failed, phase(), "ImportWatch" in map(lambda f: type(f).__name__, sys.meta_path))
    import torch.optim
    raise ValueError("in training")
main()
"""


def test_training_begins_with_the_process_group(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    ended = Workers(tmp_path).run(DISTRIBUTED, env={"TORCHELASTIC_ERROR_FILE": str(error_file)})
    assert ended.stdout.splitlines() == ["[]", "1 1 2 False"], ended.stderr
    record = ended.record("exception")
    assert (record["type"], record["message"]) == ("ValueError", "in training")
    assert record["phase"] == "training"
    assert ended.beat.phase is WorkerPhase.TRAINING
    assert "[rank0]: ValueError: in training" in ended.stderr
    assert json.loads(error_file.read_text())["message"]["message"] == "ValueError: in training"


COMPILED = """
import json, os, struct, sys
import torch
import torch._dynamo.utils

class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-0.1)

def beats():
    with open(os.environ["DLROVER_BEAT_FILE"], "rb") as file:
        return struct.unpack("=10Q", file.read(80))[4]

def train(make, **options):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch.nn.Linear(4, 4)
    optimizer = make(model.parameters())
    step = torch.compile(lambda: optimizer.step(), backend="eager", **options)
    before = beats()
    for _ in range(5):
        model(torch.ones(2, 4)).sum().backward()
        step()
    stats = torch._dynamo.utils.counters["stats"]
    return {"beats": beats() - before, "graphs": stats["unique_graphs"],
            "calls": stats["calls_captured"]}

def without_hooks(*args, **options):
    import torch.optim.optimizer as module
    kept = [(hooks, dict(hooks)) for hooks in
            (module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks)]
    for hooks, _ in kept:
        hooks.clear()
    try:
        return train(*args, **options)
    finally:
        for hooks, content in kept:
            hooks.update(content)

print(json.dumps({
    "torch": [train(torch.optim.Adam), without_hooks(torch.optim.Adam)],
    "own": [train(Own), without_hooks(Own)],
    "whole": [train(Own, fullgraph=True), without_hooks(Own, fullgraph=True)],
}))
"""


@pytest.mark.full
def test_compiled_steps_keep_their_graphs_and_torchs_own_beat(tmp_path: Path) -> None:
    ended = Workers(tmp_path).run(COMPILED)
    assert ended.status == 0, ended.stderr
    results = json.loads(ended.stdout)
    for with_hooks, without in results.values():
        assert with_hooks["graphs"] == without["graphs"] > 0
        assert with_hooks["calls"] == without["calls"] > 0
    # A beat from inside the graph of a step that is compiled whole would tear it apart.
    assert {name: result[0]["beats"] for name, result in results.items()} == {
        "torch": 5,
        "own": 0,
        "whole": 0,
    }


COST = """
import json, time
import torch
import torch.optim.optimizer as module

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before, = module._global_optimizer_pre_hooks.values()
after, = module._global_optimizer_post_hooks.values()

def seconds():
    start = time.thread_time()  # not what others on this machine take
    for _ in range(20_000):
        before(optimizer, (), {})
        after(optimizer, (), {})
    return time.thread_time() - start

print(min(seconds() for _ in range(15)) / 20_000 * 1e6)
"""


@pytest.mark.full
def test_a_step_costs_less_than_two_point_six_microseconds(tmp_path: Path) -> None:
    ended = Workers(tmp_path).run(COST)
    assert float(ended.stdout) < 2.6, ended.stderr
