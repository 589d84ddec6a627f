"""Ending the processes of a run: those that run away, hide, resist, or only look like one of it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from dlrover_cli.platforms.local.process_tree import find_processes, stop_tree
from dlrover_cli.platforms.local.run_processes import own_line
from tests.harness.processes import process_info
from tests.harness.waiting import eventually
from tests.platforms.local.job_processes import JobProcesses, all_gone

PATIENT = 30.0
"""A grace that no test waits for in full."""


def seconds_of(began: float) -> float:
    return time.monotonic() - began


class TestGoodOrder:
    def test_a_process_that_ends_on_term_is_not_killed(self, processes: JobProcesses) -> None:
        main = processes.start(
            "signal.signal(signal.SIGTERM, lambda *_: (note('saved'), sys.exit(0)))\n"
            "ready('main'); for_ever()"
        )
        processes.ready("main")
        assert stop_tree(processes.run_id, [main], grace=PATIENT) == ()
        assert processes.notes("saved") == "x"
        assert processes.children[0].wait() == 0

    def test_every_process_of_the_run_gets_term_once(self, processes: JobProcesses) -> None:
        main = processes.start(
            "signal.signal(signal.SIGTERM, lambda *_: note(f'term-{os.getpid()}'))\n"
            "def until_told():\n"
            "    while not os.path.exists(f'{HERE}/term-{os.getpid()}'): signal.pause()\n"
            "if os.fork() == 0: ready('child'); until_told(); os._exit(0)\n"
            "ready('main'); until_told(); os.wait()"
        )
        child = processes.ready("child")
        processes.ready("main")
        assert stop_tree(processes.run_id, [main], grace=PATIENT) == ()
        assert processes.notes(f"term-{main.pid}") == "x"
        assert processes.notes(f"term-{child.pid}") == "x"

    def test_the_end_of_the_last_process_ends_the_waiting(self, processes: JobProcesses) -> None:
        main = processes.start("ready('main'); for_ever()")
        processes.ready("main")
        began = time.monotonic()
        stop_tree(processes.run_id, [main], grace=PATIENT)
        assert seconds_of(began) < PATIENT / 2

    def test_a_stopped_process_hears_of_it_too(self, processes: JobProcesses) -> None:
        main = processes.start(
            "signal.signal(signal.SIGTERM, lambda *_: (note('saved'), sys.exit(0)))\n"
            "ready('main'); for_ever()"
        )
        processes.ready("main")
        os.kill(main.pid, signal.SIGSTOP)
        assert stop_tree(processes.run_id, [main], grace=PATIENT) == ()
        assert processes.notes("saved") == "x"

    def test_a_leader_is_told_alone_and_stops_the_others(self, processes: JobProcesses) -> None:
        leader = processes.start(
            "import subprocess\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    signal.signal(signal.SIGTERM, lambda *_: note('child-term'))\n"
            "    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))\n"
            "    ready('child'); for_ever()\n"
            "def stop(*_): os.kill(child, signal.SIGUSR1); os.wait(); note('order'); os._exit(0)\n"
            "signal.signal(signal.SIGTERM, stop); ready('leader'); for_ever()"
        )
        processes.ready("child")
        processes.ready("leader")
        assert stop_tree(processes.run_id, [leader], grace=PATIENT, leader=leader) == ()
        assert processes.notes("order") == "x"
        assert processes.notes("child-term") == ""

    def test_what_a_leader_leaves_behind_is_ended(self, processes: JobProcesses) -> None:
        leader = processes.start(
            "if os.fork() == 0: os.setsid(); ready('left'); for_ever()\nready('leader'); for_ever()"
        )
        left = processes.ready("left")
        processes.ready("leader")
        assert stop_tree(processes.run_id, [leader], grace=PATIENT, leader=leader) == ()
        assert all_gone(leader, left)


class TestResistance:
    def test_after_the_grace_comes_kill(self, processes: JobProcesses) -> None:
        main = processes.start("ignore_term(); ready('main'); for_ever()")
        processes.ready("main")
        began = time.monotonic()
        assert stop_tree(processes.run_id, [main], grace=0.3) == ()
        assert seconds_of(began) >= 0.3
        assert processes.children[0].wait() == -signal.SIGKILL

    def test_a_leader_that_does_not_end_does_not_save_the_others(
        self, processes: JobProcesses
    ) -> None:
        leader = processes.start(
            "ignore_term()\nif os.fork() == 0: ready('child'); for_ever()\n"
            "ready('leader'); for_ever()"
        )
        child = processes.ready("child")
        processes.ready("leader")
        assert stop_tree(processes.run_id, [leader], grace=0.2, leader=leader) == ()
        assert all_gone(leader, child)

    def test_without_grace_it_is_killed_at_once(self, processes: JobProcesses) -> None:
        main = processes.start(
            "signal.signal(signal.SIGTERM, lambda *_: note('term'))\nready('main'); for_ever()"
        )
        processes.ready("main")
        assert stop_tree(processes.run_id, [main], grace=0) == ()
        assert processes.notes("term") == ""
        assert all_gone(main)

    @pytest.mark.parametrize(
        "away",
        [
            pytest.param("ignore_term()", id="ignores TERM"),
            pytest.param("os.setsid(); ignore_term()", id="setsid"),
            pytest.param("os.setpgid(0, 0); ignore_term()", id="own group"),
            pytest.param(
                "os.setsid()\n    if os.fork(): os._exit(0)\n    ignore_term()", id="daemon"
            ),
        ],
    )
    def test_descendants_are_ended_wherever_they_went(
        self, processes: JobProcesses, away: str
    ) -> None:
        main = processes.start(
            f"if os.fork() == 0:\n    {away}\n    ready('child'); for_ever()\nos.wait()\n"
            if "fork" in away
            else f"if os.fork() == 0:\n    {away}\n    ready('child'); for_ever()\n"
            "ready('main'); for_ever()"
        )
        child = processes.ready("child")
        assert stop_tree(processes.run_id, [main], grace=0.2) == ()
        assert all_gone(main, child)

    def test_a_daemon_is_ended_when_only_the_run_id_is_known(self, processes: JobProcesses) -> None:
        processes.start(
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
            "    ready('daemon'); for_ever()\n"
        )
        daemon = processes.ready("daemon")
        processes.children[0].wait()
        assert find_processes(processes.run_id) == (daemon,)
        assert stop_tree(processes.run_id, [], grace=PATIENT) == ()
        assert all_gone(daemon)

    @pytest.mark.parametrize("leave", ["", "os.setsid()"], ids=["same session", "own session"])
    def test_a_child_that_cleared_its_environment_is_found_by_its_parent(
        self, processes: JobProcesses, leave: str
    ) -> None:
        main = processes.start(
            f"if os.fork() == 0:\n    {leave or 'pass'}\n    ignore_term()\n"
            "    os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', '''\n"
            "import os, signal, sys\n"
            "open(sys.argv[1] + '/bare.part', 'w').write(str(os.getpid()))\n"
            "os.rename(sys.argv[1] + '/bare.part', sys.argv[1] + '/bare')\n"
            "while True: signal.pause()''', HERE], {})\n"
            "ready('main'); for_ever()"
        )
        bare = processes.ready("bare")
        assert stop_tree(processes.run_id, [main], grace=0.2) == ()
        assert all_gone(main, bare)

    def test_an_orphan_without_an_environment_is_found_by_its_session(
        self, processes: JobProcesses
    ) -> None:
        main = processes.start(
            "if os.fork() == 0:\n"
            "    if os.fork(): os._exit(0)\n"
            "    os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', '''\n"
            "import os, signal, sys\n"
            "open(sys.argv[1] + '/bare.part', 'w').write(str(os.getpid()))\n"
            "os.rename(sys.argv[1] + '/bare.part', sys.argv[1] + '/bare')\n"
            "while True: signal.pause()''', HERE], {})\n"
            "os.wait(); ready('main'); for_ever()"
        )
        bare = processes.ready("bare")
        processes.ready("main")
        assert stop_tree(processes.run_id, [main], grace=0) == ()
        assert all_gone(main, bare)

    def test_a_process_whose_first_thread_has_ended_is_no_zombie(
        self, processes: JobProcesses
    ) -> None:
        processes.start(
            "import ctypes, threading\n"
            "libc = ctypes.CDLL(None); ignore_term(); ready('main')\n"
            "threading.Thread(target=libc.pause).start()\n"
            "libc.pthread_exit(None)"
        )
        main = processes.ready("main")
        eventually(lambda: process_info(main.pid).state == "Z", what="its first thread has ended")
        assert main.is_alive()
        assert find_processes(processes.run_id) == (main,)
        assert stop_tree(processes.run_id, [], grace=0) == ()
        assert processes.children[0].wait() == -signal.SIGKILL
        assert not main.is_alive()

    def test_what_is_started_on_the_way_out_is_ended(self, processes: JobProcesses) -> None:
        main = processes.start(
            "def stop(*_):\n"
            "    if os.fork() == 0: os.setsid(); ignore_term(); ready('late'); for_ever()\n"
            "    while not os.path.exists(f'{HERE}/late'): time.sleep(0.01)\n"
            "    os._exit(0)\n"
            "signal.signal(signal.SIGTERM, stop); ready('main'); for_ever()"
        )
        processes.ready("main")
        assert stop_tree(processes.run_id, [main], grace=1) == ()
        assert processes.notes("late")
        assert find_processes(processes.run_id) == ()


class TestFastForks:
    def test_a_chain_that_never_stays_in_one_process_is_caught(
        self, processes: JobProcesses
    ) -> None:
        """Each link forks the next one and exits: whoever is found is gone when it is signalled."""
        processes.start(
            "ignore_term(); ready('first')\n"
            "while goes_on():\n    if os.fork(): os._exit(0)\n    time.sleep(0.001)\n"
        )
        processes.ready("first")
        processes.children[0].wait()
        assert stop_tree(processes.run_id, [], grace=0) == ()
        assert find_processes(processes.run_id) == ()

    def test_a_chain_that_changes_its_session_too_is_caught(self, processes: JobProcesses) -> None:
        processes.start(
            "ignore_term(); ready('first')\n"
            "while goes_on():\n    if os.fork(): os._exit(0)\n    os.setsid(); time.sleep(0.001)\n"
        )
        processes.ready("first")
        processes.children[0].wait()
        assert stop_tree(processes.run_id, [], grace=0) == ()
        assert find_processes(processes.run_id) == ()

    def test_processes_that_replace_each_other_are_caught(self, processes: JobProcesses) -> None:
        """Whoever loses a child starts another; children fork, too: killing breeds."""
        main = processes.start(
            "ignore_term()\n"
            "def breed(depth):\n"
            "    alive = set()\n"
            "    while goes_on():\n"
            "        while len(alive) < 3:\n"
            "            pid = os.fork()\n"
            "            if pid == 0:\n"
            "                os.setpgid(0, 0) if depth == 1 else None\n"
            "                breed(depth - 1) if depth else for_ever()\n"
            "            alive.add(pid)\n"
            "        note(f'full-{depth}')\n"
            "        alive.discard(os.wait()[0])\n"
            "breed(2)"
        )
        eventually(lambda: len(processes.notes("full-0")) >= 9, what="all are there")
        assert len(find_processes(processes.run_id, [main])) >= 30
        assert stop_tree(processes.run_id, [main], grace=0) == ()
        assert find_processes(processes.run_id) == ()


class TestOthers:
    def test_a_pid_that_was_given_to_another_process_is_not_signalled(
        self, processes: JobProcesses
    ) -> None:
        other = processes.start("ready('other'); for_ever()", run_id="another run")
        processes.ready("other")
        assert other.start_time is not None
        reused = replace(other, start_time=other.start_time - 1)
        assert stop_tree(processes.run_id, [reused], grace=PATIENT, leader=reused) == ()
        assert other.is_alive()

    def test_a_process_of_an_earlier_boot_is_not_signalled(self, processes: JobProcesses) -> None:
        other = processes.start("ready('other'); for_ever()", run_id="another run")
        processes.ready("other")
        assert stop_tree(processes.run_id, [replace(other, boot_id="before")], grace=1) == ()
        assert other.is_alive()

    def test_a_run_that_the_job_started_is_spared_with_all_below_it(
        self, processes: JobProcesses
    ) -> None:
        main = processes.start(
            "import subprocess\n"
            "code = '''import os, signal, subprocess, sys\n"
            "if len(sys.argv) < 3:\n"
            "    subprocess.Popen([sys.executable, '-I', '-S', '-c', CODE, sys.argv[1], 'x'],"
            " env={})\n"
            "name = sys.argv[1] + ('/nested-child' if len(sys.argv) > 2 else '/nested')\n"
            "open(name + '.part', 'w').write(str(os.getpid()))\n"
            "os.rename(name + '.part', name)\n"
            "while True: signal.pause()'''\n"
            "code = 'CODE = ' + repr(code) + chr(10) + code\n"
            "code = 'CODE = ' + repr(code) + chr(10) + code\n"
            "subprocess.Popen([sys.executable, '-I', '-S', '-c', code, HERE],\n"
            "    env={**os.environ, 'DLROVER_RUN_ID': 'nested'}, start_new_session=True)\n"
            "ready('main'); for_ever()"
        )
        nested, below = processes.ready("nested"), processes.ready("nested-child")
        processes.ready("main")
        try:
            assert stop_tree(processes.run_id, [main], grace=0.2) == ()
            assert all_gone(main)
            assert nested.is_alive()
            assert below.is_alive()
        finally:
            below.signal(signal.SIGKILL)
            nested.signal(signal.SIGKILL)

    def test_a_process_of_a_run_with_a_longer_id_is_another_ones(
        self, processes: JobProcesses
    ) -> None:
        other = processes.start("ready('other'); for_ever()", run_id=f"{processes.run_id}-2")
        processes.ready("other")
        assert find_processes(processes.run_id) == ()
        assert find_processes(f"{processes.run_id}-2") == (other,)

    def test_a_zombie_is_neither_found_nor_waited_for(self, processes: JobProcesses) -> None:
        main = processes.start(
            "if os.fork() == 0: note('gone'); os._exit(0)\nready('main'); for_ever()"
        )
        processes.ready("main")
        eventually(lambda: len(find_processes(processes.run_id)) == 1, what="the child is a zombie")
        began = time.monotonic()
        assert stop_tree(processes.run_id, [main], grace=PATIENT) == ()
        assert seconds_of(began) < PATIENT / 2
        # Nobody has asked for the main process's status yet: it is a zombie, too.
        assert stop_tree(processes.run_id, [main], grace=PATIENT, leader=main) == ()
        assert seconds_of(began) < PATIENT / 2

    def test_the_process_that_stops_and_its_ancestors_are_spared(
        self, processes: JobProcesses
    ) -> None:
        """A job that stops itself: everything else of the run ends."""
        code = (
            "from dlrover_cli.platforms.local.process_tree import stop_tree\n"
            "import os, sys\n"
            "left = stop_tree(sys.argv[1], [], grace=0)\n"
            "print(left, flush=True)"
        )
        sibling = processes.start("ready('sibling'); for_ever()")
        processes.ready("sibling")
        finished = subprocess.run(
            [
                "/bin/sh",
                "-c",
                '"$0" -c "$@"; echo still here',
                sys.executable,
                code,
                processes.run_id,
            ],
            env={**os.environ, "DLROVER_RUN_ID": processes.run_id},
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        assert finished.stdout == "()\nstill here\n"
        assert all_gone(sibling)

    def test_own_line_goes_up_to_the_first_process(self) -> None:
        line = own_line()
        assert {os.getpid(), os.getppid()} <= line

    def test_what_cannot_be_ended_is_returned(
        self, processes: JobProcesses, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a process in uninterruptible sleep: signals are sent and have no effect."""
        main = processes.start("ready('main'); for_ever()")
        processes.ready("main")
        with monkeypatch.context() as patch:
            patch.setattr(signal, "pidfd_send_signal", lambda *_: None)
            assert stop_tree(processes.run_id, [main], grace=0, patience=0.2) == (main,)
        assert main.is_alive()
