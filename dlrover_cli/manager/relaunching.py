"""Asking the extension to replace nodes, beside the manager's loop: always an answer, in time.

Coroutines run in an event loop that lives as long as the job, so that an extension can keep its
connections; plain functions run in a thread each. Whoever blocks the loop costs the loop: the next
request gets a new one.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dlrover_cli.contracts.manager import ManagerExtension, NodeInfo
from dlrover_cli.manager.cluster import Node, Post
from dlrover_cli.manager.replacing import Relaunched
from dlrover_cli.plugins.faults import describe

DEADLINE_SECONDS = 300.0


class ExtensionReplacer:
    """Posts exactly one Relaunched for each request."""

    def __init__(self, extension: ManagerExtension, deadline: float = DEADLINE_SECONDS) -> None:
        self._extension = extension
        self._deadline = deadline
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self, nodes: Sequence[Node], post: Post) -> None:
        infos = [info_of(node) for node in nodes]
        request = _Request(infos, post)
        timer = threading.Timer(
            self._deadline, request.refuse, [f"no answer within {self._deadline:g} s"]
        )
        timer.name, timer.daemon = "relaunch-deadline", True
        request.on_done = timer.cancel
        timer.start()
        method = self._extension.relaunch_nodes_impl
        if inspect.iscoroutinefunction(method):
            asyncio.run_coroutine_threadsafe(_awaited(method, infos, request), self._running())
            return
        thread = threading.Thread(
            target=_called, args=(method, infos, request), name="relaunch", daemon=True
        )
        thread.start()

    def close(self) -> None:
        """Give up what is under way; a thread that blocks is left behind."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not _answers(self._loop):
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(
                target=self._loop.run_forever, name="unified-extension", daemon=True
            )
            thread.start()
        return self._loop


def info_of(node: Node) -> NodeInfo:
    """A node as extensions see it."""
    return NodeInfo(
        node.id,
        node.hostname,
        node.address,
        dict(node.envs),
        resources=dict(node.resources),
        reason=node.reason,
    )


class _Request:
    """One question; whatever comes first is the answer."""

    def __init__(self, nodes: Sequence[NodeInfo], post: Post) -> None:
        self._ids = tuple(node.id for node in nodes)
        self._post = post
        self._lock = threading.Lock()
        self._is_answered = False
        self.on_done: Callable[[], object] = lambda: None

    def answer(self, result: Any) -> None:
        """Take what the extension returned for what it is."""
        if not isinstance(result, list | tuple):
            self.refuse(f"it returned a {type(result).__name__} and not a list of nodes")
            return
        given = [getattr(each, "id", None) for each in result]
        strange = [each for each in given if each not in self._ids]
        relaunched = tuple(each for each in self._ids if each in given)
        problem = ""
        if strange:
            problem = f"it returned {len(strange)} that it was not asked about"
        elif len(relaunched) < len(self._ids):
            problem = "the extension did not replace all of them"
        self._say(Relaunched(self._ids, relaunched, problem))

    def refuse(self, problem: str) -> None:
        """Nothing was replaced, as far as anybody knows."""
        self._say(Relaunched(self._ids, (), problem))

    def _say(self, answer: Relaunched) -> None:
        with self._lock:
            if self._is_answered:
                return
            self._is_answered = True
        self.on_done()
        self._post(answer)


async def _awaited(method: Callable[..., Any], nodes: list[NodeInfo], request: _Request) -> None:
    try:
        request.answer(await method(nodes))
    except BaseException as error:  # noqa: BLE001 - the boundary to the extension, sys.exit included
        request.refuse(f"relaunch_nodes_impl raised {describe(error)}")


def _called(method: Callable[..., Any], nodes: list[NodeInfo], request: _Request) -> None:
    try:
        result = method(nodes)
        if inspect.isawaitable(result):
            result = asyncio.run(_finished(result))
        request.answer(result)
    except BaseException as error:  # noqa: BLE001 - the boundary to the extension, sys.exit included
        request.refuse(f"relaunch_nodes_impl raised {describe(error)}")


async def _finished(awaitable: Any) -> Any:
    return await awaitable


def _answers(loop: asyncio.AbstractEventLoop, within: float = 0.2) -> bool:
    answered = threading.Event()
    loop.call_soon_threadsafe(answered.set)
    return answered.wait(within)
