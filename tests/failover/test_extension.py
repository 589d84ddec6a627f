"""An extension in a process of its own: loaded early, asked often, ended with all below it."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy, FailureKind, WorkerFailure
from dlrover_cli.errors import PluginError
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.extension import ExtensionFault
from dlrover_cli.failover.extension_guard import LOG_LIMIT
from dlrover_cli.plugins.failover_extension import load_failover_extension
from dlrover_cli.plugins.faults import PluginFault
from tests.failover.advisers import PATIENT, Advisers, ask, timed, verdict
from tests.harness.processes import descendants_and_orphans, is_alive
from tests.harness.waiting import eventually
from tests.plugins.user_code import forgetting_imports

COUNTING = """
self.asked = getattr(self, "asked", 0) + 1
return NODE if self.asked == 1 else GLOBAL
"""


@pytest.fixture
def advisers(tmp_path: Path) -> Iterator[Advisers]:
    advisers = Advisers(tmp_path)
    yield advisers
    advisers.close()


def test_its_answer_is_the_verdict(advisers: Advisers) -> None:
    adviser = advisers.started("return NODE")
    wanted = Verdict(
        FailoverStrategy.NODE_FAILOVER, "extension myext::MyExtension", "the extension's answer"
    )
    assert ask(adviser) == wanted
    [answered] = advisers.recorded("extension_answered")
    assert answered["strategy"] == "NODE_FAILOVER"
    assert 0 < answered["seconds"] < PATIENT


def test_none_is_no_opinion(advisers: Advisers) -> None:
    adviser = advisers.started("return None")
    assert ask(adviser) is None
    assert advisers.recorded("extension_answered")[0]["strategy"] is None
    assert advisers.recorded("extension_failed") == []


def test_a_member_of_another_enum_counts_by_its_name(advisers: Advisers) -> None:
    before = "import enum\nclass Theirs(str, enum.Enum):\n    ABORTION_FAILOVER = 'x'"
    adviser = advisers.started("return Theirs.ABORTION_FAILOVER", before=before)
    assert verdict(adviser).strategy is FailoverStrategy.ABORTION_FAILOVER


def test_it_sees_the_whole_failure(advisers: Advisers) -> None:
    info = AgentFailureInfo(
        1700000000,
        "log \udc80 ünïcode " + "x" * 3_000_000,
        {"nested": {"list": [1, None, "\0"]}},
        2,
        kind=FailureKind.SIGNAL,
        workers=(WorkerFailure(global_rank=3, local_rank=1, signal=9, root_cause=True),),
        attempt=4,
        run_id="r",
        host="h",
    )
    adviser = advisers.started(
        f"return NODE if info == AgentFailureInfo.from_json({info.to_json()!r}) else GLOBAL"
    )
    answer = adviser.advise(info, History())
    assert answer is not None
    assert answer.strategy is FailoverStrategy.NODE_FAILOVER, answer


def test_it_keeps_its_state_between_failures(advisers: Advisers) -> None:
    adviser = advisers.started(COUNTING)
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER
    for _ in range(20):
        assert verdict(adviser).strategy is FailoverStrategy.GLOBAL_FAILOVER
    assert len(advisers.recorded("extension_loaded")) == 1


def test_its_process_has_no_torch_unless_it_imports_it(advisers: Advisers) -> None:
    adviser = advisers.started("return GLOBAL if 'torch' in sys.modules else NODE")
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


def test_beginning_does_not_wait(advisers: Advisers) -> None:
    advisers.write("return NODE", construct="(HERE / 'begun').touch()\ntime.sleep(0.5)")
    adviser = advisers.make()
    _, seconds = timed(adviser.begin)
    # Other work happens here; the extension loads meanwhile.
    assert seconds < 0.4
    eventually((advisers.folder / "begun").exists, PATIENT)
    loaded = adviser.ready()
    assert loaded.file == str(advisers.folder / "myext.py")
    assert advisers.recorded("extension_loaded")[0]["seconds"] >= 0.5
    assert adviser.ready() == loaded
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


def test_one_that_has_loaded_is_not_refused_because_nobody_looked_in_time(
    advisers: Advisers,
) -> None:
    advisers.write("return NODE")
    adviser = advisers.make(load_timeout=0.001)
    adviser.begin()
    # The agent is busy with other things for longer than that.
    assert adviser._client is not None
    assert select.select([adviser._client._channel], [], [], PATIENT)[0]
    adviser.ready()
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


def test_the_example_of_the_source_document_runs_as_printed(advisers: Advisers) -> None:
    folder = advisers.folder / "test"
    folder.mkdir()
    (folder / "user_def_failover.py").write_text(
        textwrap.dedent(
            """
            from dlrover.python.elastic_agent.torch.dynamic_failover import (
                DynamicAgentFailoverExtension, AgentFailureInfo,
            )
            from dlrover.python.common.enums import FailoverStrategy


            class TestDynamicFailoverExtension(DynamicAgentFailoverExtension):

                def get_user_failover_strategy(self,
                                               failure_info: AgentFailureInfo) -> FailoverStrategy:
                    # stop job whatever the failure is
                    return FailoverStrategy.ABORTION_FAILOVER
            """
        )
    )
    adviser = advisers.make("test.user_def_failover::TestDynamicFailoverExtension")
    adviser.start()
    assert verdict(adviser).strategy is FailoverStrategy.ABORTION_FAILOVER


def test_it_is_found_where_the_agent_would_find_it(
    advisers: Advisers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    advisers.write("return NODE")
    (tmp_path / "myext.py").rename(elsewhere / "yourext.py")
    monkeypatch.syspath_prepend(str(elsewhere))
    adviser = advisers.make("yourext::MyExtension")
    assert adviser.start().file == str(elsewhere / "yourext.py")


def test_a_users_module_does_not_hide_those_of_its_process(advisers: Advisers) -> None:
    for name in ("json", "socket", "decide", "struct"):
        (advisers.folder / f"{name}.py").write_text("raise RuntimeError('not this one')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(advisers.folder)
        adviser = advisers.started("return NODE")
        assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


WRONG: dict[PluginFault, tuple[str, str]] = {
    PluginFault.NO_SEPARATOR: ("myext.MyExtension", ""),
    PluginFault.EMPTY_PART: ("myext::", ""),
    PluginFault.MALFORMED: ("myext.py::MyExtension", ""),
    PluginFault.NO_MODULE: ("myexts::MyExtension", ""),
    PluginFault.MISSING_DEPENDENCY: ("wrong::Ext", "import no_such_thing"),
    PluginFault.SYNTAX_ERROR: ("wrong::Ext", "class Ext(:"),
    PluginFault.EXITS_AT_IMPORT: ("wrong::Ext", "import sys; sys.exit('bye')"),
    PluginFault.IMPORT_RAISED: ("wrong::Ext", "1 / 0"),
    PluginFault.NO_ATTRIBUTE: ("myext::MyExtensoin", ""),
    PluginFault.NOT_A_CLASS: ("wrong::Ext", "Ext = 7"),
    PluginFault.WRONG_BASE: ("wrong::Ext", "class Ext(dict): pass"),
    PluginFault.ABSTRACT_METHODS: (
        "wrong::Ext",
        "from dlrover_cli.contracts import *\nclass Ext(DynamicAgentFailoverExtension): pass",
    ),
    PluginFault.WRONG_SIGNATURE: (
        "wrong::Ext",
        "from myext import *\nclass Ext(MyExtension):\n    def __init__(self, url): pass",
    ),
    PluginFault.CONSTRUCTOR_RAISED: (
        "wrong::Ext",
        "from myext import *\nclass Ext(MyExtension):\n    def __init__(self): raise OSError('no')",
    ),
}


@pytest.mark.parametrize("reason", WRONG)
def test_what_is_wrong_with_it_is_said_as_if_it_were_loaded_here(
    advisers: Advisers, reason: PluginFault
) -> None:
    reference, source = WRONG[reason]
    advisers.write("return NODE")
    (advisers.folder / "wrong.py").write_text(f"{source}\n")
    with forgetting_imports(advisers.folder), pytest.raises(PluginError) as here:
        load_failover_extension(reference, [advisers.folder])
    adviser = advisers.make(reference)
    with pytest.raises(PluginError) as there:
        adviser.start()
    assert there.value.reason is reason
    assert there.value.message == here.value.message
    assert there.value.hint == here.value.hint
    assert there.value.reference == here.value.reference
    assert there.value.exit_code == 2


@pytest.mark.parametrize(
    "construct, words",
    [
        ("os._exit(3)", "it ended its process with exit code 3 while it was loaded"),
        ("ctypes.string_at(0)", "it was killed by SIGSEGV while it was loaded"),
        ("os.closerange(3, 4096)", "while it was loaded"),
    ],
)
def test_one_that_crashes_while_it_is_loaded_is_refused(
    advisers: Advisers, construct: str, words: str
) -> None:
    advisers.write("return NODE", construct=construct)
    adviser = advisers.make()
    with pytest.raises(PluginError, match=r"^--dynamic_failover_extension=myext") as caught:
        adviser.start()
    assert words in caught.value.message
    assert caught.value.reason == ExtensionFault.LOAD_CRASHED
    assert str(advisers.log) in caught.value.message


def test_one_that_is_not_constructed_in_time_is_refused(
    advisers: Advisers, process_token: str
) -> None:
    advisers.write("return NODE", construct="import re\nre.match('(a+)+$', 'a' * 60 + 'b')")
    adviser = advisers.make(load_timeout=1.0)
    started = time.monotonic()
    with pytest.raises(PluginError) as caught:
        adviser.start()
    assert 1.0 <= time.monotonic() - started < 10.0
    assert caught.value.reason == ExtensionFault.LOAD_TIMED_OUT
    assert "it was not constructed within 1 s" in caught.value.message
    assert "--failover_timeout" in (caught.value.hint or "")
    assert descendants_and_orphans(process_token) == []
    assert "myext.py" in advisers.final_log()


def test_a_keyboard_interrupt_of_its_own_is_its_fault(advisers: Advisers) -> None:
    advisers.write("return NODE", construct="raise KeyboardInterrupt")
    with pytest.raises(PluginError, match="loading it raised KeyboardInterrupt"):
        advisers.make().start()


def test_construction_has_the_time_of_an_answer_unless_told(advisers: Advisers) -> None:
    advisers.write("return NODE", construct="time.sleep(1000)")
    with pytest.raises(PluginError, match=r"not constructed within 0\.5 s"):
        advisers.make(timeout=0.5).start()


def test_an_ended_one_loads_again_before_the_next_failure(advisers: Advisers) -> None:
    adviser = advisers.started("os._exit(0)", construct="print('constructed')")
    verdict(adviser)
    # Nobody asks, and still:
    eventually(lambda: advisers.log.read_text().count("constructed") == 2, PATIENT)


def test_one_that_was_ended_is_not_started_again_when_the_job_is_to_be_aborted(
    advisers: Advisers, process_token: str
) -> None:
    adviser = advisers.started("os._exit(0)", on_error="abort")
    verdict(adviser)
    assert descendants_and_orphans(process_token) == []


def test_closing_lets_it_run_its_exit_functions(advisers: Advisers) -> None:
    adviser = advisers.started(
        "return NODE", before="import atexit\natexit.register(print, 'good-bye')"
    )
    adviser.close()
    assert "good-bye" in advisers.log.read_text()


def test_closing_does_not_wait_for_one_that_will_not_go(
    advisers: Advisers, process_token: str
) -> None:
    construct = "threading.Thread(target=threading.Event().wait).start()"
    adviser = advisers.started("return NODE", construct=construct)
    _, seconds = timed(adviser.close)
    assert seconds < 5.0
    assert descendants_and_orphans(process_token) == []
    adviser.close()


@pytest.mark.full
def test_closing_does_not_wait_for_a_guard_that_is_stuck(
    advisers: Advisers, process_token: str
) -> None:
    adviser = advisers.started("return NODE")
    assert adviser._client is not None
    os.kill(adviser._client._guard.pid, signal.SIGSTOP)
    _, seconds = timed(adviser.close)
    assert seconds < 20.0
    eventually(lambda: not descendants_and_orphans(process_token))


def test_an_agent_without_descriptors_gets_a_verdict(advisers: Advisers) -> None:
    adviser = advisers.started("return NODE")
    held = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        first = verdict(adviser)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert first.strategy is FailoverStrategy.NORMAL_FAILOVER
    assert "could not be asked: OSError" in first.problems[0]
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


def test_closing_while_it_is_asked_ends_the_question(advisers: Advisers) -> None:
    adviser = advisers.started("(HERE / 'asked').touch()\ntime.sleep(1000)")
    verdicts: list[Verdict | None] = []
    thread = threading.Thread(target=lambda: verdicts.append(ask(adviser)), name="asking")
    thread.start()
    eventually((advisers.folder / "asked").exists, PATIENT)
    _, seconds = timed(adviser.close)
    thread.join(10.0)
    assert not thread.is_alive()
    assert seconds < 10.0
    [answer] = verdicts
    assert answer is not None
    assert answer.strategy is FailoverStrategy.NORMAL_FAILOVER


def test_closing_while_it_loads_ends_it(advisers: Advisers, process_token: str) -> None:
    advisers.write("return NODE", construct="time.sleep(1000)")
    adviser = advisers.make()
    adviser.begin()
    adviser.close()
    assert descendants_and_orphans(process_token) == []
    after = verdict(adviser)
    assert after.strategy is FailoverStrategy.NORMAL_FAILOVER
    assert "the run is over" in after.problems[0]
    assert descendants_and_orphans(process_token) == []


def test_it_outlives_the_thread_that_started_it(advisers: Advisers) -> None:
    advisers.write(COUNTING)
    adviser = advisers.make()
    thread = threading.Thread(target=adviser.start, name="starting")
    thread.start()
    thread.join()
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER
    assert verdict(adviser).strategy is FailoverStrategy.GLOBAL_FAILOVER


AGENT = """
import os, sys, time
from pathlib import Path
from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.failover.advice import History
from dlrover_cli.failover.extension import ExtensionAdviser

