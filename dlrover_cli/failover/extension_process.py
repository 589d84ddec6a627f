"""The process of a failover extension: loads it, keeps it, and asks it about each failure.

The agent talks to it over one socket and may end it at any moment. Whatever the extension prints
goes to its log, as do the tracebacks of what it raises and the stacks of where it hangs.

Requests            {"op": "load", "reference", "roots", "option", "sys_path", "deadline"}
                    {"op": "ask", "id", "failure", "deadline"}
Reports             {"event": "loaded", "pid", "file"}
                    {"event": "refused", "message", "reference", "reason", "hint"}
                    {"event": "answer", "id", "strategy"}         null is no opinion
                    {"event": "no_answer", "id", "raised" or "returned"}

A deadline is a point of `time.monotonic`, which is the same clock in the agent.

It runs as a script, by its path: `dlrover_cli` becomes importable with the agent's `sys.path`.
"""

import contextlib
import faulthandler
import json
import os
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlrover_cli.errors import PluginError

Ask = Callable[[Any], str | None]
"""From a failure as JSON to the name of a strategy, or to None."""

_LENGTH = struct.Struct("!I")
_CHUNK = 1 << 20
_STDERR = 2
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
# The stacks of an extension that hangs have to be out before the agent ends it.
_DUMP_AT = 0.9
_SHORTEST_PATIENCE = 0.1
_LONGEST_PATIENCE = 86_400.0


class Channel:
    """Length-prefixed JSON messages over a stream socket, which may be blocking or not."""

    def __init__(self, sock: socket.socket, largest: int | None = None) -> None:
        self._socket = sock
        self._largest = largest
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @property
    def has_unsent(self) -> bool:
        return bool(self._outgoing)

    def fileno(self) -> int:
        return self._socket.fileno()

    def post(self, message: Mapping[str, Any]) -> None:
        """Queue a message; `flush` sends it."""
        body = json.dumps(message).encode("ascii")
        self._outgoing += _LENGTH.pack(len(body)) + body

    def flush(self) -> None:
        """Send what the peer takes now; raise EOFError if it is gone."""
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError as gone:
            raise EOFError from gone

    def read(self) -> Iterator[dict[str, Any]]:
        """Read once and yield every complete message.

        Raises EOFError when the peer is gone, and ValueError for what is no message.
        """
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as gone:
            raise EOFError from gone
        if not data:
            raise EOFError
        self._incoming += data
        while (body := self._take_body()) is not None:
            try:
                message = json.loads(body)
            except RecursionError as error:
                raise ValueError("nested too deeply") from error
            if not isinstance(message, dict):
                raise ValueError("not an object")
            yield message

    def shut_down(self) -> None:
        """Let the peer read the end, whoever else holds a copy of this socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _take_body(self) -> bytes | None:
        if len(self._incoming) < _LENGTH.size:
            return None
        end = _LENGTH.size + int(_LENGTH.unpack_from(self._incoming)[0])
        if self._largest is not None and end > self._largest:
            raise ValueError("too long")
        if len(self._incoming) < end:
            return None
        body = bytes(self._incoming[_LENGTH.size : end])
        del self._incoming[:end]
        return body


def main() -> None:
    """Serve the agent whose socket is the descriptor named on the command line."""
    fd = int(sys.argv.pop())
    os.set_inheritable(fd, False)
    faulthandler.enable(_STDERR)
    serve(Channel(socket.socket(fileno=fd)))


def serve(channel: Channel) -> None:
    """Load as told by the first request, then answer the others until the agent closes."""
    ask: Ask | None = None
    owner = os.getpid()
    with contextlib.suppress(EOFError):
        while True:
            for request in channel.read():
                with _stacks_shown_before(request["deadline"]):
                    if ask is None:
                        ask, report = _load(request)
                    else:
                        report = _answer(ask, request)
                    if os.getpid() != owner:
                        # A copy that the extension forked, and that came back. One of us answers.
                        os._exit(0)
                channel.post(report)
                channel.flush()
                if ask is None:
                    return


def _load(request: Mapping[str, Any]) -> tuple[Ask | None, dict[str, Any]]:
    """What can be asked, if the extension can be used, and what to tell the agent."""
    sys.path[:] = request["sys_path"]
    # Not before: where the agent finds its modules is known from here on.
    from dlrover_cli.contracts import AgentFailureInfo
    from dlrover_cli.errors import PluginError
    from dlrover_cli.failover.answers import strategy_of
    from dlrover_cli.plugins.failover_extension import load_failover_extension
    from dlrover_cli.plugins.faults import PluginFault, Subject
    from dlrover_cli.plugins.reference import loaded_from

    reference, option = request["reference"], request["option"]
    try:
        roots = [Path(root) for root in request["roots"]]
        extension = load_failover_extension(reference, roots, option=option)
    except PluginError as error:
        if error.__cause__ is not None:
            _log_traceback(error.__cause__)
        return None, _refusal(error)
    except BaseException as error:  # noqa: BLE001 - the user's code; the agent must be told
        _log_traceback(error)
        refusal = Subject.of_option(option, reference).fault(
            PluginFault.CONSTRUCTOR_RAISED,
            f"loading it raised {_in_words(error)}",
            hint="nothing was started; mend it and run again",
        )
        return None, _refusal(refusal)

    def ask(failure: Any) -> str | None:
        info = AgentFailureInfo.from_json(failure)
        strategy = strategy_of(extension.get_user_failover_strategy(info))
        return None if strategy is None else strategy.name

    return ask, {"event": "loaded", "pid": os.getpid(), "file": loaded_from(extension)}


def _answer(ask: Ask, request: Mapping[str, Any]) -> dict[str, Any]:
    from dlrover_cli.failover.answers import NotAnAnswer

    try:
        return {"event": "answer", "id": request["id"], "strategy": ask(request["failure"])}
    except NotAnAnswer as error:
        return {"event": "no_answer", "id": request["id"], "returned": str(error)}
    except BaseException as error:  # noqa: BLE001 - the user's code, whatever it raises
        _log_traceback(error)
        return {"event": "no_answer", "id": request["id"], "raised": _in_words(error)}


def _refusal(error: "PluginError") -> dict[str, Any]:
    return {
        "event": "refused",
        "message": error.message,
        "reference": error.reference,
        "reason": str(error.reason),
        "hint": error.hint,
    }


def _log_traceback(error: BaseException) -> None:
    """Print the user's part of the traceback, if there is one."""
    from dlrover_cli.plugins.faults import user_frame

    # The extension may have replaced stderr, and shows its exceptions itself; the report is worth
    # more than the log.
    with contextlib.suppress(BaseException):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        if user_frame(error):
            traceback.print_exception(type(error), error, trace)


def _in_words(error: BaseException) -> str:
    from dlrover_cli.plugins.faults import describe, user_frame

    try:
        return f"{describe(error)}{user_frame(error)}"
    except BaseException:  # noqa: BLE001 - from the exception's own methods
        return type(error).__name__


@contextlib.contextmanager
def _stacks_shown_before(deadline: float) -> Iterator[None]:
    """Write all stacks to the log shortly before the agent's patience ends.

    They are read without Python's lock, at the risk of a crash when the code is in full flight. So
    nobody looks at what has barely begun.
    """
    patience = min(deadline - time.monotonic(), _LONGEST_PATIENCE)
    if patience < _SHORTEST_PATIENCE:
        yield
        return
    faulthandler.dump_traceback_later(patience * _DUMP_AT, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
