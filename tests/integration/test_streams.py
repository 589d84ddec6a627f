"""What the workers write and where it goes: console, files, filters, terminals, full disks."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TWO = ["--nproc-per-node=2"]


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def of_workers(text: str) -> list[str]:
    """The lines that are not the launcher's own."""
    return [line for line in lines(text) if not line.startswith("dlrover-run:")]


def files_below(directory: Path) -> dict[str, str]:
    """Path below the directory of the run and the attempt, to content; error files left out."""
    [run] = directory.iterdir()
    return {
        str(path.relative_to(run)): path.read_text()
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


# ---- console and files -------------------------------------------------------------------------


def test_both_streams_reach_the_console_as_they_are(launch, scripts):
    finished = launch([*TWO, scripts.hello()])
    assert finished.returncode == 0, finished
    assert lines(finished.stdout) == ["hello from rank 0 of 2", "hello from rank 1 of 2"]
    assert of_workers(finished.stderr) == ["warning from rank 0", "warning from rank 1"]


@pytest.mark.parametrize(
    "value, stdouts, stderrs",
    [("1", {0, 1}, set()), ("2", set(), {0, 1}), ("3", {0, 1}, {0, 1}), ("0:1,1:2", {0}, {1})],
)
def test_redirected_streams_are_in_files_and_nowhere_else(
    launch, scripts, log_dir, value, stdouts, stderrs
):
    finished = launch(["-r", value, f"--log-dir={log_dir}", *TWO, scripts.hello()])
    assert finished.returncode == 0, finished
    expected = {
        f"attempt_0/{rank}/stdout.log": f"hello from rank {rank} of 2\n" for rank in stdouts
    } | {f"attempt_0/{rank}/stderr.log": f"warning from rank {rank}\n" for rank in stderrs}
    assert files_below(log_dir) == expected
    assert lines(finished.stdout) == [
        f"hello from rank {rank} of 2" for rank in (0, 1) if rank not in stdouts
    ]
    assert of_workers(finished.stderr) == [
        f"warning from rank {rank}" for rank in (0, 1) if rank not in stderrs
    ]


def test_ranks_above_nine_can_be_redirected(launch, scripts, log_dir):
    argv = ["-r", "0:1,10:3", f"--log-dir={log_dir}", "--nproc-per-node=11", scripts.hello()]
    finished = launch(argv)
    assert finished.returncode == 0, finished
    assert sorted(files_below(log_dir)) == [
        "attempt_0/0/stdout.log",
        "attempt_0/10/stderr.log",
        "attempt_0/10/stdout.log",
    ]
    assert len(lines(finished.stdout)) == 9
    assert len(of_workers(finished.stderr)) == 10


def test_teed_streams_are_in_files_and_prefixed_on_the_console(launch, scripts, log_dir):
    finished = launch(["-t3", f"--log-dir={log_dir}", *TWO, scripts.hello()])
    assert finished.returncode == 0, finished
    assert lines(finished.stdout) == [f"[default{r}]:hello from rank {r} of 2" for r in (0, 1)]
    assert of_workers(finished.stderr) == [f"[default{r}]:warning from rank {r}" for r in (0, 1)]
    assert files_below(log_dir) == {
        f"attempt_0/{rank}/{name}.log": text.format(rank)
        for rank in (0, 1)
        for name, text in (
            ("stdout", "hello from rank {} of 2\n"),
            ("stderr", "warning from rank {}\n"),
        )
    }


def test_the_prefix_comes_from_torchs_template(launch, scripts, log_dir):
    finished = launch(
        ["-t1", "--role=trainer", f"--log-dir={log_dir}", *TWO, scripts.hello()],
        env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank}/${local_rank} ${x}> "},
    )
    assert finished.returncode == 0, finished
    assert lines(finished.stdout) == [
        f"<trainer {rank}/{rank} ${{x}}> hello from rank {rank} of 2" for rank in (0, 1)
    ]


