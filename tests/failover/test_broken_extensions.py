"""Broken extensions, one test each: the agent gets a verdict, a reason, and the next answer."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.failover.extension import OnError
from dlrover_cli.failover.extension_guard import LOG_LIMIT
from tests.failover.advisers import PATIENT, Advisers, timed, verdict
from tests.harness.processes import descendants_and_orphans, is_alive
from tests.harness.waiting import eventually

SHORT = 0.5
# Ending a process takes milliseconds; a busy machine may need longer.
MARGIN = 10.0
AFTERWARDS = {
    "normal": FailoverStrategy.NORMAL_FAILOVER,
    "abort": FailoverStrategy.ABORTION_FAILOVER,
}
FINE_THE_SECOND_TIME = """
    marker = HERE / "asked"
    if marker.exists():
        return NODE
    marker.touch()
"""


class Fence:
    """Asks a broken extension, and, where the job goes on, once more, when it is fine."""

    def __init__(self, advisers: Advisers, on_error: OnError) -> None:
        self.advisers = advisers
        self.on_error = on_error

    def problem_of(
        self, answer: str, *, timeout: float = PATIENT, construct: str = "pass", before: str = ""
    ) -> str:
        """What the agent is told of an extension with this body, after all other assertions."""
        adviser = self.advisers.started(
            FINE_THE_SECOND_TIME + answer,
            timeout=timeout,
            on_error=self.on_error,
            construct=construct,
            before=before,
        )
        first, seconds = timed(lambda: verdict(adviser))
        assert seconds < timeout + MARGIN
        assert first.strategy is AFTERWARDS[self.on_error]
        assert first.decided_by == "extension myext::MyExtension (failed)"
        assert first.reason == f"--failover_on_error={self.on_error}"
        [problem] = first.problems
        assert problem.startswith("extension myext::MyExtension ")
        assert "\n" not in problem
        [failed] = self.advisers.recorded("extension_failed")
        assert failed["problems"] == [problem]
        if self.on_error == "normal":
            adviser._timeout = PATIENT  # the answer that is right may take its time
            second = verdict(adviser)
            assert second.strategy is FailoverStrategy.NODE_FAILOVER
            assert second.problems == ()
        return problem.removeprefix("extension myext::MyExtension ")


@pytest.fixture
def advisers(tmp_path: Path) -> Iterator[Advisers]:
    advisers = Advisers(tmp_path)
    yield advisers
    advisers.close()


@pytest.fixture(params=["normal", "abort"])
def fence(request: pytest.FixtureRequest, advisers: Advisers) -> Fence:
    return Fence(advisers, request.param)


def was_started_again(problem: str, fence: Fence) -> bool:
    """Whether it was, and said to be, where the job goes on; and neither where it is aborted."""
    said = "it is started again, without what it had kept in memory" in problem
    starts = len(fence.advisers.recorded("extension_loaded"))
    return (said, starts) == ((True, 2) if fence.on_error == "normal" else (False, 1))


def test_one_that_raises(fence: Fence) -> None:
    problem = fence.problem_of("    raise LookupError('no such code')")
    assert problem.startswith("raised LookupError: no such code (at ")
    assert "myext.py:" in problem
    assert "LookupError: no such code" in fence.advisers.final_log()
    assert len(fence.advisers.recorded("extension_loaded")) == 1


def test_one_that_raises_what_cannot_be_shown(fence: Fence) -> None:
    before = """
    class Shy(BaseException):
        def __str__(self): raise self
        __repr__ = __str__
    """
    assert fence.problem_of("    raise Shy", before=before) == "raised Shy"


def test_one_that_hangs(fence: Fence) -> None:
    problem = fence.problem_of("    threading.Event().wait()", timeout=SHORT)
    assert problem.startswith("did not answer within 0.5 s and was ended (see ")
    assert was_started_again(problem, fence)
    stacks = fence.advisers.final_log()
    assert "in get_user_failover_strategy" in stacks


def test_one_that_returns_a_string(fence: Fence) -> None:
    problem = fence.problem_of("    return 'NODE_FAILOVER'")
    wanted = "returned the string 'NODE_FAILOVER'; return FailoverStrategy.NODE_FAILOVER"
    assert problem == wanted


def test_one_that_returns_an_int(fence: Fence) -> None:
    problem = fence.problem_of("    return 3")
    assert problem == "returned the int 3 and not a FailoverStrategy"


def test_one_that_returns_a_coroutine(fence: Fence) -> None:
    before = "async def decide(): return NODE"
    problem = fence.problem_of("    return decide()", before=before)
    assert problem.startswith("returned a coroutine and not a FailoverStrategy; ")
    assert "never awaited" not in fence.advisers.final_log()


def test_one_that_returns_a_member_of_another_enum(fence: Fence) -> None:
    before = "import enum\nclass Colour(enum.Enum): RED = 1"
    problem = fence.problem_of("    return Colour.RED", before=before)
    assert problem.startswith("returned Colour.RED, which is none of NORMAL_FAILOVER, ")


def test_one_that_calls_sys_exit(fence: Fence) -> None:
    problem = fence.problem_of("    sys.exit(4)")
    assert problem.startswith("raised sys.exit(4) (at ")
    assert len(fence.advisers.recorded("extension_loaded")) == 1


def test_one_that_calls_os_exit(fence: Fence) -> None:
    problem = fence.problem_of("    os._exit(5)")
    assert problem.startswith("ended its process with exit code 5 (see ")
    assert was_started_again(problem, fence)


def test_one_that_segfaults(fence: Fence) -> None:
    problem = fence.problem_of("    ctypes.string_at(0)")
    assert problem.startswith("was killed by SIGSEGV (see ")
    assert was_started_again(problem, fence)
    assert "Segmentation fault" in fence.advisers.final_log()


def test_one_that_spins_in_c_and_holds_the_gil(fence: Fence) -> None:
    spin = "    import re\n    re.match('(a+)+$', 'a' * 60 + 'b')"
    problem = fence.problem_of(spin, timeout=SHORT)
    assert problem.startswith("did not answer within 0.5 s and was ended")
    assert was_started_again(problem, fence)


def test_one_that_leaks_memory_is_the_first_that_the_kernel_takes(fence: Fence) -> None:
    # What the kernel does, without filling the memory of the machine that runs the test.
    problem = fence.problem_of(
        """
    kept = bytearray(b"x") * (64 << 20)
    if Path("/proc/self/oom_score_adj").read_text().strip() == "1000":
        os.kill(os.getpid(), signal.SIGKILL)
    """
    )
    assert problem.startswith("was killed by SIGKILL (it had used ")
    assert int(problem.split("used ")[1].split()[0]) >= 64
    assert was_started_again(problem, fence)


@pytest.fixture
def memory_limit() -> Iterator[Callable[[int], None]]:
    """Puts a process, and what it starts, into a group with 256 MiB; needs rights for that."""
    root = Path("/sys/fs/cgroup")
    base, limit = (
        (root, "memory.max")
        if (root / "cgroup.controllers").exists()
        else (root / "memory", "memory.limit_in_bytes")
    )
    group = base / f"dlrover-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(256 << 20))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory limit can be set: {error}")
    try:
        yield lambda pid: (group / "cgroup.procs").write_text(str(pid)) and None
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


LIMITED_AGENT = """
import sys
from pathlib import Path
from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.failover.advice import History
from dlrover_cli.failover.extension import ExtensionAdviser

