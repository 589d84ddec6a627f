"""A person looks into a worker: real terminals, real prompts, in warm and in fresh workers."""

import json
import os
import re
import signal
import socket
import termios

import pytest

from tests.harness.waiting import eventually

TWO = ["--standalone", "--nproc-per-node=2"]
STARTS = pytest.mark.parametrize("how", ["warm", pytest.param("fresh", marks=pytest.mark.full)])


def text_of(running):
    return running.stdout.replace("\r\n", "\n")


@STARTS
def test_a_breakpoint_opens_in_the_chosen_rank_and_the_others_are_held_back(
    start, scripts, tmp_path, how
):
    script = scripts.write(
        "stops.py",
        f"""
        import pathlib
        rank = int(os.environ["RANK"])
        answer = 40 + rank
        if rank == 0:
            open_ = pathlib.Path({str(tmp_path)!r}, "open")
            while not open_.exists():
                time.sleep(0.005)
            print("printed beside the prompt", flush=True)
            print("an error beside the prompt", file=sys.stderr)
            pathlib.Path(open_.parent, "printed").touch()
        breakpoint()
        print("rank", rank, "is done with", answer, flush=True)
        """,
    )
    running = start([*TWO, f"--worker_start={how}", "--debug_rank=1", script], tty=True)
    running.wait_for("(Pdb) ")
    (tmp_path / "open").touch()
    running.wait_for(lambda _: (tmp_path / "printed").exists())
    running.type(b"p answer + 1\r")
    running.wait_for("\n42")
    running.type(b"answer = 100\r")
    running.type(b"p 'still ' + 'here'\r")
    running.wait_for("'still here'")
    assert "beside the prompt" not in text_of(running)
    running.type(b"c\r")
    finished = running.finish()
    assert finished.returncode == 0, finished
    after = text_of(running).partition("still here")[2]
    assert "printed beside the prompt\n" in after
    assert "an error beside the prompt\n" in after
    assert "rank 0 is done with 40\n" in after
    assert "rank 1 is done with 100\n" in after


def test_lines_at_the_prompt_can_be_edited_and_ctrl_c_is_for_the_prompt(start, scripts):
    script = scripts.write("stops.py", "breakpoint()\nprint('went on', flush=True)\n")
    running = start([*TWO, "--debug_rank=0", script], tty=True)
    running.wait_for("(Pdb) ")
    running.type(b"p 'ab'\x1b[D\x1b[DX\r")  # two to the left, and an X
    running.wait_for("\n'aXb'")
    running.type(b"p 1 + \x03")
    running.wait_for("--KeyboardInterrupt--")
    before = running.terminal_modes()[6]
    running.type(b"p 'alive'\r")
    running.wait_for("\n'alive'")
    assert before[termios.VSUSP] == b"\0"  # Ctrl-Z would stop the launcher, and not the prompt
    running.type(b"c\r")
    finished = running.finish()
    assert finished.returncode == 0, finished
    assert text_of(running).count("\nwent on") == 2


def test_the_hang_timer_waits_for_a_person(start, scripts):
    script = scripts.write(
        "slow.py",
        """
        import dlrover_cli
        dlrover_cli.heartbeat()
        breakpoint()
        print("went on", flush=True)
        """,
    )
    options = ["--debug_rank=0", "--hang_timeout=0.5", "--hang_start_grace=0"]
    running = start(["--standalone", *options, script], tty=True)
    running.wait_for("(Pdb) ")
    running.type(b"import time; time.sleep(1.5); print('slept')\r")
    running.wait_for("\nslept")
    running.type(b"c\r")
    finished = running.finish()
    assert finished.returncode == 0, finished


@pytest.mark.full
def test_ctrl_c_beside_a_prompt_ends_the_job(start, scripts):
    script = scripts.write("runs.py", "print('ready', flush=True)\ntime.sleep(600)\n")
    running = start(["--standalone", "--debug_rank=0", script], tty=True)
    running.wait_for("ready")
    running.type(b"\x03")
    assert running.finish().returncode == 128 + signal.SIGINT


FAILS = """
rank = int(os.environ["RANK"])
def train(batch):
    secret = batch * 3
    raise ValueError(f"bad batch {batch}")
if rank == 1:
    train(7)
while True:
    print("beside", flush=True)
    time.sleep(0.01)
"""


