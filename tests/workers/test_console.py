"""A console that several streams share: whole lines, no delay for those who are alone."""

import os
import time

import pytest

from dlrover_cli.workers.console import PATIENCE, Prefixed, Speaker, console_of


class Screen:
    """A pipe in place of a console."""

    def __init__(self):
        self._read, self.fd = os.pipe2(os.O_NONBLOCK)
        self.console = console_of(self.fd)

    def speaker(self):
        return Speaker(self.console, self.fd)

    def shows(self):
        """What has come since the last look."""
        try:
            return os.read(self._read, 1 << 20)
        except BlockingIOError:
            return b""

    def out_of_patience(self):
        time.sleep(max(0.0, self.console.next_look() - time.monotonic()))
        self.console.settle()

    def close(self):
        os.close(self._read)
        os.close(self.fd)


@pytest.fixture
def screen():
    screen = Screen()
    yield screen
    screen.close()


def test_a_partial_line_is_shown_at_once(screen):
    alone = screen.speaker()
    alone.say(b"name? ")
    assert screen.shows() == b"name? "
    alone.say(b"Ada\n50%\r")
    assert screen.shows() == b"Ada\n50%\r"
    assert screen.console.next_look() is None


def test_a_line_of_another_waits_for_the_end_of_the_line(screen):
    first, second = screen.speaker(), screen.speaker()
    first.say(b"hel")
    second.say(b"other\n")
    assert screen.shows() == b"hel"
    first.say(b"lo\n")
    assert screen.shows() == b"lo\nother\n"


def test_a_line_that_does_not_end_is_ended_for_it(screen):
    first, second = screen.speaker(), screen.speaker()
    first.say(b"...")
    second.say(b"other\n")
    screen.out_of_patience()
    assert screen.shows() == b"...\nother\n"
    first.say(b"...\n")
    assert screen.shows() == b"...\n"


def test_a_flood_in_chunks_that_end_anywhere_has_whole_lines_only(screen):
    first, second = screen.speaker(), screen.speaker()
    seen = b""
    for number in range(40):
        first.say(b"a" * 30 + b"\n" + b"a" * 10 if number % 2 else b"a" * 20)
        second.say(b"b" * 25 if number % 2 else b"\n" + b"b" * 5)
        seen += screen.shows()
    for speaker in (first, second):
        speaker.finish()
    seen += screen.shows()
    assert all(len(set(line)) <= 1 for line in seen.split(b"\n"))
    assert seen.count(b"a") == 20 * 60
    assert seen.count(b"b") == 20 * 30


def test_a_line_after_a_progress_bar_does_not_wait(screen):
    bar, other = screen.speaker(), screen.speaker()
    bar.say(b"\r50%|###")
    other.say(b"a warning\n")
    assert screen.shows() == b"\r50%|###\na warning\n"
    bar.say(b"\r60%|####")
    assert screen.shows() == b"\r60%|####"


def test_a_progress_bar_may_replace_another_one(screen):
    first, second = screen.speaker(), screen.speaker()
    first.say(b"\rfirst 50%")
    second.say(b"\rsecond 10%")
    first.say(b"\rfirst 60%")
    assert screen.shows() == b"\rfirst 50%\rsecond 10%\rfirst 60%"


def test_a_line_of_our_own_ends_the_open_line(screen):
    worker = screen.speaker()
    worker.say(b"half")
    with screen.console.interrupted():
        os.write(screen.fd, b"dlrover-run: a remark\n")
    worker.say(b" and half\n")
    assert screen.shows() == b"half\ndlrover-run: a remark\n and half\n"


def test_the_open_line_of_one_who_has_gone_holds_up_nobody(screen):
    first, second = screen.speaker(), screen.speaker()
    first.say(b"last words")
    first.finish()
    second.say(b"other\n")
    assert screen.shows() == b"last words\nother\n"


def test_nothing_is_shown_while_somebody_talks_to_a_person(screen):
    busy = [True]
    worker = screen.speaker()
    screen.console.silence_while(lambda: busy[0])
    worker.say(b"x" * 100_000 + b"\n")
    assert worker.has_too_much
    assert screen.console.next_look() < time.monotonic() + PATIENCE
    screen.console.settle()
    assert screen.shows() == b""
    busy.clear()
    busy.append(False)
    os.set_blocking(screen.fd, True)
    worker.pending[:] = b"later\n"
    screen.console.settle()
    assert screen.shows() == b"later\n"
    assert not worker.has_too_much


def test_last_words_wait_for_a_person_too(screen):
    gone = screen.speaker()
    screen.console.silence_while(lambda: True)
    gone.say(b"last words")
    gone.finish()
    assert screen.shows() == b""
    screen.console.silence_while(None)
    screen.console.settle()
    assert screen.shows() == b"last words"


def test_both_streams_of_one_terminal_are_one_console():
    master, terminal = os.openpty()
    other = os.dup(terminal)
    assert console_of(terminal) is console_of(other)
    for fd in (master, terminal, other):
        os.close(fd)


@pytest.mark.parametrize(
    "on_terminal, pieces, shown",
    [
        (False, [b"one\ntw", b"o\n\nlast"], b"[0] one\n[0] two\n[0] \n[0] last"),
        (False, [b"\r1%\r2%", b"\r3%\n"], b"[0] \r1%\r2%\r3%\n"),
        (True, [b"one\ntw", b"o\n"], b"[0] one\n[0] two\n"),
        (True, [b"\r1%", b"\r2%\n", b"x\n"], b"[0] \r[0] 1%\r[0] 2%\n[0] x\n"),
        (True, [b"1%\r", b"2%\r", b"\n"], b"[0] 1%\r[0] 2%\r\n"),
    ],
)
def test_each_line_has_its_prefix(on_terminal, pieces, shown):
    prefixed = Prefixed(b"[0] ", on_terminal=on_terminal)
    assert b"".join([*map(prefixed.feed, pieces), prefixed.finish()]) == shown
