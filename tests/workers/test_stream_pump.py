"""The pump: real pipes, terminals, files and disks that fill up."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from dlrover_cli.workers.streams import LineFilter, StreamPlan, StreamPump
from tests.harness.waiting import eventually


class Console:
    """A descriptor to print on, and a thread that keeps what was printed."""

    def __init__(self, read, write):
        self._read = read
        self.fd = write
        self._seen = bytearray()
        self._thread = threading.Thread(target=self._collect)
        self._thread.start()

    def text(self):
        """Everything, once the console is closed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._thread.join()
            os.close(self._read)
        return bytes(self._seen)

    def _collect(self):
        with contextlib.suppress(OSError):  # EIO: the end of a terminal
            while chunk := os.read(self._read, 1 << 16):
                self._seen += chunk


@pytest.fixture
def console():
    console = Console(*os.pipe())
    yield console
    console.text()


@pytest.fixture
def terminal():
    console = Console(*pty.openpty())
    yield console
    console.text()


@pytest.fixture
def pump(problems):
    return StreamPump(problems.append)


def write(pump, plan, *pieces, rank=0, name="stderr"):
    """Be a worker that writes the pieces and ends."""
    fd, ours = pump.open(rank, name, plan)
    pump.start()
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(fd, view) :]
    if ours:
        os.close(fd)


def open_descriptors():
    return set(os.listdir("/proc/self/fd"))


# ---- without a pump ----------------------------------------------------------------------------


def test_a_stream_that_needs_no_copy_is_handed_on_as_it_is(pump):
    assert pump.open(0, "stdout", StreamPlan(console=1)) == (1, False)
    assert pump.tail(0, "stdout") is None
    assert pump.finish() == []


def test_a_redirected_stream_is_the_file_itself(pump, tmp_path):
    path = tmp_path / "stdout.log"
    fd, ours = pump.open(0, "stdout", StreamPlan(file=str(path)))
    os.write(fd, b"line\n")
    os.close(fd)
    assert ours
    assert path.read_bytes() == b"line\n"
    pump.finish()


def test_a_stream_without_destination_goes_nowhere(pump):
    fd, ours = pump.open(0, "stdout", StreamPlan())
    os.write(fd, b"unseen")
    os.close(fd)
    assert ours
    pump.finish()


def test_a_redirect_that_cannot_be_opened_is_the_callers_to_report(pump, tmp_path, problems):
    with pytest.raises(FileNotFoundError):
        pump.open(0, "stdout", StreamPlan(file=str(tmp_path / "missing" / "stdout.log")))
    assert problems == []
    pump.finish()


# ---- copies ------------------------------------------------------------------------------------


def test_a_kept_stream_reaches_console_file_and_tail_byte_for_byte(pump, console, tmp_path):
    path = tmp_path / "stderr.log"
    text = b"first\r50%\r100%\nno newline at the end \xff\xfe\x00 \xe2\x82"
    write(pump, StreamPlan(file=str(path), console=console.fd, keep_tail=True), text)
    assert pump.tail(0, "stderr") == text.decode("utf-8", "replace")
    assert pump.finish() == []
    assert console.text() == text
    assert path.read_bytes() == text


def test_each_teed_line_has_its_prefix_and_the_file_has_none(pump, console, tmp_path):
    path = tmp_path / "stdout.log"
    plan = StreamPlan(file=str(path), console=console.fd, prefix="[worker0]:", keep_tail=True)
    write(pump, plan, b"one\ntw", b"o\n\nlast without newline", name="stdout")
    pump.finish()
    assert console.text() == (
        b"[worker0]:one\n[worker0]:two\n[worker0]:\n[worker0]:last without newline"
    )
    assert path.read_bytes() == b"one\ntwo\n\nlast without newline"


def test_lines_of_several_ranks_do_not_mix(pump, console, tmp_path):
    ranks, count = 4, 500
    fds = {}
    for rank in range(ranks):
        plan = StreamPlan(file=str(tmp_path / str(rank)), console=console.fd, prefix=f"[{rank}]:")
        fds[rank], _ = pump.open(rank, "stdout", plan)
    pump.start()

    def speak(rank):
        for number in range(count):
            for piece in (b"line ", b"%d of rank " % number, b"%d\n" % rank):
                os.write(fds[rank], piece)
        os.close(fds[rank])

    speakers = [threading.Thread(target=speak, args=(rank,)) for rank in range(ranks)]
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join()
    pump.finish()
    lines = console.text().decode().splitlines()
    for rank in range(ranks):
        mine = [line for line in lines if line.startswith(f"[{rank}]:")]
        assert mine == [f"[{rank}]:line {number} of rank {rank}" for number in range(count)]
    assert len(lines) == ranks * count


