"""Blocking calls off the loop, and the watch over nodes that wait."""

import threading
import time

import pytest

from dlrover_cli.agent.calls import Call, CallFinished
from dlrover_cli.agent.membership import MembershipWatch, NodesWaiting
from dlrover_cli.workers.inbox import Inbox

SECONDS = 20.0


@pytest.fixture
def inbox():
    inbox = Inbox()
    yield inbox
    inbox.close()


def soon():
    return time.monotonic() + SECONDS


# ---- calls -------------------------------------------------------------------------------------


def test_a_call_runs_elsewhere_and_its_end_arrives(inbox):
    threads = []
    call = Call(inbox, "name", lambda: threads.append(threading.current_thread()) or "value")
    assert inbox.next(soon()) == CallFinished(call)
    assert call.done
    assert call.result() == "value"
    assert threads[0] is not threading.current_thread()
    assert (threads[0].name, threads[0].daemon) == ("name", True)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_call_raises_is_raised_where_the_result_is_asked_for(inbox, error):
    def fail():
        raise error

    call = Call(inbox, "name", fail)
    inbox.next(soon())
    with pytest.raises(type(error)) as caught:
        call.result()
    assert caught.value is error


def test_a_call_that_does_not_return_blocks_nobody(inbox):
    release = threading.Event()
    call = Call(inbox, "stuck", release.wait)
    inbox.post("something else")
    assert inbox.next(soon()) == "something else"
    assert not call.done
    release.set()
    assert inbox.next(soon()) == CallFinished(call)


def test_a_call_that_ends_after_the_inbox_is_closed_does_no_harm():
    inbox = Inbox()
    release, ended = threading.Event(), threading.Event()
    call = Call(inbox, "late", lambda: release.wait(SECONDS))
    inbox.close()
    release.set()
    threading.Thread(target=lambda: (call._thread.join(), ended.set())).start()
    assert ended.wait(SECONDS)
    assert call.result() is True


# ---- membership --------------------------------------------------------------------------------


class Handler:
    """Answers `num_nodes_waiting` from a list; the last answer stays."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = 0
        self.asked_twice = threading.Event()

    def num_nodes_waiting(self):
        self.asked += 1
        if self.asked >= 2:
            self.asked_twice.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


@pytest.fixture
def watch(inbox):
    """`watch(handler) -> watch`, with the events and lines that it makes."""
    made = []

    def start(handler):
        events, lines = [], []
        watch = MembershipWatch(
            handler,
            0.01,
            inbox,
            lambda kind, **data: events.append((kind, data)),
            lines.append,
        )
        watch.events, watch.lines = events, lines
        made.append(watch)
        return watch

    yield start
    for each in made:
        each.stop()


def test_waiting_nodes_are_told_once(inbox, watch):
    handler = Handler(0, 0, 2)
    watching = watch(handler)
    assert inbox.next(soon()) == NodesWaiting(watching, 2)
    assert inbox.next(time.monotonic() + 0.1) is None
    assert handler.asked == 3


def test_a_stopped_watch_asks_no_more(inbox, watch):
    handler = Handler(0)
    watching = watch(handler)
    assert handler.asked_twice.wait(SECONDS)
    watching.stop()
    asked = handler.asked
    assert inbox.next(time.monotonic() + 0.1) is None
    assert handler.asked == asked


def test_a_handler_that_goes_on_raising_is_asked_less_and_less_often(inbox, watch):
    handler = Handler(OSError("the store is gone"))
    watch(handler)
    assert inbox.next(time.monotonic() + 1) is None  # a hundred intervals
    assert 2 <= handler.asked < 10


def test_a_handler_that_raises_is_complained_about_once_and_asked_again(inbox, watch):
    handler = Handler(ValueError("broken"), ValueError("broken"), OSError("gone"), 1)
    watching = watch(handler)
    assert inbox.next(soon()) == NodesWaiting(watching, 1)
    assert [kind for kind, _ in watching.events] == ["rendezvous_handler_error"]
    assert len(watching.lines) == 1
    assert "ValueError: broken" in watching.lines[0]
    assert "the job goes on" in watching.lines[0]


@pytest.mark.parametrize("answer", [None, "many"])
def test_an_answer_that_is_no_number_counts_as_an_error(inbox, watch, answer):
    watching = watch(Handler(answer, 1))
    assert inbox.next(soon()) == NodesWaiting(watching, 1)
    assert len(watching.lines) == 1


def test_a_handler_that_hangs_does_not_hold_up_the_stop(inbox, watch):
    asked, release = threading.Event(), threading.Event()

    def hang():
        asked.set()
        release.wait(SECONDS)
        return 0

    watching = watch(Handler(hang))
    assert asked.wait(SECONDS)
    began = time.monotonic()
    watching.stop()
    assert time.monotonic() - began < 10
    release.set()
