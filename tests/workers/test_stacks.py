"""Stacks of real workers wherever they are stuck, and what a set of stacks says about a hang."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from textwrap import dedent

import pytest

from dlrover_cli.workers.beats import BeatPage
from dlrover_cli.workers.stacks import dump_stacks, odd_one_out, parse_stacks, place_of, summarise
from tests.harness.processes import process_info
from tests.harness.waiting import eventually
from tests.workers.bootstrapped import Running, Workers


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


def dump(*running: Running, seconds: float = 30.0) -> dict[int, str]:
    return dump_stacks(
        {rank: worker.pid for rank, worker in enumerate(running)},
        {rank: worker.directory for rank, worker in enumerate(running)},
        {rank: worker.page for rank, worker in enumerate(running)},
        time.monotonic() + seconds,
    )


class TestDump:
    @pytest.mark.parametrize(
        "stuck",
        [
            "time.sleep(60)",
            "while True: ctypes.PyDLL(None).sleep(60)  # in C, with the interpreter's lock",
            "threading.Lock().acquire() and threading.Event().wait()",
            "os.read(os.pipe()[0], 1)",
            "exec('while True: pass')",
            "sum(iter(int, 1))  # in C, never looks for signals",
        ],
    )
    def test_a_worker_that_is_stuck_anywhere_shows_where(
        self, workers: Workers, stuck: str
    ) -> None:
        code = f"""
            import ctypes, os, threading, time
            def evaluate():
                print("ready")
                {stuck}
            def train():
                evaluate()
            train()
            """
        with workers.running(code) as worker:
            text = dump(worker)[0]
            assert worker.process.poll() is None
        functions = [frame.function for frame in parse_stacks(text)[-1]]
        assert functions[-3:] == ["evaluate", "train", "<module>"]

    def test_a_worker_goes_on_undisturbed(self, workers: Workers) -> None:
        code = """
            import os, time
            print("ready")
            while not os.path.exists(GO):
                time.sleep(0.01)
            print("went on")
            """
        go = workers.directory / "go"
        with workers.running(f"GO = {str(go)!r}\n{dedent(code)}") as worker:
            for _ in range(3):
                assert " in <module>" in dump(worker)[0]
            go.touch()
            assert worker.process.communicate(timeout=30) == ("went on\n", "")
            assert worker.process.returncode == 0

    def test_all_threads_are_there_and_the_main_thread_is_the_last(self, workers: Workers) -> None:
        code = """
            import threading
            ready = threading.Barrier(31)
            def background():
                ready.wait()
                threading.Event().wait()
            for _ in range(30):
                threading.Thread(target=background, daemon=True).start()
            ready.wait()
            def foreground():
                print("ready")
                threading.Event().wait()
            foreground()
            """
        with workers.running(code) as worker:
            threads = parse_stacks(dump(worker)[0])
        assert len(threads) == 31
        assert threads[-1][-2].function == "foreground"
        assert sum("background" in {f.function for f in frames} for frames in threads) == 30

    def test_several_are_asked_at_once_and_each_answers_anew(self, workers: Workers) -> None:
        code = "import time\nprint('ready')\ndef here():\n    time.sleep(60)\nhere()\n"
        with ExitStack() as stack:
            running = [stack.enter_context(workers.running(code)) for _ in range(4)]
            for _ in range(3):
                texts = dump(*running)
                assert len(texts) == 4
                for text in texts.values():
                    assert len(parse_stacks(text)) == 1
                    assert text.endswith(" in <module>\n")

    def test_a_process_that_knows_nothing_of_it_is_not_sent_the_signal(
        self, tmp_path: Path
    ) -> None:
        process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        try:
            started = time.monotonic()
            page = BeatPage(tmp_path / "beat")
            text = dump_stacks({0: process.pid}, {0: tmp_path}, {0: page}, started + 30)[0]
            assert text.startswith("no Python stack: it does not answer")
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()

    def test_a_script_that_became_another_program_is_not_sent_the_signal(
        self, workers: Workers
    ) -> None:
        code = """
            import os, sys
            sleep = "import time; print('ready', flush=True); time.sleep(60)"
            os.execv(sys.executable, [sys.executable, "-c", sleep])
            """
        with workers.running(code) as worker:
            assert dump(worker)[0].startswith("no Python stack")
            assert worker.process.poll() is None

    def test_one_that_has_ended_says_so(self, tmp_path: Path) -> None:
        process = subprocess.Popen(["true"])
        process.wait()
        page = BeatPage(tmp_path / "beat")
        texts = dump_stacks({0: process.pid}, {0: tmp_path}, {0: page}, time.monotonic() + 30)
        assert texts == {0: "no Python stack: it has ended"}

    def test_one_that_is_stopped_is_not_waited_for(self, workers: Workers) -> None:
        code = "import time; print('ready'); time.sleep(60)"
        with workers.running(code) as stopped, workers.running(code) as good:
            os.kill(stopped.pid, signal.SIGSTOP)
            eventually(lambda: process_info(stopped.pid).state == "T")
            started = time.monotonic()
            texts = dump(stopped, good, seconds=30.0)
            assert time.monotonic() - started < 20.0
            assert texts[0] == "no Python stack: no answer (it is stopped; SIGCONT lets it go on)"
            assert " in <module>" in texts[1]

    @pytest.mark.parametrize(
        "taken",
        [
            "signal.signal(57, mine)",
            "signal.signal(57, signal.SIG_IGN)",
            "signal.signal(57, signal.SIG_DFL)",
            "[signal.signal(number, mine) for number in range(50, 63)]",
            "[signal.signal(number, signal.SIG_DFL) for number in range(34, 65)]",
            "[signal.signal(number, signal.SIG_DFL) for number in reversed(range(34, 65))]",
            "signal.signal(56, mine), signal.signal(57, mine), signal.signal(58, mine)",
            "__import__('asyncio').new_event_loop().add_signal_handler(57, mine)",
        ],
    )
    def test_a_script_that_wants_the_signal_for_itself_gets_it_and_stacks_still_come(
        self, workers: Workers, taken: str
    ) -> None:
        code = f"""
            import signal, time
            def mine(*args):
                print("called")
            {taken}
            print("ready")
            for _ in range(6000):
                time.sleep(0.01)
            """
        with workers.running(code) as worker:
            for _ in range(3):
                assert dump(worker)[0].endswith(" in <module>\n")
            assert worker.process.poll() is None
            worker.process.kill()
            assert worker.process.communicate(timeout=30)[0] == ""

    def test_its_own_handler_is_called_for_its_own_signal(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import os, signal
            print(signal.signal(57, lambda *args: print("mine")))
            os.kill(os.getpid(), 57)
            print(signal.signal(57, signal.SIG_IGN).__name__)
            os.kill(os.getpid(), 57)
            """
        )
        assert (ended.stdout, ended.stderr) == ("0\nmine\n<lambda>\n", "")
        assert (ended.beat.stack_signal != 57, ended.problems) == (True, "")

    def test_a_call_that_fails_is_reported_in_the_same_words(self, workers: Workers) -> None:
        code = """
            import signal, threading
            thread = threading.Thread(target=signal.signal, args=(57, print), name="other")
            thread.start()
            thread.join()
            signal.signal(57, "no handler")
            """
        ended, plain = workers.run(code), workers.run_plain(code)
        assert ended.stderr == plain.stderr != ""

    def test_a_forked_child_takes_the_signal_for_itself_alone(self, workers: Workers) -> None:
        code = """
            import os, signal, time
            if os.fork() == 0:
                signal.signal(57, print)
                os._exit(0)
            os.wait()
            print("ready")
            time.sleep(60)
            """
        with workers.running(code) as worker:
            assert worker.page.read().stack_signal == 57
            assert dump(worker)[0].endswith(" in <module>\n")

    def test_one_that_takes_signals_while_it_is_asked_never_gets_ours(
        self, workers: Workers, load: Callable[..., AbstractContextManager[None]]
    ) -> None:
        """Signals change hands as fast as the script can do it, on a busy machine."""
        code = """
            import signal, threading
            def mine(*args):
                print("called")
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            print("ready")
            while True:
                for number in (*range(40, 60), *reversed(range(40, 60))):
                    signal.signal(number, mine)
                    signal.signal(number, signal.SIG_DFL)
            """
        with workers.running(code) as worker, load():
            texts = [dump(worker)[0] for _ in range(50)]
            assert [text for text in texts if not text.endswith(" in <module>\n")] == []
            assert worker.process.poll() is None
            worker.process.kill()
            assert worker.process.communicate(timeout=30)[0] == ""

    def test_one_that_waits_for_the_signal_never_gets_ours(self, workers: Workers) -> None:
        code = """
            import signal
            print(signal.pthread_sigmask(signal.SIG_BLOCK, iter([57])))
            print("got", signal.sigtimedwait([57], 60))
            """
        with workers.running(code, until="set()\n") as worker:
            assert dump(worker)[0].endswith(" in <module>\n")
            worker.process.kill()
            assert worker.process.communicate(timeout=30)[0] == ""

    def test_one_that_blocks_all_signals_is_asked_when_it_has_done_so(
        self, workers: Workers
    ) -> None:
        code = """
            import signal, sys, time
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            print("ready")
            sys.stdin.readline()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
            print("unblocked")
            time.sleep(60)
            """
        with workers.running(code) as worker:
            text = dump(worker, seconds=0.5)[0]
            assert text.startswith("no Python stack: no answer (it blocks the signal"), text
            assert worker.process.stdin is not None
            assert worker.process.stdout is not None
            worker.process.stdin.write("\n")
            worker.process.stdin.flush()
            assert worker.process.stdout.readline() == "unblocked\n"
            assert dump(worker)[0].endswith(" in <module>\n")

    def test_native_code_that_takes_the_signal_is_told_as_such(self, workers: Workers) -> None:
        code = """
            import ctypes, time
            ctypes.CDLL(None).signal(57, ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p))
            print("ready")
            while True:
                time.sleep(0.1)
            """
        with workers.running(code) as worker:
            text = dump(worker, seconds=1.0)[0]
            assert "its native code handles signal 57" in text
            assert worker.process.poll() is None

    def test_one_without_a_directory_is_left_out(self) -> None:
        assert dump_stacks({0: os.getpid()}, {}, {}, time.monotonic() + 1) == {}

    def test_a_dump_is_complete_on_a_busy_machine(
        self, workers: Workers, load: Callable[..., AbstractContextManager[None]]
    ) -> None:
        """The last frame of the last thread is always there, however long the writing takes."""
        code = """
            import sys, threading, time
            def deeper(levels):
                if levels:
                    return deeper(levels - 1)
                ready.wait()
                time.sleep(60)
            ready = threading.Barrier(21)
            for _ in range(20):
                threading.Thread(target=deeper, args=(60,), daemon=True).start()
            ready.wait()
            print("ready")
            deeper_main = time.sleep
            deeper_main(60)
            """
        with workers.running(code) as worker, load():
            for _ in range(10):
                text = dump(worker)[0]
                threads = parse_stacks(text)
                assert len(threads) == 21
                assert threads[-1][-1].function == "<module>"