def test_filtered_lines_of_all_ranks_are_collected_in_one_file(pump, console, tmp_path):
    kept = tmp_path / "filtered_stderr.log"
    for rank in range(2):
        plan = StreamPlan(
            file=str(tmp_path / f"{rank}.log"),
            console=console.fd,
            prefix=f"[w{rank}]:",
            line_filter=LineFilter(str(kept), ("loss", "[w")),
        )
        fd, _ = pump.open(rank, "stderr", plan)
        os.write(fd, b"loss %d\nother\nmy loss" % rank)
        os.close(fd)
    pump.start()
    pump.finish()
    # The needle is looked for in the line, not in its prefix.
    assert sorted(kept.read_bytes().replace(b"loss[", b"loss\n[").splitlines()) == [
        b"[w0]:loss 0",
        b"[w0]:my loss",
        b"[w1]:loss 1",
        b"[w1]:my loss",
    ]


@pytest.mark.parametrize("size", [1 << 20, 5 << 20], ids=["1MB", "5MB"])
def test_a_line_of_megabytes_arrives_whole_with_one_prefix(pump, console, tmp_path, size):
    line = b"x" * size + b"\nnext\n"
    path = tmp_path / "stdout.log"
    write(pump, StreamPlan(file=str(path), console=console.fd, prefix="[0]:"), line)
    pump.finish()
    assert console.text() == b"[0]:" + line.replace(b"\nnext", b"\n[0]:next")
    assert path.read_bytes() == line


def test_the_tail_is_the_last_64_kib(pump, tmp_path):
    plan = StreamPlan(file=str(tmp_path / "stderr.log"), keep_tail=True)
    write(pump, plan, b"a" * 1_000_000, b"the end")
    tail = pump.tail(0, "stderr")
    assert tail is not None
    assert tail.endswith("aathe end")
    assert len(tail) == 1 << 16
    pump.finish()


def test_the_tail_has_everything_that_was_written_before_it_was_asked_for(pump, tmp_path):
    """An ended worker's last words are there when its end is known, however busy the pump is."""
    fds = []
    for rank in range(8):
        plan = StreamPlan(file=str(tmp_path / str(rank)), keep_tail=True)
        fds.append(pump.open(rank, "stderr", plan)[0])
    pump.start()
    for number in range(200):
        for rank, fd in enumerate(fds):
            os.write(fd, b"%d " % number * 500 + b"word %d of rank %d" % (number, rank))
            assert pump.tail(rank, "stderr").endswith(f"word {number} of rank {rank}")
    for fd in fds:
        os.close(fd)
    pump.finish()


def test_a_hundred_megabytes_pass_quickly_and_completely(pump, console, tmp_path):
    path = tmp_path / "stdout.log"
    fd, _ = pump.open(0, "stdout", StreamPlan(file=str(path), console=console.fd, prefix="[0]:"))
    pump.start()
    line = b"x" * 99 + b"\n"
    began = time.monotonic()
    code = "import os, sys\nfor _ in range(1600): os.write(1, (b'x' * 99 + b'\\n') * 640)"
    subprocess.run([sys.executable, "-S", "-c", code], stdout=fd, check=True)
    os.close(fd)
    pump.finish()
    seconds = time.monotonic() - began
    assert path.stat().st_size == 1600 * 640 * 100
    assert len(console.text()) == 1600 * 640 * (len(line) + 4)
    assert seconds < 20  # about 1 s on two quiet cores


# ---- what somebody else holds ------------------------------------------------------------------


def test_a_stream_that_somebody_still_holds_is_handed_over(pump, console, tmp_path):
    path = tmp_path / "stderr.log"
    fd, _ = pump.open(0, "stderr", StreamPlan(file=str(path), console=console.fd, keep_tail=True))
    pump.start()
    os.write(fd, b"early\n")
    [relay] = pump.finish()
    os.write(fd, b"late\n")
    os.close(fd)
    while relay.copy_once():
        pass
    for each in relay.descriptors():
        os.close(each)
    assert console.text() == b"early\nlate\n"
    assert path.read_bytes() == b"early\nlate\n"