def test_a_rank_filter_keeps_the_others_off_the_console(launch, scripts):
    finished = launch(["--local-ranks-filter=1", *TWO, scripts.hello()])
    assert finished.returncode == 0, finished
    assert lines(finished.stdout) == ["hello from rank 1 of 2"]
    assert of_workers(finished.stderr) == ["warning from rank 1"]


def test_global_ranks_are_chosen_and_every_line_has_its_prefix(launch, scripts):
    prefix = "<${host} ${node_rank} ${rank}/${local_rank} #${attempt}> "
    argv = ["--nproc-per-node=12", "--ranks_filter=1,10-11", f"--log_prefix={prefix}"]
    finished = launch([*argv, scripts.hello()])
    assert finished.returncode == 0, finished
    host = socket.gethostname()
    assert lines(finished.stdout) == sorted(
        f"<{host} 0 {rank}/{rank} #0> hello from rank {rank} of 12" for rank in (1, 10, 11)
    )
    assert of_workers(finished.stderr) == sorted(
        f"<{host} 0 {rank}/{rank} #0> warning from rank {rank}" for rank in (1, 10, 11)
    )


def test_a_rank_filter_does_not_keep_others_from_their_files(launch, scripts, log_dir):
    argv = ["--local-ranks-filter=1", "-t1", f"--log-dir={log_dir}", *TWO, scripts.hello()]
    finished = launch(argv)
    assert finished.returncode == 0, finished
    assert lines(finished.stdout) == ["[default1]:hello from rank 1 of 2"]
    written = files_below(log_dir)
    assert {path: text for path, text in written.items() if text} == {
        f"attempt_0/{rank}/stdout.log": f"hello from rank {rank} of 2\n" for rank in (0, 1)
    }


def test_lines_that_match_a_filter_are_collected(launch, scripts, log_dir):
    script = scripts.write(
        "filtered.py",
        """
        for number in range(3):
            say(f"loss of rank {rank} is {number}")
            say("nothing to see")
            os.write(2, f"WARN {rank} {number}\\n".encode())
        """,
    )
    finished = launch(
        [
            "-t3",
            f"--log-dir={log_dir}",
            "--duplicate-stdout-filters=loss,never",
            "--duplicate-stderr-filters=WARN",
            *TWO,
            script,
        ]
    )
    assert finished.returncode == 0, finished
    written = files_below(log_dir)
    assert lines(written["attempt_0/filtered_stdout.log"]) == [
        f"[default{rank}]:loss of rank {rank} is {number}" for rank in (0, 1) for number in range(3)
    ]
    assert len(lines(written["attempt_0/filtered_stderr.log"])) == 6


def test_each_attempt_has_its_files(launch, scripts, log_dir):
    script = scripts.crash(rank=1, attempts=2)
    finished = launch(["-r3", "--max-restarts=2", f"--log-dir={log_dir}", *TWO, script])
    assert finished.returncode == 0, finished
    written = files_below(log_dir)
    assert [written[f"attempt_{k}/1/stdout.log"] for k in (0, 1, 2)] == [
        "rank 1 crashes in attempt 0\n",
        "rank 1 crashes in attempt 1\n",
        "",
    ]


def test_bytes_that_are_no_text_pass_unchanged(launch, scripts, log_dir, tmp_path):
    script = scripts.write(
        "bytes.py", "os.write(1, bytes(range(256)) + b'\\n')\nos.write(2, b'\\xff\\xfe\\n')\n"
    )
    finished = launch(["-t1", f"--log-dir={log_dir}", "--nproc-per-node=1", script])
    assert finished.returncode == 0, finished
    [path] = log_dir.rglob("stdout.log")
    assert path.read_bytes() == bytes(range(256)) + b"\n"
    [kept] = (tmp_path / "state").rglob("stderr.log")
    assert kept.read_bytes() == b"\xff\xfe\n"