adviser = ExtensionAdviser("myext::MyExtension", [Path.cwd()], timeout=60)
adviser.start()
adviser.advise(AgentFailureInfo(), History())
if sys.argv[1] == "forked":
    # As a zygote does: a copy that holds every descriptor of the agent.
    if os.fork() == 0:
        Path("copy").write_text(str(os.getpid()))
        time.sleep(1000)
    while not Path("copy").exists(): time.sleep(0.01)
if sys.argv[1] == "asking":
    adviser.advise(AgentFailureInfo(), History())
print("ready", flush=True)
time.sleep(1000)
"""
WITH_A_CHILD = """
if not (HERE / "child").exists():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    (HERE / "child").write_text(f"{child.pid} {os.getpid()} {os.getppid()}")
    return NODE
print("ready")
(HERE / "asked").touch()
import re
re.match('(a+)+$', 'a' * 60 + 'b')
"""


@pytest.mark.parametrize("situation", ["idle", "forked", "asking"])
def test_nothing_of_it_outlives_a_killed_agent(advisers: Advisers, situation: str) -> None:
    advisers.write(WITH_A_CHILD)
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, situation],
        cwd=advisers.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if situation == "asking":
            eventually((advisers.folder / "asked").exists, PATIENT)
        else:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "ready\n"
        pids = [int(pid) for pid in (advisers.folder / "child").read_text().split()]
        assert all(is_alive(pid) for pid in pids)
    finally:
        agent.kill()
        agent.communicate() if situation != "forked" else agent.wait()
        copy = advisers.folder / "copy"
    eventually(lambda: not any(is_alive(pid) for pid in pids), 10.0)
    if situation == "forked":
        os.kill(int(copy.read_text()), signal.SIGKILL)


def test_descriptors_and_threads_are_given_back(advisers: Advisers) -> None:
    advisers.write("os._exit(0)")
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):
        adviser = advisers.make()
        adviser.start()
        verdict(adviser)
        adviser.close()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_each_start_adds_to_the_log_and_one_full_log_is_kept(advisers: Advisers) -> None:
    adviser = advisers.started(
        f"print('first' if not (HERE / 'again').exists() else 'second')\n"
        f"(HERE / 'again').touch()\n"
        f"os.write(1, b'x' * {LOG_LIMIT})\n"
        f"os._exit(0)",
        on_error="abort",
    )
    verdict(adviser)
    verdict(adviser)
    adviser.close()
    assert advisers.log.with_name("extension.log.old").read_text().startswith("first\n")
    assert advisers.log.read_text().startswith("second\n")


def test_a_log_that_cannot_be_written_costs_only_the_log(advisers: Advisers) -> None:
    adviser = advisers.started(
        "print('x' * 100000)\nreturn NODE", log_path=advisers.folder / "none" / "such.log"
    )
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


def test_an_agent_that_cannot_start_processes_gets_a_verdict(
    advisers: Advisers, monkeypatch: pytest.MonkeyPatch
) -> None:
    adviser = advisers.started("os._exit(0)")
    monkeypatch.setattr(sys, "executable", "/none/such")
    assert "ended its process with exit code 0" in verdict(adviser).problems[0]
    second = verdict(adviser)
    assert second.strategy is FailoverStrategy.NORMAL_FAILOVER
    assert "no process can be started for the failover extension" in second.problems[0]


def test_the_time_out_holds_for_loading_and_answering_together(advisers: Advisers) -> None:
    construct = """
    if (HERE / "slow").exists():
        time.sleep(1000)
    (HERE / "slow").touch()
    """
    adviser = advisers.started("os._exit(0)", construct=construct, timeout=1.5)
    verdict(adviser)
    started = time.monotonic()
    second = verdict(adviser)
    assert time.monotonic() - started < 10.0
    assert "did not answer within 1.5 s" in second.problems[0]


def test_the_time_out_may_be_without_end(advisers: Advisers) -> None:
    adviser = advisers.started("return NODE", timeout=float("inf"), load_timeout=float("inf"))
    assert verdict(adviser).strategy is FailoverStrategy.NODE_FAILOVER


def test_a_failure_that_cannot_be_sent_gets_a_verdict(advisers: Advisers) -> None:
    class Odd(AgentFailureInfo):
        def to_json(self) -> dict[str, object]:
            raise RuntimeError("no")

    adviser = advisers.started("return NODE")
    answer = adviser.advise(Odd(), History())
    assert answer is not None
    assert answer.strategy is FailoverStrategy.NORMAL_FAILOVER
    assert "could not be asked: RuntimeError: no" in answer.problems[0]
