"""A worker writes its own end down, whatever the script does, and it looks as it always did."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.workers.bootstrapped import Workers


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


class TestException:
    def test_type_message_traceback_frames_time_and_phase_are_recorded(
        self, workers: Workers
    ) -> None:
        before = time.time_ns()
        ended = workers.run(
            """
            import json
            class Trouble:
                class Bad(ValueError): pass
            def train(step):
                raise Trouble.Bad(f"at step {step}")
            try:
                json.loads("{")
            except ValueError:
                train(7)
            """
        )
        record = ended.record("exception")
        assert ended.status == 1
        assert record["type"] == "__main__.Trouble.Bad"
        assert record["message"] == "at step 7"
        assert record["traceback"] == ended.stderr
        assert record["frames"] == [
            {"file": str(workers.script), "line": 10, "function": "<module>"},
            {"file": str(workers.script), "line": 6, "function": "train"},
        ]
        assert before < record["time_ns"] < time.time_ns()
        assert record["phase"] == "start-up"
        assert ended.records == {"exception"}

    @pytest.mark.parametrize(
        "code,kind",
        [
            ("def f(:\n  pass", "SyntaxError"),
            ("if True:\nx = 1", "IndentationError"),
            ("import not_installed", "ModuleNotFoundError"),
            ("from os import nothing", "ImportError"),
            ("1/0", "ZeroDivisionError"),
            ("def f(): f()\nf()", "RecursionError"),
            ("raise MemoryError", "MemoryError"),
            ("raise ExceptionGroup('two', [ValueError(1), KeyError(2)])", "ExceptionGroup"),
            ("import json; json.loads('')", "json.decoder.JSONDecodeError"),
        ],
    )
    def test_every_kind_is_seen_and_shown_as_before(
        self, workers: Workers, code: str, kind: str
    ) -> None:
        ended = workers.run(code)
        assert ended.record("exception")["type"] == kind
        plain = workers.run_plain(code)
        assert (ended.status, ended.stderr) == (plain.status, plain.stderr)

    def test_an_exception_that_cannot_be_shown_is_recorded(self, workers: Workers) -> None:
        ended = workers.run(
            """
            class Mute(Exception):
                def __str__(self): raise ValueError
            raise Mute
            """
        )
        assert ended.record("exception")["message"] == "<the message cannot be shown>"

    def test_a_message_of_megabytes_is_cut_in_the_middle(self, workers: Workers) -> None:
        ended = workers.run("raise ValueError('begin' + 'x' * 5_000_000 + 'end')")
        record = ended.record("exception")
        assert record["message"].startswith("beginxxx")
        assert record["message"].endswith("xxxend")
        assert len(record["message"]) < 11_000
        assert len(record["traceback"]) < 61_000
        assert "characters left out" in record["message"]

    def test_what_utf8_cannot_hold_is_escaped(self, workers: Workers) -> None:
        ended = workers.run(r"raise ValueError('\udcff' + 'ü')")
        assert ended.record("exception")["message"] == "\\udcffü"

    def test_an_interrupt_ends_the_worker_by_its_signal(self, workers: Workers) -> None:
        ended = workers.run(
            "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
        )
        assert ended.status == -signal.SIGINT
        assert ended.record("exception")["type"] == "KeyboardInterrupt"

    def test_it_is_on_disk_while_a_thread_keeps_the_process_alive(self, workers: Workers) -> None:
        code = """
            import threading
            threading.Thread(target=threading.Event().wait).start()
            print("ready")
            raise ValueError("main is done")
            """
        with workers.running(code) as worker:
            assert worker.await_record("exception")["message"] == "main is done"
            assert worker.process.poll() is None

    def test_one_that_was_caught_and_only_shown_is_not_recorded(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import sys
            try:
                raise ValueError("handled")
            except ValueError:
                sys.excepthook(*sys.exc_info())
            """
        )
        assert "ValueError: handled" in ended.stderr
        assert (ended.status, ended.records) == (0, set())

    def test_a_directory_that_vanished_changes_nothing_for_the_user(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import os, shutil
            shutil.rmtree(os.environ["DLROVER_WORKER_DIR"])
            raise ValueError("as before")
            """
        )
        assert ended.status == 1
        assert ended.stderr.endswith("ValueError: as before\n")
        assert "dlrover" not in ended.stderr


class TestTheScriptsOwnHooks:
    def test_one_that_replaces_ours_hides_nothing(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import sys
            sys.excepthook = lambda *args: print("mine")
            raise ValueError("still seen")
            """
        )
        assert (ended.stdout, ended.stderr, ended.status) == ("mine\n", "", 1)
        assert ended.record("exception")["message"] == "still seen"
        assert ended.record("exception")["frames"][-1]["line"] == 4

    def test_one_that_exits_the_hard_way_hides_nothing(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import os, sys
            sys.excepthook = lambda *args: os._exit(7)
            raise ValueError("still seen")
            """
        )
        assert ended.status == 7
        assert ended.record("exception")["message"] == "still seen"

    def test_one_that_calls_the_one_before_it_is_called_first(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import sys
            before = sys.excepthook
            def hook(*args):
                print("mine")
                before(*args)
            sys.excepthook = hook
            raise ValueError("chained")
            """
        )
        assert ended.stdout == "mine\n"
        assert ended.stderr.endswith("ValueError: chained\n")
        assert ended.record("exception")["message"] == "chained"

    def test_rich_tracebacks_are_rich_and_recorded(self, workers: Workers) -> None:
        ended = workers.run(
            """
            from rich.traceback import install
            install()
            raise ValueError("in colours")
            """
        )
        assert "╭" in ended.stderr
        assert ended.record("exception")["message"] == "in colours"

    def test_a_hook_that_raises_is_pythons_affair(self, workers: Workers) -> None:
        code = """
            import sys
            def hook(*args): raise KeyError("in the hook")
            sys.excepthook = hook
            raise ValueError("the reason")
            """
        ended = workers.run(code)
        assert ended.stderr == workers.run_plain(code).stderr
        assert ended.record("exception")["message"] == "the reason"