def stack(*frames: str, threads: str = "") -> str:
    """A dump of a main thread, innermost frame first, each `file:line function`."""
    lines = []
    for frame in frames:
        place, _, function = frame.partition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line} in {function}\n')
    return f"{threads}Current thread 0x00007f (most recent call first):\n{''.join(lines)}"


TORCH = "/venv/lib/python3.11/site-packages/torch"
TRAIN = ("/job/train.py:88 train_step", "/job/train.py:120 <module>")
ALL_REDUCE = stack(
    f"{TORCH}/distributed/distributed_c10d.py:2800 all_reduce",
    f"{TORCH}/distributed/c10d_logger.py:83 wrapper",
    *TRAIN,
)
LOADING = stack(
    "/usr/lib/python3.11/selectors.py:415 select",
    "/usr/lib/python3.11/multiprocessing/connection.py:947 wait",
    f"{TORCH}/utils/data/dataloader.py:1285 _try_get_data",
    "/job/train.py:80 train_step",
    "/job/train.py:120 <module>",
    threads='Thread 0x1 (most recent call first):\n  File "/job/watch.py", line 3 in watch\n\n',
)
BACKWARD = stack(f"{TORCH}/autograd/graph.py:829 _engine_run_backward", *TRAIN)
OTHER_LINE = stack(
    f"{TORCH}/distributed/distributed_c10d.py:2800 all_reduce", "/job/evaluate.py:10 evaluate"
)
SLEEPING = stack("/job/train.py:30 augment", *TRAIN)
SILENT = "no Python stack: no answer (it is stopped)"