sys.stdin.readline()
adviser = ExtensionAdviser("myext::MyExtension", [Path.cwd()], timeout=60)
adviser.start()
held = b"x" * (32 << 20)
print(adviser.advise(AgentFailureInfo(), History()).problems[0])
adviser.close()
"""


@pytest.mark.full
def test_the_kernel_takes_the_leaking_extension_and_not_the_agent(
    advisers: Advisers, memory_limit: Callable[[int], None]
) -> None:
    advisers.write("kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 20))")
    agent = subprocess.Popen(
        [sys.executable, "-c", LIMITED_AGENT],
        cwd=advisers.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    memory_limit(agent.pid)
    out, _ = agent.communicate("go\n", timeout=100)
    assert agent.returncode == 0
    assert "was killed by SIGKILL (it had used " in out


def test_one_that_runs_out_of_memory(fence: Fence) -> None:
    problem = fence.problem_of("    kept = bytearray(1 << 60)")
    assert problem.startswith("raised MemoryError (at ")


@pytest.mark.parametrize(
    "mebibytes", [64, pytest.param(1024, marks=pytest.mark.full, id="gigabyte")]
)
def test_one_that_prints_without_end(advisers: Advisers, mebibytes: int) -> None:
    adviser = advisers.started(
        f"""
        for _ in range({mebibytes}):
            sys.stdout.write("x" * (1 << 20))
        print("that was all", file=sys.stderr)
        return NODE
        """
    )
    first = verdict(adviser)
    assert first.strategy is FailoverStrategy.NODE_FAILOVER, first
    adviser.close()
    assert LOG_LIMIT <= advisers.log.stat().st_size < LOG_LIMIT + 100
    assert advisers.log.read_bytes().endswith(b"[further output was dropped: 1 MiB is kept]\n")


def test_one_that_prints_and_hangs(fence: Fence) -> None:
    problem = fence.problem_of("    while True: os.write(1, b'y' * 65536)", timeout=SHORT)
    assert problem.startswith("did not answer within 0.5 s and was ended")


LINGER = """
def linger(name):
    # The way of a daemon: a session of its own, and a parent that goes away.
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    (HERE / name).write_text(str(os.getpid()))
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    "ending", ["os._exit(1)", "time.sleep(1000)", "ctypes.string_at(0)", "return NODE"]
)
def test_one_that_leaves_daemons_behind(advisers: Advisers, ending: str) -> None:
    adviser = advisers.started(
        f"""
        linger("daemon")
        while not (HERE / "daemon").exists() or not (HERE / "daemon").read_text():
            time.sleep(0.01)
        {ending}
        """,
        before=LINGER,
        timeout=3 if "sleep" in ending else 60,
        on_error="abort",
    )
    verdict(adviser)
    daemon = int((advisers.folder / "daemon").read_text())
    if "return" in ending:
        assert is_alive(daemon)
        adviser.close()
    assert not is_alive(daemon)