class TestExit:
    @pytest.mark.parametrize(
        "call,status,shown",
        [
            ("sys.exit(3)", 3, "sys.exit(3)"),
            ("sys.exit('no data')", 1, "sys.exit('no data')"),
            ("sys.exit(True)", 1, "sys.exit(True)"),
            ("sys.exit(-1)", 255, "sys.exit(-1)"),
            ("sys.exit((1, 2))", 1, "sys.exit(<tuple>)"),
            ("sys.exit('x' * 999 + '\\n')", 1, f"sys.exit('{'x' * 199}…)"),
            ("os._exit(5)", 5, "os._exit(5)"),
        ],
    )
    def test_the_call_and_its_place_are_recorded(
        self, workers: Workers, call: str, status: int, shown: str
    ) -> None:
        code = f"import os, sys\ndef main():\n    {call}\nmain()\n"
        ended = workers.run(code)
        plain = workers.run_plain(code)
        assert (ended.status, ended.stderr) == (plain.status, plain.stderr)
        record = ended.record("exit")
        assert (ended.status, record["code"], record["call"]) == (status, status, shown)
        place = record["frames"][-1]
        assert (place["file"], place["line"], place["function"]) == (str(workers.script), 3, "main")
        assert ended.records == {"exit"}

    @pytest.mark.parametrize(
        "code", ["", "sys.exit()", "sys.exit(0)", "sys.exit(False)", "sys.exit(256)", "os._exit(0)"]
    )
    def test_success_leaves_nothing(self, workers: Workers, code: str) -> None:
        ended = workers.run(f"import os, sys\n{code}")
        assert (ended.status, ended.records) == (0, set())

    def test_an_exit_raised_by_hand_has_no_place(self, workers: Workers) -> None:
        ended = workers.run("raise SystemExit(4)")
        assert (ended.status, ended.records) == (4, set())

    def test_a_library_that_exits_is_blamed_on_the_line_that_called_it(
        self, workers: Workers
    ) -> None:
        ended = workers.run(
            """
            import argparse
            argparse.ArgumentParser().parse_args(["--unknown"])
            """
        )
        assert ended.status == 2
        record = ended.record("exit")
        assert record["call"] == "sys.exit(2)"
        assert [frame["line"] for frame in record["frames"]] == [3]

    def test_one_that_was_caught_does_not_count_against_a_later_success(
        self, workers: Workers
    ) -> None:
        ended = workers.run(
            """
            import sys
            try:
                sys.exit(3)
            except SystemExit:
                pass
            sys.exit(0)
            """
        )
        assert (ended.status, ended.records) == (0, set())

    def test_one_of_another_thread_ends_only_that_thread(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import sys, threading
            thread = threading.Thread(target=sys.exit, args=(3,))
            thread.start()
            thread.join()
            """
        )
        assert (ended.status, ended.records) == (0, set())

    def test_a_hard_exit_of_another_thread_is_recorded_with_its_stack(
        self, workers: Workers
    ) -> None:
        ended = workers.run(
            """
            import os, threading
            def watchdog():
                os._exit(9)
            threading.Thread(target=watchdog).start()
            """
        )
        assert ended.status == 9
        assert ended.record("exit")["frames"][-1]["function"] == "watchdog"

    def test_sys_exit_is_called_as_before(self, workers: Workers) -> None:
        code = """
            import pickle, sys
            for args in [(), (None,), (1,), ((1, 2),), ([],), ("x",)]:
                try:
                    sys.exit(*args)
                except SystemExit as error:
                    print(error.args, error.code)
            try:
                sys.exit(1, 2)
            except TypeError:
                print("TypeError")
            print(sys.exit.__name__, sys.exit.__module__, pickle.loads(pickle.dumps(sys.exit)))
            """
        ours = workers.run(code).stdout.splitlines()
        plain = workers.run_plain(code).stdout.splitlines()
        assert ours[:-1] == plain[:-1]
        assert ours[-1].split()[:2] == plain[-1].split()[:2]


class TestThreads:
    CODE = """
        import os, threading
        def load():
            raise ValueError("no more data")
        thread = threading.Thread(target=load, name="loader")
        thread.start()
        thread.join()
        """

    def test_what_a_thread_died_of_is_recorded_and_shown_as_before(self, workers: Workers) -> None:
        ended = workers.run(self.CODE)
        record = ended.record("thread")
        assert ended.status == 0
        assert (record["thread"], record["type"], record["message"]) == (
            "loader",
            "ValueError",
            "no more data",
        )
        assert ended.stderr == workers.run_plain(self.CODE).stderr

    def test_it_does_not_hide_what_the_main_thread_died_of(self, workers: Workers) -> None:
        ended = workers.run(self.CODE + "raise KeyError('main')")
        assert ended.record("exception")["type"] == "KeyError"
        assert ended.record("thread")["type"] == "ValueError"


class TestForkedChildren:
    def test_the_end_of_a_child_is_not_the_workers(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import os, sys
            for how in ("raise", "exit", "hard"):
                if os.fork() == 0:
                    if how == "raise":
                        raise ValueError("child")
                    sys.exit(3) if how == "exit" else os._exit(3)
                os.wait()
            print("parent goes on")
            """
        )
        assert ended.stdout == "parent goes on\n"
        assert (ended.status, ended.records) == (0, set())

    def test_the_crash_of_a_child_is_not_the_workers(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import multiprocessing, os, signal
            def crash():
                os.kill(os.getpid(), signal.SIGSEGV)
            process = multiprocessing.get_context("fork").Process(target=crash)
            process.start()
            process.join()
            print(process.exitcode)
            """
        )
        assert (ended.stdout, ended.stderr, ended.status) == ("-11\n", "", 0)
        assert (ended.directory / "fault.txt").read_text() == ""


class TestCrash:
    @pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"])
    def test_a_fatal_signal_leaves_the_stacks_of_all_threads(
        self, workers: Workers, name: str
    ) -> None:
        ended = workers.run(
            f"""
            import os, signal, threading
            ready = threading.Event()
            def background():
                ready.set()
                threading.Event().wait()
            threading.Thread(target=background, daemon=True).start()
            ready.wait()
            def foreground():
                os.kill(os.getpid(), signal.{name})
            foreground()
            """
        )
        dump = (ended.directory / "fault.txt").read_text()
        assert ended.status == -getattr(signal, name)
        assert dump.startswith("Fatal Python error: ")
        assert " in foreground\n" in dump
        assert " in background\n" in dump
        assert ended.stderr == ""

    def test_a_crash_in_c_shows_who_called_it(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import ctypes
            def kernel():
                ctypes.string_at(8)
            kernel()
            """
        )
        assert ended.status == -signal.SIGSEGV
        assert " in kernel\n" in (ended.directory / "fault.txt").read_text()

    def test_a_script_that_wants_the_dump_on_stderr_gets_it_there(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import faulthandler, os, signal
            faulthandler.enable()
            os.kill(os.getpid(), signal.SIGSEGV)
            """
        )
        assert ended.stderr.startswith("Fatal Python error: Segmentation fault")
        assert (ended.directory / "fault.txt").read_text() == ""

    def test_so_does_a_user_who_asked_python_for_it(self, workers: Workers) -> None:
        ended = workers.run(
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            env={"PYTHONFAULTHANDLER": "1"},
        )
        assert ended.stderr.startswith("Fatal Python error: Segmentation fault")


class TestLocalVariables:
    CODE = """
        class Secretive:
            def __repr__(self): raise RuntimeError("must not be called")
        def train(rank, name="x" * 1000):
            batch = [1, 2, 3]
            model = Secretive()
            rate = 0.5
            raise ValueError
        train(3)
        """

    def test_they_are_recorded_when_asked_for_without_running_their_code(
        self, workers: Workers
    ) -> None:
        ended = workers.run(self.CODE, frame_locals=True)
        frame = ended.record("exception")["frames"][-1]
        assert frame["locals"] == {
            "rank": "3",
            "name": "'" + "x" * 199 + "…",
            "batch": "<list of 3>",
            "model": "<__main__.Secretive>",
            "rate": "0.5",
        }

    def test_they_stay_in_the_worker_otherwise(self, workers: Workers) -> None:
        assert "locals" not in workers.run(self.CODE).record("exception")["frames"][-1]


def test_a_record_is_whole_whenever_it_is_read(workers: Workers) -> None:
    """The agent may look at any moment; here a reader looks all the time."""
    code = """
        import sys, threading
        def die():
            raise ValueError("x" * 8_000)
        print("ready")
        sys.stderr = None
        while True:
            thread = threading.Thread(target=die)
            thread.start()
            thread.join()
        """
    with workers.running(code) as worker:
        worker.await_record("thread")
        path = worker.directory / "thread.json"
        for _ in range(300):
            assert json.loads(path.read_text())["type"] == "ValueError"


def test_a_forked_process_installs_it_by_itself(workers: Workers) -> None:
    """What is installed does not depend on how it got there."""
    package = Path(__file__).parents[2]
    ended = workers.run(
        f"""
        import os, sys
        sys.path.insert(0, {str(package)!r})
        import threading
        from dlrover_cli.workers.bootstrap.in_worker.install import install
        directory, page = sys.argv[1:]
        pid = os.fork()
        if pid == 0:
            install(directory, page)
            raise ValueError("forked")
        os.waitpid(pid, 0)
        """,
        *_another_worker(workers),
    )
    assert ended.status == 0, ended.stderr
    assert ended.records == set()
    recorded = json.loads((workers.directory / "worker_1" / "exception.json").read_text())
    assert recorded["message"] == "forked"


def _another_worker(workers: Workers) -> tuple[str, str]:
    _, directory, page = workers.environment()
    return str(directory), str(page.path)