@STARTS
def test_the_rank_that_fails_first_is_looked_into_before_anything_is_stopped(start, scripts, how):
    script = scripts.write("fails.py", FAILS)
    running = start([*TWO, f"--worker_start={how}", "--pdb", script], tty=True)
    running.wait_for("(Pdb) ")
    running.type(b"p secret\r")
    running.wait_for("\n21")
    shown = text_of(running)
    assert shown.index("ValueError: bad batch 7") < shown.index("rank 1 failed: ValueError")
    quiet = shown[shown.index("rank 1 failed: ValueError") :]
    assert "beside" not in quiet
    running.type(b"q\r")
    finished = running.finish()
    assert finished.returncode == 1, finished
    assert "rank 1" in finished.stdout.rpartition("(Pdb) ")[2]


def test_ranks_that_fail_meanwhile_wait_and_open_nothing(start, scripts):
    script = scripts.write("all_fail.py", "raise ValueError('rank ' + os.environ['RANK'])\n")
    running = start([*TWO, "--pdb", "--max-restarts=1", script], tty=True)
    running.wait_for("(Pdb) ")
    running.type(b"q\r")
    running.wait_for(lambda r: r.stdout.count("(Pdb) ") == 2)  # of the next attempt
    running.type(b"q\r")
    finished = running.finish()
    assert finished.returncode == 1, finished
    assert finished.stdout.count("post-mortem: ") == 2


@pytest.mark.full
@STARTS
def test_a_rank_that_is_killed_at_its_prompt_leaves_no_raw_terminal(start, scripts, how):
    script = scripts.write(
        "stops.py",
        """
        if os.environ["RANK"] == "0":
            os.write(1, b"pid %d stops\\n" % os.getpid())
        breakpoint()
        """,
    )
    running = start([*TWO, f"--worker_start={how}", "--debug_rank=0", script], tty=True)
    before = running.terminal_modes()
    running.wait_for("(Pdb) ")
    running.wait_for(lambda r: r.terminal_modes() != before)  # for readline
    os.kill(int(re.findall(r"pid (\d+) stops", running.stdout)[0]), signal.SIGKILL)
    running.wait_for("was killed by SIGKILL")
    assert running.poll(30) == 137
    assert running.terminal_modes() == before
    running.finish()


@pytest.mark.parametrize("option", ["--debug_rank=0", "--pdb"])
@STARTS
def test_a_launcher_that_is_killed_at_a_prompt_leaves_no_raw_terminal(start, scripts, how, option):
    script = scripts.write(
        "stops.py", "breakpoint()\n" if "rank" in option else "raise ValueError\n"
    )
    running = start(["--standalone", f"--worker_start={how}", option, script], tty=True)
    before = running.terminal_modes()
    running.wait_for("(Pdb) ")
    running.wait_for(lambda r: r.terminal_modes() != before)  # for readline
    running.kill()
    assert running.poll(30) == -signal.SIGKILL
    eventually(lambda: running.terminal_modes() == before)
    running.finish()


@pytest.mark.full
def test_a_rank_that_dies_beside_a_prompt_does_not_close_it(start, scripts, tmp_path):
    script = scripts.write(
        "dies.py",
        f"""
        import pathlib
        if os.environ["RANK"] == "1":
            while not pathlib.Path({str(tmp_path)!r}, "die").exists():
                time.sleep(0.005)
            pathlib.Path({str(tmp_path)!r}, "dead").touch()
            os._exit(5)
        raise ValueError("first")
        """,
    )
    running = start([*TWO, "--pdb", script], tty=True)
    running.wait_for("(Pdb) ")
    (tmp_path / "die").touch()
    running.wait_for(lambda r: (tmp_path / "dead").exists())
    running.type(b"p 'still ' + 'open'\r")
    running.wait_for("'still open'")
    running.type(b"q\r")
    assert running.finish().returncode in (1, 5)


def test_the_question_about_a_failure_offers_to_look_into_it(start, scripts):
    running = start([*TWO, "--interactive", scripts.write("fails.py", FAILS)], tty=True)
    running.wait_for("[p] look into it with pdb")
    running.type(b"p\r")
    running.wait_for("(Pdb) ")
    running.type(b"p secret\r")
    running.wait_for("\n21")
    # readline writes its prompt in pieces, so that a line of another rank could land within.
    assert "beside" not in text_of(running).partition("[p] look into it")[2]
    running.type(b"q\r")
    running.wait_for("Enter: ")
    running.type(b"a\r")
    assert running.finish().returncode == 82


def test_what_others_print_waits_for_the_answer_to_the_question(start, scripts, tmp_path):
    script = scripts.write(
        "ends.py",
        f"""
        import pathlib
        if rank == 1:
            os._exit(3)
        folder = pathlib.Path({str(tmp_path)!r})
        while not (folder / "asked").exists():
            time.sleep(0.005)
        print("beside", flush=True)
        (folder / "printed").touch()
        time.sleep(600)
        """,
    )
    running = start([*TWO, "--interactive", script], tty=True)
    running.wait_for("Enter: ")
    (tmp_path / "asked").touch()
    running.wait_for(lambda _: (tmp_path / "printed").exists())
    running.type(b"?\r")  # shows the question once more
    running.wait_for(lambda r: r.stdout.count("Enter: ") == 2)
    assert "beside" not in text_of(running)
    running.type(b"a\r")
    assert running.finish().returncode == 82
    assert "beside\n" in text_of(running)