def test_one_that_closes_all_descriptors(fence: Fence) -> None:
    problem = fence.problem_of("    os.closerange(0, 4096)\n    return NODE")
    # Which of the two depends on who is quicker; either is told.
    assert problem.startswith(
        ("closed its connection to the agent", "ended its process with exit code")
    )
    assert was_started_again(problem, fence)


def test_one_that_meddles_with_signals(fence: Fence) -> None:
    problem = fence.problem_of(
        """
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(os.getppid(), number)
        os.killpg(0, number)
    while True: time.sleep(1)
    """,
        timeout=SHORT,
    )
    assert problem.startswith("did not answer within 0.5 s and was ended")
    assert was_started_again(problem, fence)


def test_one_that_stops_itself(fence: Fence) -> None:
    problem = fence.problem_of("    os.kill(os.getpid(), signal.SIGSTOP)", timeout=SHORT)
    assert problem.startswith("did not answer within 0.5 s and was ended")


def test_one_that_sets_an_alarm_and_forgets_it(fence: Fence) -> None:
    problem = fence.problem_of("    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    time.sleep(60)")
    assert problem.startswith("was killed by SIGALRM")


def test_one_that_kills_its_guard(advisers: Advisers, process_token: str) -> None:
    adviser = advisers.started(
        "if (HERE / 'asked').exists(): return NODE\n"
        "(HERE / 'asked').touch()\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "time.sleep(1000)"
    )
    first = verdict(adviser)
    assert first.strategy is FailoverStrategy.NORMAL_FAILOVER
    assert "was lost together with the process that guards it" in first.problems[0]
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER
    adviser.close()
    eventually(lambda: not descendants_and_orphans(process_token))


def find_channel() -> str:
    return """
    import socket
    def channel():
        for fd in range(3, 64):
            try:
                sock = socket.socket(fileno=os.dup(fd))
                sock.getpeername()
                return sock
            except OSError:
                pass
    """


def test_one_that_drips_bytes_into_the_connection(fence: Fence) -> None:
    problem = fence.problem_of(
        """
    sock = channel()
    sock.send((100000).to_bytes(4, "big"))
    while True:
        sock.send(b" ")
        time.sleep(0.01)
    """,
        timeout=SHORT,
        before=find_channel(),
    )
    assert problem.startswith("did not answer within 0.5 s and was ended")


