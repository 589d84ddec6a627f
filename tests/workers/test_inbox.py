"""The inbox: everything that may wake the agent, in order, from threads, signals and sockets."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from dlrover_cli.workers.inbox import Inbox, SignalReceived


class Source:
    """Something with a descriptor that a test can make readable."""

    def __init__(self):
        self.ours, self._theirs = socket.socketpair()

    def fileno(self):
        return self._theirs.fileno()

    def read(self):
        return [self._theirs.recv(100)]

    def close(self):
        self.ours.close()
        self._theirs.close()


@pytest.fixture
def source():
    source = Source()
    yield source
    source.close()


def soon(seconds=10.0):
    return time.monotonic() + seconds


def test_observations_come_out_in_order_of_arrival(inbox):
    for number in range(1000):
        inbox.post(number)
    assert [inbox.next(soon()) for _ in range(1000)] == list(range(1000))


def test_nothing_comes_after_the_deadline(inbox):
    began = time.monotonic()
    assert inbox.next(began + 0.05) is None
    assert 0.05 <= time.monotonic() - began < 5


def test_a_deadline_in_the_past_still_hands_out_what_is_there(inbox):
    inbox.post("here")
    assert inbox.next(0.0) == "here"
    assert inbox.next(0.0) is None


def test_no_post_of_many_threads_is_lost_and_each_thread_keeps_its_order(inbox):
    threads, each = 16, 500

    def post(name):
        for number in range(each):
            inbox.post((name, number))

    posters = [threading.Thread(target=post, args=(name,)) for name in range(threads)]
    for poster in posters:
        poster.start()
    seen = [inbox.next(soon()) for _ in range(threads * each)]
    for poster in posters:
        poster.join()
    for name in range(threads):
        assert [number for who, number in seen if who == name] == list(range(each))
    assert inbox.next(0.0) is None


def test_a_post_wakes_a_waiting_agent_at_once(inbox):
    began = time.monotonic()
    threading.Timer(0.05, inbox.post, ["late"]).start()
    assert inbox.next(soon(30)) == "late"
    assert time.monotonic() - began < 10


def test_a_watched_source_is_read_in_the_agents_thread(inbox, source):
    readers = []

    def read():
        readers.append(threading.current_thread())
        return source.read()

    inbox.watch(source, read)
    source.ours.send(b"data")
    assert inbox.next(soon()) == b"data"
    assert readers == [threading.main_thread()]


def test_a_source_that_brings_nothing_does_not_end_the_wait(inbox, source):
    def read():
        source.read()
        return []

    inbox.watch(source, read)
    source.ours.send(b"noise")
    assert inbox.next(time.monotonic() + 0.1) is None


def test_an_unwatched_source_is_left_alone(inbox, source):
    inbox.watch(source, source.read)
    inbox.unwatch(source)
    source.ours.send(b"data")
    assert inbox.next(time.monotonic() + 0.05) is None


def test_what_a_reader_raises_reaches_the_agent_and_others_are_still_served(inbox, source):
    def read():
        source.read()
        raise ValueError("bad report")

    inbox.watch(source, read)
    source.ours.send(b"data")
    with pytest.raises(ValueError, match="bad report"):
        inbox.next(soon())
    inbox.post("still here")
    assert inbox.next(soon()) == "still here"


class Pipes:
    """Takes the lowest free descriptors, and tells whether anybody has written to them."""

    def __enter__(self):
        self._pipes = [os.pipe2(os.O_NONBLOCK) for _ in range(3)]
        return self

    def __exit__(self, *_):
        for fd in self.descriptors():
            os.close(fd)

    def descriptors(self):
        return [fd for pipe in self._pipes for fd in pipe]

    def are_empty(self):
        for read, _ in self._pipes:
            with contextlib.suppress(BlockingIOError):
                if os.read(read, 1):
                    return False
        return True


def test_posts_to_a_closed_inbox_are_dropped_and_touch_no_descriptor():
    inbox = Inbox()
    before = inbox._wake_write
    inbox.close()
    with Pipes() as pipes:
        assert before in pipes.descriptors()
        inbox.post("too late")
        assert pipes.are_empty()
    inbox.close()  # a second time does no harm


def test_posts_that_race_with_closing_never_write_elsewhere():
    for _ in range(100):
        inbox = Inbox()
        begin = threading.Barrier(3)

        def post(inbox=inbox, begin=begin):
            begin.wait()
            for _ in range(20):
                inbox.post("x")

        posters = [threading.Thread(target=post) for _ in range(2)]
        for poster in posters:
            poster.start()
        begin.wait()
        inbox.close()
        with Pipes() as pipes:
            for poster in posters:
                poster.join()
            assert pipes.are_empty()


# ---- signals -----------------------------------------------------------------------------------


def test_a_signal_becomes_an_observation_even_in_the_middle_of_a_wait(inbox):
    with inbox.receiving_signals([signal.SIGTERM, signal.SIGHUP]):
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM]).start()
        assert inbox.next(soon()) == SignalReceived(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        assert inbox.next(soon()) == SignalReceived(signal.SIGHUP)


def test_signals_during_a_storm_of_posts_are_neither_lost_nor_fatal(inbox):
    stop = threading.Event()

    def storm():
        while not stop.is_set():
            inbox.post("noise")
            time.sleep(0)

    with inbox.receiving_signals([signal.SIGUSR1]):
        poster = threading.Thread(target=storm)
        poster.start()
        try:
            for _ in range(50):
                os.kill(os.getpid(), signal.SIGUSR1)
                deadline = soon()
                while inbox.next(deadline) != SignalReceived(signal.SIGUSR1):
                    assert time.monotonic() < deadline
        finally:
            stop.set()
            poster.join()


def test_handlers_are_what_they_were_afterwards(inbox):
    def mine(number, frame):
        """Never called."""

    before = signal.signal(signal.SIGUSR2, mine)
    try:
        with contextlib.suppress(KeyError), inbox.receiving_signals([signal.SIGUSR2]):
            assert signal.getsignal(signal.SIGUSR2) is not mine
            raise KeyError
        assert signal.getsignal(signal.SIGUSR2) is mine
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("number, stays", [(signal.SIGHUP, True), (signal.SIGTERM, False)])
def test_only_an_ignored_hangup_stays_ignored(inbox, number, stays):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with inbox.receiving_signals([number]):
            assert (signal.getsignal(number) == signal.SIG_IGN) is stays
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_outside_the_main_thread_no_handler_is_touched(inbox):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run():
        with inbox.receiving_signals([signal.SIGTERM]):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