def test_a_teed_stream_that_is_handed_over_goes_on_in_its_file_alone(pump, console, tmp_path):
    path = tmp_path / "stdout.log"
    fd, _ = pump.open(0, "stdout", StreamPlan(file=str(path), console=console.fd, prefix="[0]:"))
    pump.start()
    [relay] = pump.finish()
    os.write(fd, b"late\n")
    os.close(fd)
    while relay.copy_once():
        pass
    for each in relay.descriptors():
        os.close(each)
    assert console.text() == b""
    assert path.read_bytes() == b"late\n"


def test_a_writer_that_never_stops_does_not_hold_up_the_end(pump, tmp_path):
    fd, _ = pump.open(0, "stderr", StreamPlan(file=str(tmp_path / "log"), keep_tail=True))
    pump.start()
    flood = subprocess.Popen(
        [sys.executable, "-S", "-c", "import os\nwhile True: os.write(2, b'x' * 65536)"],
        stderr=fd,
    )
    os.close(fd)
    try:
        eventually(lambda: pump.tail(0, "stderr"))
        began = time.monotonic()
        [relay] = pump.finish()
        assert time.monotonic() - began < 4
    finally:
        flood.kill()
        flood.wait()
    for each in relay.descriptors():
        os.close(each)


def test_every_descriptor_and_thread_is_gone_after_the_end(problems, console, tmp_path):
    before, threads = open_descriptors(), threading.active_count()
    for attempt in range(3):
        pump = StreamPump(problems.append)
        needle = LineFilter(str(tmp_path / f"filtered.{attempt}"), ("x",))
        plan = StreamPlan(
            file=str(tmp_path / f"log.{attempt}"),
            console=console.fd,
            prefix="p",
            line_filter=needle,
        )
        write(pump, plan, b"x\n")
        pump.finish()
    assert open_descriptors() == before
    assert threading.active_count() == threads


def test_a_pump_that_never_started_leaves_nothing_behind(problems, tmp_path):
    before = open_descriptors()
    pump = StreamPump(problems.append)
    fd, _ = pump.open(0, "stderr", StreamPlan(file=str(tmp_path / "log"), keep_tail=True))
    os.close(fd)
    for relay in pump.finish():
        for each in relay.descriptors():
            os.close(each)
    assert open_descriptors() == before


# ---- consoles ----------------------------------------------------------------------------------