FLOOD = """
block = b"x" * 1023 + b"\\n"
def write(megabytes):
    for _ in range(megabytes * 64):
        os.write(2, block * 16)

if rank == 1:
    write(16)
    leave("warm")
    while not os.path.exists(GO): time.sleep(0.01)
    write(256)
    leave("done")
    while not os.path.exists(END): time.sleep(0.01)
"""


@pytest.mark.full
@pytest.mark.parametrize("teed", [(), ("-t", "1:2")], ids=["kept", "teed"])
def test_a_worker_that_floods_its_log_does_not_grow_the_agent(start, scripts, tmp_path, teed):
    go, end = tmp_path / "go", tmp_path / "end"
    script = scripts.write("flood.py", FLOOD, GO=str(go), END=str(end))
    running = start(["--nproc-per-node=2", *teed, script])

    def peak():
        status = Path(f"/proc/{running.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])

    running.wait_for(lambda _: scripts.facts("warm"), 60)
    before = peak()
    go.touch()
    running.wait_for(lambda _: scripts.facts("done"), 120)
    assert peak() - before < 32 << 10
    end.touch()
    assert running.finish().returncode == 0


def test_last_words_are_part_of_the_verdict(launch, scripts, tmp_path):
    """However much was written before them."""
    script = scripts.write(
        "last_words.py",
        """
        os.write(2, b"noise\\n" * 100_000)
        os.write(2, b"the reason why\\n")
        sys.exit(9)
        """,
    )
    finished = launch(["--nproc-per-node=1", script])
    assert finished.returncode == 9, finished
    [failure] = (tmp_path / "state").rglob("failures/1.json")
    assert "the reason why" in json.loads(failure.read_text())["log_content"]
    # The launcher speaks after the worker has spoken.
    assert finished.stderr.index("the reason why") < finished.stderr.index("exited with code 9")


# ---- stdin, terminals, closed streams ----------------------------------------------------------


def test_workers_have_the_launchers_stdin(launch, scripts):
    script = scripts.write("stdin.py", "say(sys.stdin.read().upper())\n")
    finished = launch(["--nproc-per-node=1", script], stdin=b"some text\n")
    assert finished.returncode == 0, finished
    assert "SOME TEXT" in finished.stdout


def test_on_a_terminal_all_three_streams_are_terminals(start, scripts):
    script = scripts.write(
        "terminal.py",
        """
        say(f"terminals {[os.isatty(n) for n in range(3)]}")
        print("\\x1b[1mbold\\x1b[0m", file=sys.stderr)
        """,
    )
    finished = start(["--nproc-per-node=1", script], tty=True).finish()
    assert finished.returncode == 0, finished
    assert "terminals [True, True, True]" in finished.stdout
    assert "\x1b[1mbold\x1b[0m\n" in finished.stdout.replace("\r\n", "\n")
    assert "\r\r" not in finished.stdout


def test_a_worker_can_ask_a_person_at_the_terminal(start, scripts):
    running = start(
        ["--nproc-per-node=1", scripts.write("ask.py", "say(f'hello {input()}')\n")], tty=True
    )
    running.wait_for(lambda running: len(running.processes()) >= 3)
    running.type(b"Ada\n")
    finished = running.finish()
    assert finished.returncode == 0, finished
    assert "hello Ada" in finished.stdout


@pytest.mark.parametrize(
    "redirection",
    [
        pytest.param("<&-", marks=pytest.mark.full),
        pytest.param(">&-", marks=pytest.mark.full),
        "<&- >&- 2>&-",
    ],
    ids=["no stdin", "no stdout", "none"],
)
def test_a_launcher_without_streams_works(launch, scripts, tmp_path, redirection):
    """What it opens itself must not become a worker's stream."""
    script = scripts.write(
        "streams.py",
        """
        leave("streams", targets=[os.readlink(f"/proc/self/fd/{n}") for n in range(3)])
        for n in (1, 2):
            os.write(n, b"written by a worker\\n")
        """,
    )
    dlrover_run = Path(sys.executable).with_name("dlrover-run")
    shell = f'exec {dlrover_run} --nproc-per-node=1 "$0" {redirection}'
    finished = launch([script], command=["sh", "-c", shell])
    assert finished.returncode == 0, finished
    [fact] = scripts.facts("streams")
    closed = {"<&-": [0], ">&-": [1], "<&- >&- 2>&-": [0, 1]}[redirection]
    assert [fact["targets"][n] for n in closed] == [os.devnull] * len(closed)
    [journal] = (tmp_path / "state").glob("dlrover/runs/*/nodes/*/events.jsonl")
    kinds = [json.loads(line)["kind"] for line in journal.read_text().splitlines()]
    assert kinds[-1] == "run_finished"


@pytest.mark.full
def test_a_console_that_nobody_reads_does_not_end_the_job(launch, scripts):
    script = scripts.write(
        "chatter.py",
        """
        for number in range(2000):
            os.write(2, b"a line on stderr that nobody reads\\n" * 10)
        leave("end")
        """,
    )
    dlrover_run = Path(sys.executable).with_name("dlrover-run")
    shell = (
        f'{{ {dlrover_run} --nproc-per-node=1 "$0" 2>&1 >/dev/null; echo rc $? >&2; }} 2>&3 | true'
    )
    launch([script], command=["sh", "-c", "exec 3>&2; " + shell])
    assert len(scripts.facts("end")) == 1


# ---- trouble with files ------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["/proc/none", "a-file", "a-file/below"])
def test_a_log_directory_that_cannot_be_written_is_a_sentence(launch, scripts, tmp_path, below):
    (tmp_path / "a-file").touch()
    finished = launch([f"--log-dir={tmp_path / below}", *TWO, scripts.hello()])
    assert finished.returncode == 2, finished
    assert "Traceback" not in finished.stderr
    assert "--log-dir" in finished.stderr
    assert "hint:" in finished.stderr
    assert finished.stdout == ""


def test_a_full_disk_costs_the_teed_file_and_one_line(launch, scripts, small_disk):
    script = scripts.write("much.py", 'say("x" * 99)\n' * 2000)
    finished = launch(["-t1", f"--log-dir={small_disk}", "--nproc-per-node=1", script])
    assert finished.returncode == 0, finished
    assert finished.stdout == ("[default0]:" + "x" * 99 + "\n") * 2000
    assert finished.stderr.count("No space left on device") == 1


def test_a_full_disk_under_the_run_directory_does_not_end_the_job(launch, scripts, small_disk):
    script = scripts.write("much.py", 'os.write(2, b"x" * 99 + b"\\n")\n' * 2000)
    finished = launch(
        ["--nproc-per-node=1", script], env={"XDG_STATE_HOME": str(small_disk / "state")}
    )
    assert finished.returncode == 0, finished
    assert finished.stderr.count("x" * 99) == 2000
    assert "No space left on device" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_disk_that_is_full_from_the_start_does_not_end_the_job(launch, scripts, small_disk):
    (small_disk / "filler").write_bytes(bytes(65536))
    finished = launch(
        ["--nproc-per-node=2", scripts.hello()],
        env={"XDG_STATE_HOME": str(small_disk / "state")},
    )
    assert finished.returncode == 0, finished
    assert "Traceback" not in finished.stderr
    assert lines(finished.stdout) == ["hello from rank 0 of 2", "hello from rank 1 of 2"]


def test_a_failure_on_a_full_disk_keeps_its_exit_code(launch, scripts, small_disk):
    (small_disk / "filler").write_bytes(bytes(65536))
    finished = launch(
        ["--nproc-per-node=1", scripts.crash(how=7)],
        env={"XDG_STATE_HOME": str(small_disk / "state")},
    )
    assert finished.returncode == 7, finished
    assert "Traceback" not in finished.stderr