class TestPlace:
    def test_it_is_the_library_function_and_the_users_line(self) -> None:
        assert str(place_of(ALL_REDUCE)) == (
            "all_reduce (distributed_c10d.py), called from train.py:88 in train_step"
        )

    def test_waiting_inside_the_standard_library_is_named_after_who_waits(self) -> None:
        assert str(place_of(LOADING)) == (
            "_try_get_data (dataloader.py), called from train.py:80 in train_step"
        )

    def test_the_users_own_code_is_its_own_place(self) -> None:
        assert str(place_of(SLEEPING)) == "augment (train.py:30)"

    @pytest.mark.parametrize("text", ["", SILENT, "Thread 0x1 (most recent call first):\n", "x\ny"])
    def test_no_stack_is_no_place(self, text: str) -> None:
        assert place_of(text) is None

    def test_a_name_with_quotes_and_spaces_is_read(self) -> None:
        (frame,) = parse_stacks('Thread 0x1 (x):\n  File "/a "b" c.py", line 7 in <lambda>\n')[0]
        assert (frame.file, frame.line, frame.function) == ('/a "b" c.py', 7, "<lambda>")


class TestSummary:
    def test_ranks_are_grouped_by_place_the_largest_group_first(self) -> None:
        stacks = dict.fromkeys(range(8), ALL_REDUCE) | {3: LOADING}
        assert summarise(stacks).splitlines() == [
            f"7 ranks (0-2, 4-7): in {place_of(ALL_REDUCE)}",
            "rank 3: in _try_get_data (dataloader.py), called from train.py:80 in train_step",
        ]

    def test_a_rank_without_a_stack_says_why(self) -> None:
        assert summarise({0: SILENT, 1: SLEEPING, 2: SLEEPING}).splitlines() == [
            "2 ranks (1, 2): in augment (train.py:30)",
            f"rank 0: {SILENT}",
        ]

    def test_nothing_says_nothing(self) -> None:
        assert summarise({}) == ""