def test_a_terminal_stays_a_terminal_of_the_same_size(pump, terminal, tmp_path):
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    path = tmp_path / "stderr.log"
    plan = StreamPlan(file=str(path), console=terminal.fd, keep_tail=True)
    fd, _ = pump.open(0, "stderr", plan)
    pump.start()
    code = (
        "import os, sys; size = os.get_terminal_size(2);"
        "print('\\x1b[31mred\\x1b[0m', os.isatty(2), size.columns, size.lines, file=sys.stderr)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], stderr=fd, check=True)
    os.close(fd)
    assert pump.tail(0, "stderr") == "\x1b[31mred\x1b[0m True 77 33\n"
    pump.finish()
    # One terminal adds the carriage return, not two.
    assert terminal.text() == b"\x1b[31mred\x1b[0m True 77 33\r\n"
    assert path.read_bytes() == b"\x1b[31mred\x1b[0m True 77 33\n"


def test_the_last_words_on_a_terminal_are_not_lost(problems, terminal, tmp_path):
    """A pseudo-terminal hands data on from a queue of its own, after the writer has gone."""
    for number in range(50):
        pump = StreamPump(problems.append)
        path = tmp_path / f"{number}.log"
        plan = StreamPlan(file=str(path), console=terminal.fd, keep_tail=True)
        write(pump, plan, b"x" * 3000 + b"last words %d" % number)
        assert pump.tail(0, "stderr").endswith(f"last words {number}")
        pump.finish()
        assert path.read_bytes().endswith(b"last words %d" % number)


def test_without_pseudo_terminals_a_pipe_will_do(pump, terminal, tmp_path, monkeypatch):
    def none_left():
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(os, "openpty", none_left)
    write(pump, StreamPlan(console=terminal.fd, keep_tail=True), b"text\n")
    assert pump.tail(0, "stderr") == "text\n"
    pump.finish()


def test_a_console_that_is_gone_costs_only_the_console(pump, tmp_path, problems):
    read, console = os.pipe()
    os.close(read)
    path = tmp_path / "stderr.log"
    text = b"line\n" * 100_000
    write(pump, StreamPlan(file=str(path), console=console, keep_tail=True), text)
    pump.finish()
    os.close(console)
    assert path.read_bytes() == text
    assert problems == []


def test_a_non_blocking_console_gets_everything(pump, tmp_path):
    read, console = os.pipe2(os.O_NONBLOCK)
    text = bytes(range(256)) * 4096
    path = tmp_path / "stderr.log"
    fd, _ = pump.open(0, "stderr", StreamPlan(file=str(path), console=console, keep_tail=True))
    pump.start()
    writer = threading.Thread(target=lambda: (os.write(fd, text), os.close(fd)))
    writer.start()
    seen = bytearray()

    def collect():
        with contextlib.suppress(BlockingIOError):
            seen.extend(os.read(read, 1 << 16))
        return len(seen) == len(text)

    eventually(collect)
    writer.join()
    pump.finish()
    os.close(console)
    os.close(read)
    assert seen == text


def test_a_console_that_accepts_nothing_delays_a_verdict_only_shortly(pump, tmp_path, monkeypatch):
    monkeypatch.setattr("dlrover_cli.workers.streams._FINISH_SECONDS", 0.2)
    monkeypatch.setattr("dlrover_cli.workers.streams._TAIL_SECONDS", 0.2)
    read, console = os.pipe()
    fd, _ = pump.open(0, "stderr", StreamPlan(console=console, keep_tail=True))
    pump.start()
    os.set_blocking(fd, False)
    text = b"x" * 65536

    def is_stuck():
        with contextlib.suppress(BlockingIOError):
            os.write(fd, text)
            return False
        return True

    eventually(is_stuck)
    began = time.monotonic()
    assert pump.tail(0, "stderr") is not None
    assert pump.finish() == []
    assert time.monotonic() - began < 10
    os.close(fd)
    os.close(read)  # lets the pump go
    pump._thread.join()
    os.close(console)


# ---- disks -------------------------------------------------------------------------------------


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


def test_a_full_disk_costs_the_file_and_one_line(pump, console, small_disk, problems):
    path = small_disk / "stderr.log"
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    write(pump, StreamPlan(file=str(path), console=console.fd, keep_tail=True), text)
    assert pump.tail(0, "stderr").endswith("line 49999\n")
    pump.finish()
    assert console.text() == text
    assert problems == [
        f"cannot write the log {path}: No space left on device; the job goes on without it"
    ]
    kept = path.read_bytes()
    assert text.startswith(kept)
    assert 60_000 < len(kept) <= 65_536


def test_a_full_disk_costs_the_shared_filter_file_once(pump, console, small_disk, problems):
    path = small_disk / "filtered.log"
    for rank in range(3):
        plan = StreamPlan(
            file=os.devnull,
            console=console.fd,
            prefix=f"[{rank}]:",
            line_filter=LineFilter(str(path), ("line",)),
        )
        fd, _ = pump.open(rank, "stderr", plan)
        with open(fd, "wb") as file:
            file.write(b"a line that is filtered\n" * 2000)
    pump.start()
    pump.finish()
    assert len(problems) == 1
    assert str(path) in problems[0]
    assert len(console.text().splitlines()) == 6000


def test_a_log_that_cannot_be_opened_costs_one_line(pump, console, tmp_path, problems):
    missing = tmp_path / "missing"
    plan = StreamPlan(
        file=str(missing / "stderr.log"),
        console=console.fd,
        prefix="[0]:",
        line_filter=LineFilter(str(missing / "filtered.log"), ("x",)),
        keep_tail=True,
    )
    write(pump, plan, b"text\n")
    pump.finish()
    assert console.text() == b"[0]:text\n"
    assert [Path(line.split(": ")[0].split()[-1]).name for line in problems] == [
        "stderr.log",
        "filtered.log",
    ]