@pytest.mark.full
def test_the_question_can_be_passed_by_and_ctrl_c_ends_the_job(start, scripts):
    script = scripts.write("fails.py", FAILS)
    running = start([*TWO, "--interactive", script], tty=True)
    running.wait_for("[p] look into it with pdb")
    running.type(b"\r")
    running.wait_for("Enter: ")
    running.type(b"\x03")
    assert running.finish().returncode == 128 + signal.SIGINT


@STARTS
def test_who_comes_to_a_breakpoint_that_nobody_asked_for_is_told_how_to_ask(start, scripts, how):
    script = scripts.write(
        "stops.py",
        """
        answer = 40 + rank
        if rank == 1:
            breakpoint()
            print("went on with", answer, flush=True)
        """,
    )
    running = start([*TWO, f"--worker_start={how}", script], tty=True)
    running.wait_for("dlrover-run: rank 1 has come to a breakpoint()")
    running.wait_for("--debug_rank 1 gives the terminal to that one alone")
    running.type(b"answer = 100\r")
    running.type(b"c\r")
    finished = running.finish()
    assert finished.returncode == 0, finished
    assert "\nwent on with 100\n" in text_of(running)  # the prompt was in the script's own frame
    assert text_of(running).count("has come to a breakpoint") == 1


@pytest.mark.full
def test_the_launcher_tells_of_a_breakpoint_whose_prompt_is_in_a_file(start, scripts):
    running = start([*TWO, "-r=3", scripts.write("stops.py", "breakpoint()\n")], tty=True)
    running.wait_for("ranks 0-1 have come to a breakpoint()")
    assert "(Pdb)" not in running.stdout
    running.type(b"c\r" * 2)
    assert running.finish().returncode == 0


@pytest.mark.parametrize("option", ["--pdb", "--debug_rank=0"])
def test_without_a_terminal_there_is_a_sentence(launch, scripts, option):
    finished = launch(["--standalone", option, scripts.hello()])
    assert finished.returncode == 2, finished
    assert "needs a terminal to type at" in finished.stderr


def test_a_worker_that_nobody_looks_into_sees_nothing_of_it(launch, scripts):
    names = ("DLROVER_DEBUG", "DLROVER_POST_MORTEM", "DLROVER_TERMINAL")
    code = f"print([name for name in {names} if name in os.environ], 'pdb' in sys.modules)\n"
    finished = launch(["--standalone", "--worker_start=fresh", scripts.write("looks.py", code)])
    assert finished.stdout == "[] False\n"


class Ide:
    """As much of an IDE as debugpy waits for (Debug Adapter Protocol)."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._file = self._socket.makefile("rb")
        self._number = 0

    def send(self, command, **arguments):
        self._number += 1
        body = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        text = json.dumps(body).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))

    def wait_for(self, kind, name):
        while True:
            length = int(self._file.readline().split(b":")[1])
            self._file.readline()
            message = json.loads(self._file.read(length))
            if message["type"] == kind and name in (message.get("event"), message.get("command")):
                return message

    def close(self):
        self._file.close()
        self._socket.close()


@pytest.mark.full
@pytest.mark.parametrize("how", ["warm", "fresh"])
def test_an_ide_is_waited_for_at_an_address_that_is_said(start, scripts, how):
    pytest.importorskip("debugpy")
    script = scripts.write("runs.py", "print('rank', rank, 'ran', flush=True)\n")
    options = [f"--worker_start={how}", "--debug_rank=1", "--debugger=debugpy"]
    running = start([*TWO, *options, script])
    said = running.wait_for(
        lambda seen: re.search(r"rank 1 waits .* 127\.0\.0\.1:(\d+)\n", seen.stderr)
    )
    running.wait_for("rank 0 ran")
    ide = Ide(int(said[1]))
    ide.send("initialize", adapterID="test")
    ide.wait_for("response", "initialize")
    assert "rank 1 ran" not in running.stdout
    ide.send("attach", justMyCode=True)
    ide.wait_for("event", "initialized")
    ide.send("configurationDone", restart=False)
    ide.wait_for("response", "configurationDone")
    finished = running.finish()
    ide.close()
    assert finished.returncode == 0, finished
    assert "rank 1 ran" in finished.stdout
