"""Memory, CPUs, limits, clock and disks."""

import os
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.doctor.cgroup import Cgroup, cgroup_of
from dlrover_cli.doctor.clock import check_clock, judge_clock
from dlrover_cli.doctor.commands import Ran
from dlrover_cli.doctor.finding import Level
from dlrover_cli.doctor.limits import check_limits
from dlrover_cli.doctor.machine import Space
from dlrover_cli.doctor.memory import check_memory, check_shared_memory
from dlrover_cli.doctor.processors import check_processors
from dlrover_cli.doctor.storage import check_state, check_temporary
from tests.doctor.machines import MIB, answers, machine, raising, write

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max core file size        {core}                    unlimited            bytes
Max processes             {nproc}                96365                processes
Max open files            {nofile}                 {hard}              files
Max locked memory         {memlock}              8388608              bytes
"""


def levels(found: Any) -> list[Level]:
    return [each.level for each in found]


@pytest.mark.parametrize(
    "free, level",
    [(64 * MIB, Level.PROBLEM), (500 * MIB, Level.WARNING), (2000 * MIB, Level.OK)],
)
def test_little_shared_memory_is_told(tmp_path: Path, free: int, level: Level) -> None:
    [found] = check_shared_memory(machine(tmp_path, space=lambda path: Space(2000 * MIB, free)))
    assert found.level is level
    assert (level is Level.OK) == (not found.fix)


def test_no_shared_memory_is_a_problem(tmp_path: Path) -> None:
    error = FileNotFoundError(2, "No such file or directory")
    [found] = check_shared_memory(machine(tmp_path, space=raising(error)))
    assert found.level is Level.PROBLEM


def test_memory_is_what_the_tightest_control_group_leaves(tmp_path: Path) -> None:
    group = "/sys/fs/cgroup"
    write(
        tmp_path,
        {
            "/proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n",
            "/proc/self/cgroup": "0::/a/b\n",
            f"{group}/a/memory.max": f"{1000 * MIB}",
            f"{group}/a/memory.current": f"{900 * MIB}",
            f"{group}/a/memory.stat": f"anon 5\ninactive_file {20 * MIB}\n",
            f"{group}/a/b/memory.max": "max",
            f"{group}/a/b/memory.events": "low 0\noom 3\noom_kill 2\n",
            f"{group}/a/b/cpu.max": "150000 100000",
        },
    )
    found = cgroup_of(machine(tmp_path))
    assert found == Cgroup(1000 * MIB, 120 * MIB, 1.5, 2)
    little, killed = check_memory(machine(tmp_path))
    assert little.level is Level.PROBLEM
    assert "126 MB are left" in little.seen
    assert "killed 2 processes" in killed.seen


def test_the_old_control_groups_are_read_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "/proc/self/cgroup": "5:memory:/job\n4:cpu,cpuacct:/job\n",
            "/sys/fs/cgroup/memory/cgroup.procs": "",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{64 * MIB}",
            "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{4 * MIB}",
            "/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000",
            "/sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroup_of(machine(tmp_path)) == Cgroup(64 * MIB, 60 * MIB, 0.5, 0)


def test_more_workers_than_cpus_are_told(tmp_path: Path) -> None:
    there = len(os.sched_getaffinity(0))
    many = check_processors(machine(tmp_path, flags={"nproc_per_node": str(there + 1)}))
    assert levels(many) == [Level.WARNING, Level.OK]
    assert levels(check_processors(machine(tmp_path))) == [Level.OK, Level.OK]


def test_a_quota_of_cpus_is_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "50000 100000"},
    )
    cpus, _ = check_processors(machine(tmp_path))
    assert "grants the time of 0.5" in cpus.seen
    assert cpus.level is Level.WARNING


@pytest.mark.parametrize(
    "threads, workers, level",
    [
        ("1", 1, Level.OK),
        ("many", 1, Level.PROBLEM),
        ("0", 1, Level.PROBLEM),
        ("1000", 2, Level.WARNING),
        ("4,2", 1, Level.OK),
    ],
)
def test_threads_of_all_workers_have_to_fit(
    tmp_path: Path, threads: str, workers: int, level: Level
) -> None:
    facts = {"environ": {"OMP_NUM_THREADS": threads}, "flags": {"nproc_per_node": str(workers)}}
    assert list(check_processors(machine(tmp_path, **facts)))[1].level is level


def limits(root: Path, **changes: str) -> list[Any]:
    usual = {"core": "0", "nproc": "96365", "nofile": "20000", "hard": "20000", "memlock": "65536"}
    write(root, {"/proc/self/limits": LIMITS.format(**{**usual, **changes})})
    return list(check_limits(machine(root)))


def test_usual_limits_are_fine(tmp_path: Path) -> None:
    assert set(levels(limits(tmp_path))) == {Level.OK}


@pytest.mark.parametrize("hard, words", [("1024", "limits.conf"), ("9999", "ulimit -n 4096")])
def test_few_files_are_told_with_who_can_change_it(tmp_path: Path, hard: str, words: str) -> None:
    files = limits(tmp_path, nofile="1024", hard=hard)[0]
    assert files.level is Level.WARNING
    assert words in files.fix


def test_locked_memory_matters_with_rdma_only(tmp_path: Path) -> None:
    assert limits(tmp_path)[2].level is Level.OK
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    assert limits(tmp_path)[2].level is Level.WARNING
    assert limits(tmp_path, memlock="unlimited")[2].level is Level.OK


def test_core_files_on_disk_are_told_and_those_of_a_service_are_not(tmp_path: Path) -> None:
    assert limits(tmp_path, core="unlimited")[3].level is Level.WARNING
    write(tmp_path, {"/proc/sys/kernel/core_pattern": "|/usr/lib/systemd/systemd-coredump %P\n"})
    assert limits(tmp_path, core="unlimited")[3].level is Level.OK


def test_a_clock_that_is_turned_or_far_behind_is_told() -> None:
    assert judge_clock(2e9, 0.001, 1e9).level is Level.OK
    assert judge_clock(2e9, -3.0, 1e9).level is Level.WARNING
    assert judge_clock(1e9, 0.0, 2e9).level is Level.PROBLEM


@pytest.mark.parametrize(
    "ran, expected",
    [
        (Ran(0, "yes\n"), [Level.OK]),
        (Ran(0, "no\n"), [Level.WARNING]),
        (Ran(1, "", "System has not been booted with systemd"), []),
        (Ran(None), []),
    ],
)
def test_whether_ntp_keeps_the_clock_is_asked_where_it_can_be(
    tmp_path: Path, ran: Ran, expected: list[Level]
) -> None:
    program = tmp_path / "bin/timedatectl"
    write(tmp_path, {"bin/timedatectl": "#!/bin/sh\n"})
    program.chmod(0o755)
    environ = {"PATH": str(program.parent)}
    found = check_clock(machine(tmp_path, run=answers(ran), environ=environ))
    assert levels(found)[1:] == expected


def test_a_state_directory_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    [found] = check_state(machine(tmp_path, environ={"XDG_STATE_HOME": f"{tmp_path}/new"}))
    assert found.level is Level.OK
    assert not (tmp_path / "new").exists()


def test_a_file_where_the_state_directory_should_be_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"state": ""})
    [found] = check_state(machine(tmp_path, environ={"XDG_STATE_HOME": f"{tmp_path}/state"}))
    assert found.level is Level.PROBLEM
    assert "Not a directory" in found.seen


@pytest.mark.parametrize("free, level", [(1, Level.PROBLEM), (100 * MIB, Level.WARNING)])
def test_a_disk_that_is_nearly_full_is_told(tmp_path: Path, free: int, level: Level) -> None:
    facts = {"space": lambda path: Space(1 << 40, free), "environ": {"TMPDIR": "/tmp"}}
    assert levels(check_temporary(machine(tmp_path, **facts))) == [level]


def test_a_folder_for_temporary_files_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    [found] = check_temporary(machine(tmp_path, environ={"TMPDIR": f"{tmp_path}/gone"}))
    assert found.level is Level.PROBLEM


def test_a_long_path_for_sockets_is_told(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 90)
    folder.mkdir()
    found = check_temporary(machine(tmp_path, environ={"TMPDIR": str(folder)}))
    assert levels(found) == [Level.WARNING, Level.OK]
