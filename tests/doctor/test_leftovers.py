"""What past runs have left is found, and what belongs to a live one is not."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.doctor.finding import Level
from dlrover_cli.doctor.leftovers import check_leftovers
from dlrover_cli.doctor.machine import Machine
from tests.cli.runs import Runs, dead_process
from tests.doctor.machines import machine


@pytest.mark.parametrize("state, is_left", [(RunState.FAILED, True), (RunState.RUNNING, False)])
def test_a_process_of_a_run_that_is_over_is_found(
    tmp_path: Path, state: RunState, is_left: bool
) -> None:
    run_id = Runs(tmp_path / "dlrover").add("train", state).run_id
    environ = {"XDG_STATE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    facts = {"settings": machine(tmp_path).settings, "environ": environ}
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "DLROVER_RUN_ID": run_id}) as left:
        try:
            found = list(check_leftovers(Machine(**facts)))  # type: ignore[arg-type]
        finally:
            left.kill()
    about_it = [each for each in found if f"{left.pid} sleep 1000" in each.seen]
    assert [each.fix for each in about_it] == ([f"dlrover-job stop {run_id}"] if is_left else [])


def test_shared_memory_of_a_dead_launcher_is_found_and_of_a_live_one_not(tmp_path: Path) -> None:
    memory = tmp_path / "dev/shm"
    for name in ("dead", "live"):
        (memory / f"dlrover-beats-{os.getuid()}-{name}").mkdir(parents=True)
    held = os.open(memory / f"dlrover-beats-{os.getuid()}-live", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        [found] = check_leftovers(machine(tmp_path, environ={"XDG_STATE_HOME": f"{tmp_path}/no"}))
    finally:
        os.close(held)
    assert found.level is Level.WARNING
    assert "-dead" in found.seen
    assert "-live" not in found.seen


def test_nothing_is_made_where_nothing_ran(tmp_path: Path) -> None:
    [found] = check_leftovers(machine(tmp_path, environ={"XDG_STATE_HOME": f"{tmp_path}/no"}))
    assert found.level is Level.OK
    assert not (tmp_path / "no").exists()


def test_many_old_runs_are_told(tmp_path: Path) -> None:
    Runs(tmp_path / "dlrover").add("train", RunState.FAILED, owner=dead_process())
    environ = {"XDG_STATE_HOME": str(tmp_path), "DLROVER_STATE_LIMIT": "1B"}
    found = list(check_leftovers(machine(tmp_path, environ=environ)))
    assert [each.level for each in found] == [Level.WARNING]
    assert "cleanup --older-than" in found[0].fix
