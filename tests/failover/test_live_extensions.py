"""Broken extensions end to end: the job does what --failover_on_error says, and says so."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.exit_codes import ExitCode
from tests.failover.nodes import faulty_worker, nodes_of, one_node
from tests.harness.launcher import Running
from tests.harness.scripts import Scripts

pytestmark = pytest.mark.full

MODULE = """\
import ctypes, os, time
from dlrover_cli.contracts import DynamicAgentFailoverExtension


class Broken(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, info):
        {body}
"""
BROKEN = {
    "raises": ("raise ValueError('no idea')", "ValueError: no idea"),
    "hangs": ("time.sleep(600)", "did not answer"),
    "exits": ("os._exit(3)", "exit"),
    "segfaults": ("ctypes.string_at(0)", "SIGSEGV"),
}
HANG_LIMIT = 4.0


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("on_error", ["normal", "abort"])
def test_a_broken_extension_costs_its_opinion_and_nothing_else(
    how: str, on_error: str, start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    body, words = BROKEN[how]
    (tmp_path / "broken.py").write_text(MODULE.format(body=body))
    nodes = one_node(
        start,
        tmp_path,
        "--nproc-per-node=2",
        "--max-restarts=1",
        "--dynamic_failover_extension=broken::Broken",
        f"--failover_on_error={on_error}",
        *limits(how),
    )
    life = nodes.join("a", faulty_worker(scripts, "exit", victim="a"))
    nodes.finish()
    [decision] = life.decisions()
    assert decision["decided_by"] == "extension broken::Broken (failed)"
    [problem] = decision["problems"]
    assert words in problem
    [finished] = life.endings
    assert finished.stderr.count(problem) == 1
    assert "Traceback" not in finished.stderr
    if on_error == "abort":
        assert life.codes == [ExitCode.ABORTED], life
        assert decision["strategy"] == "ABORTION_FAILOVER"
        assert life.numbers == [(0, 0, 0)]
    else:
        assert life.codes == [0], life
        assert decision["strategy"] == "NORMAL_FAILOVER"
        assert life.numbers == [(0, 0, 0), (1, 1, 0)]


@pytest.mark.parametrize("on_error", ["normal", "abort"])
def test_peers_wait_for_an_extension_that_hangs_and_then_do_the_same(
    on_error: str,
    start: Callable[..., Running],
    scripts: Scripts,
    tmp_path: Path,
    outside_store: int,
) -> None:
    body, _ = BROKEN["hangs"]
    (tmp_path / "broken.py").write_text(MODULE.format(body=body))
    nodes = nodes_of(
        start,
        tmp_path,
        "--max-restarts=1",
        "--dynamic_failover_extension=broken::Broken",
        f"--failover_on_error={on_error}",
        *limits("hangs"),
        nnodes="2",
        store=outside_store,
    )
    script = faulty_worker(scripts, "exit", victim="a")
    lives = [nodes.join(name, script) for name in "ab"]
    nodes.finish()
    code, numbers = (82, [(0, 0, 0)]) if on_error == "abort" else (0, [(0, 0, 0), (1, 1, 0)])
    for life in lives:
        assert life.codes == [code], life
        assert life.numbers == numbers
        [decision] = life.decisions()
        assert decision["seconds"] >= HANG_LIMIT
        assert "did not answer" in decision["problems"][0]


def test_an_extension_that_breaks_every_time_is_asked_every_time(
    start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    body, words = BROKEN["segfaults"]
    (tmp_path / "broken.py").write_text(MODULE.format(body=body))
    nodes = one_node(
        start, tmp_path, "--max-restarts=3", "--dynamic_failover_extension=broken::Broken"
    )
    life = nodes.join("a", faulty_worker(scripts, "exit", victim="a", attempts=3))
    began = time.monotonic()
    nodes.finish()
    assert life.codes == [0], life
    assert [words in each["problems"][0] for each in life.decisions()] == [True] * 3
    assert time.monotonic() - began < 30


def limits(how: str) -> list[str]:
    # It has as long to be loaded, which on a busy machine takes seconds.
    return [f"--failover_timeout={HANG_LIMIT}"] if how == "hangs" else []
