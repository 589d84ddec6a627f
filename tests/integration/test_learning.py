"""What the first workers loaded by their first step, later ones find loaded (`--preload auto`)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import Running
from tests.harness.processes import descendants_and_orphans
from tests.harness.scripts import Scripts

# A module of the standard library that nothing loads by accident, one of the user's own, and one
# that is imported after the first step.
TRAINING = """
import torch
sys.path.insert(0, DIRECTORY)
leave("start", loaded="xml.dom.minidom" in sys.modules, own="my_model" in sys.modules,
      late="xml.sax.saxutils" in sys.modules, parent=os.getppid())
import xml.dom.minidom, my_model
weight = torch.nn.Parameter(torch.ones(1))
weight.grad = torch.ones(1)
torch.optim.SGD([weight], lr=0.1).step()
import xml.sax.saxutils
leave("step")
while attempt == 0 and not os.path.exists(os.path.join(DIRECTORY, "crash")):
    time.sleep(0.002)
sys.exit(3 if attempt == 0 else 0)
"""


def titles(running: Running) -> list[str]:
    return [process.command for process in descendants_and_orphans(running.token)]


def test_what_the_first_workers_loaded_the_next_ones_find_loaded(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    (tmp_path / "my_model.py").touch()
    script = scripts.write("training.py", TRAINING)
    argv = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--preload=auto", script]
    running = start(argv)
    running.wait_for(lambda _: titles(running).count("dlrover-learned") == 2)
    (tmp_path / "crash").touch()
    finished = running.finish()
    assert finished.returncode == 0, finished
    first, second = (
        [fact for fact in scripts.facts("start") if fact["attempt"] == attempt]
        for attempt in (0, 1)
    )
    assert [fact["loaded"] for fact in first] == [False, False]
    assert [fact["loaded"] for fact in second] == [True, True]
    assert not any(fact["own"] or fact["late"] for fact in (*first, *second))
    assert len({fact["parent"] for fact in (*first, *second)}) == 1, "one parent reaps them all"


@pytest.mark.full
@pytest.mark.parametrize("deadly", ["import os; os.abort()", "raise SystemExit(1)"])
def test_a_module_that_does_not_stand_being_loaded_ahead_costs_nothing(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path, deadly: str
) -> None:
    # It is loaded twice: by the worker, and by the process that learns.
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "deadly.py").write_text(
        f"import sys\nif not sys.argv[-1].endswith('training.py'): {deadly}\n"
    )
    script = scripts.write("training.py", TRAINING.replace("my_model", "deadly"))
    argv = ["--standalone", "--max-restarts=1", "--preload=auto", script]
    running = start(argv, env={"PYTHONPATH": str(package)})
    running.wait_for(lambda _: scripts.facts("step") and "dlrover-standby" in titles(running))
    (tmp_path / "crash").touch()
    finished = running.finish()
    assert finished.returncode == 0, finished
    assert len(scripts.facts("step")) == 2