class TestOddOneOut:
    @pytest.mark.parametrize(
        "stacks,odd",
        [
            ({0: ALL_REDUCE, 1: ALL_REDUCE, 2: LOADING}, 2),
            ({0: ALL_REDUCE, 1: LOADING}, 1),
            ({0: BACKWARD, 1: SLEEPING}, 1),
            ({0: BACKWARD, 1: BACKWARD, 2: ALL_REDUCE}, 2),
            ({0: ALL_REDUCE, 1: ALL_REDUCE, 2: OTHER_LINE}, 2),
            ({0: ALL_REDUCE, 1: ALL_REDUCE, 2: SILENT}, 2),
            ({0: SLEEPING, 1: SLEEPING, 2: LOADING}, 2),
            ({0: ALL_REDUCE, 1: OTHER_LINE}, None),
            ({0: ALL_REDUCE, 1: ALL_REDUCE}, None),
            ({0: SLEEPING, 1: LOADING}, None),
            ({0: ALL_REDUCE, 1: LOADING, 2: SLEEPING}, None),
            ({0: LOADING}, None),
            ({}, None),
        ],
    )
    def test_it_is_the_one_that_the_others_wait_for(
        self, stacks: dict[int, str], odd: int | None
    ) -> None:
        assert odd_one_out(stacks) == odd
