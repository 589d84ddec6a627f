"""The kernel's out-of-memory kills, from the files in which it counts them."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_cli.agent.oom import OomKills, count_oom_kills


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestCounting:
    def test_version_2(self, proc: Path, cgroups: Path) -> None:
        write(proc / "vmstat", "pgfault 9\noom_kill 7\nnr_x 1\n")
        write(proc / "self" / "cgroup", "0::/user.slice/job.scope\n")
        write(cgroups / "user.slice/job.scope/memory.events", "low 0\noom 3\noom_kill 2\n")
        assert count_oom_kills(proc, cgroups) == OomKills(machine=7, group=2)

    def test_version_2_in_a_container_that_sees_itself_as_the_root(
        self, proc: Path, cgroups: Path
    ) -> None:
        write(proc / "self" / "cgroup", "0::/../../pod1\n")
        write(cgroups / "memory.events", "oom_kill 4\n")
        assert count_oom_kills(proc, cgroups) == OomKills(machine=None, group=4)

    def test_version_1(self, proc: Path, cgroups: Path) -> None:
        write(proc / "vmstat", "oom_kill 0\n")
        write(proc / "self" / "cgroup", "5:cpu,memory:/a/b\n4:devices:/\n1:name=systemd:/\n0::/\n")
        write(cgroups / "memory/a/b/memory.oom_control", "oom_kill_disable 0\noom_kill 5\n")
        assert count_oom_kills(proc, cgroups) == OomKills(machine=0, group=5)

    def test_version_1_in_a_container_with_the_hosts_path(self, proc: Path, cgroups: Path) -> None:
        write(proc / "self" / "cgroup", "5:memory:/docker/0123\n")
        write(cgroups / "memory/memory.oom_control", "oom_kill 1\n")
        assert count_oom_kills(proc, cgroups).group == 1

    def test_the_root_group_has_no_count_and_the_machine_has(
        self, proc: Path, cgroups: Path
    ) -> None:
        write(proc / "vmstat", "oom_kill 3\n")
        write(proc / "self" / "cgroup", "0::/\n")
        assert count_oom_kills(proc, cgroups) == OomKills(machine=3, group=None)

    @pytest.mark.parametrize("text", ["", "\n", "x", "0:", "oom_kill\n", "oom_kill many\n", "\0"])
    def test_what_cannot_be_read_is_no_count(self, proc: Path, cgroups: Path, text: str) -> None:
        write(proc / "vmstat", text)
        write(proc / "self" / "cgroup", text)
        assert count_oom_kills(proc, cgroups) == OomKills(None, None)

    def test_the_real_files_can_be_read(self) -> None:
        count_oom_kills()


class TestComparing:
    @pytest.mark.parametrize(
        "before,after,killed",
        [
            (OomKills(1, 0), OomKills(1, 0), False),
            (OomKills(1, 0), OomKills(2, 1), True),
            (OomKills(1, 0), OomKills(2, 0), False),
            (OomKills(1, None), OomKills(2, None), True),
            (OomKills(1, None), OomKills(1, None), False),
            (OomKills(1, None), OomKills(1, 5), False),
            (OomKills(None, None), OomKills(None, None), False),
            (OomKills(None, None), OomKills(3, 3), False),
        ],
    )
    def test_the_groups_own_count_is_believed_first(
        self, before: OomKills, after: OomKills, killed: bool
    ) -> None:
        assert after.since(before) is killed


@pytest.mark.full
def test_a_real_kill_is_counted() -> None:
    """In a control group of its own with little memory, where this machine lets us make one."""
    group = _own_memory_group()
    if group is None:
        pytest.skip("no memory control group of version 1 can be made here")
    try:
        # The import comes first: it takes more memory than the group has.
        code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import subprocess
from pathlib import Path
from dlrover_cli.agent.oom import count_oom_kills
Path({str(group)!r}, "cgroup.procs").write_text("0")
before = count_oom_kills()
eat = "open('/proc/self/oom_score_adj', 'w').write('1000'); b = b'x' * (1 << 30)"
victim = subprocess.run([sys.executable, "-S", "-c", eat])
print(victim.returncode, count_oom_kills().since(before), before.group is not None)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == f"{-signal.SIGKILL} True True\n", done.stderr
    finally:
        group.rmdir()


def _own_memory_group() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            group = Path("/sys/fs/cgroup/memory", path.lstrip("/"), f"dlrover-test-{os.getpid()}")
            with contextlib.suppress(OSError):
                group.mkdir()
                (group / "memory.limit_in_bytes").write_text(str(128 << 20))
                return group
    return None