@pytest.mark.parametrize(
    "garbage",
    [
        "b'\\xff' * 100",
        "(3).to_bytes(4, 'big') + b'[1]'",
        "(100000).to_bytes(4, 'big') + b'[' * 100000",
        "(2).to_bytes(4, 'big') + b'\\xff\\xfe'",
    ],
    ids=["too long", "an array", "nested", "not text"],
)
def test_one_that_writes_garbage_into_the_connection(advisers: Advisers, garbage: str) -> None:
    fence = Fence(advisers, "normal")
    problem = fence.problem_of(
        f"    channel().sendall({garbage})\n    time.sleep(1000)", before=find_channel()
    )
    assert problem.startswith("wrote into its connection to the agent: ")


def test_one_that_forks_and_answers_twice(advisers: Advisers) -> None:
    adviser = advisers.started(
        """
        self.asked = getattr(self, "asked", 0) + 1
        (HERE / f"{os.getpid()}").touch()
        if self.asked == 1:
            os.fork()
            (HERE / f"{os.getpid()}").touch()
            return NODE
        return GLOBAL
        """
    )
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER
    for _ in range(3):
        assert verdict(adviser).strategy is FailoverStrategy.GLOBAL_FAILOVER
    # The copy was there, and did not stay to take questions.
    pids = eventually(lambda: [p for p in map(pid_of, advisers.folder.iterdir()) if p], 10)
    loaded = advisers.recorded("extension_loaded")[0]["pid"]
    eventually(lambda: not any(is_alive(pid) for pid in pids if pid != loaded))


def pid_of(path: Path) -> int:
    return int(path.name) if path.name.isdecimal() else 0


def test_one_that_becomes_another_program(fence: Fence) -> None:
    problem = fence.problem_of("    os.execv('/bin/sleep', ['sleep', '1000'])")
    assert problem.startswith("closed its connection to the agent")
    assert was_started_again(problem, fence)


def test_one_that_breaks_its_streams_and_raises(fence: Fence) -> None:
    problem = fence.problem_of(
        """
    sys.stdout = sys.stderr = None
    os.close(1)
    os.close(2)
    raise OSError("all is lost")
    """
    )
    assert problem.startswith("raised OSError: all is lost (at ")


def test_one_that_raises_a_message_of_many_megabytes(fence: Fence) -> None:
    problem = fence.problem_of("    raise ValueError('x y ' * (1 << 20))")
    assert problem.startswith("raised ValueError: x y x y ")
    assert len(problem) < 1000


def test_one_that_is_ended_by_someone_else_between_two_failures(advisers: Advisers) -> None:
    adviser = advisers.started(
        "self.asked = getattr(self, 'asked', 0) + 1\nreturn NODE if self.asked == 1 else GLOBAL"
    )
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER
    pid = advisers.recorded("extension_loaded")[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid))
    second = verdict(adviser)
    # It was asked all the same, and has begun to count anew.
    assert second.strategy is FailoverStrategy.NODE_FAILOVER
    assert second.decided_by == "extension myext::MyExtension"
    [problem] = second.problems
    assert "was killed by SIGKILL" in problem
    assert "it is started again, without what it had kept in memory" in problem
    third = verdict(adviser)
    assert third.strategy is FailoverStrategy.GLOBAL_FAILOVER
    assert third.problems == ()


def test_one_that_cannot_be_loaded_again(advisers: Advisers) -> None:
    construct = """
    if (HERE / "tried").exists():
        raise OSError("the policy server is gone")
    (HERE / "tried").touch()
    """
    adviser = advisers.started("os._exit(1)", construct=construct)
    assert "ended its process" in verdict(adviser).problems[0]
    for _ in range(2):
        again = verdict(adviser)
        assert again.strategy is FailoverStrategy.NORMAL_FAILOVER
        assert "could not be started again: " in again.problems[0]
        assert "the policy server is gone" in again.problems[0]
    (advisers.folder / "tried").unlink()
    assert "ended its process" in verdict(adviser).problems[0]
