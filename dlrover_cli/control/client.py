"""The asking end: which socket belongs to a run, and one question over it."""

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dlrover_cli.control.place import FILE
from dlrover_cli.control.wire import LONGEST_ANSWER, Answer, Request, document_in, line_of
from dlrover_cli.errors import LaunchError
from dlrover_cli.telemetry.process_identity import ProcessIdentity

MANAGER = "manager"
_SPARE_SECONDS = 5.0
"""For a busy machine, beyond what the answer may take."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one launcher of a run can be asked."""

    agent: str
    socket: str
    process: ProcessIdentity

    @classmethod
    def read(cls, file: Path) -> Self | None:
        try:
            data = json.loads(file.read_text())
            return cls(file.parent.name, str(data["socket"]), ProcessIdentity.from_json(data))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # gone, or being written by a newer version


class Unreachable(LaunchError):
    """Nobody answers at a control socket."""


def endpoints(run_directory: Path) -> list[Endpoint]:
    """All that the run has written down, the manager first: it reaches every node."""
    files = sorted((run_directory / "nodes").glob(f"*/{FILE}"))
    found = [endpoint for file in files if (endpoint := Endpoint.read(file)) is not None]
    return sorted(found, key=lambda each: (each.agent != MANAGER, each.agent))


def ask_run(run_directory: Path, run_id: str, request: Request) -> Answer:
    """Ask the first launcher of the run on this host that answers. Raises Unreachable."""
    known = endpoints(run_directory)
    if not known:
        raise Unreachable(
            f"run {run_id} has no control socket",
            hint="if it has only just begun, checks its node or connects to its rendezvous, try "
            "again in a moment; if it was submitted to a cluster, ask where its launcher runs; "
            "--compat=torchrun has none",
        )
    here = [each for each in known if each.process.is_here]
    if not here:
        raise _elsewhere(known, run_id, request)
    problem: Unreachable | None = None
    for endpoint in here:
        try:
            return ask(endpoint, run_id, request)
        except Unreachable as error:
            problem = problem or error
    assert problem is not None
    raise problem


def ask(endpoint: Endpoint, run_id: str, request: Request) -> Answer:
    """One question, one answer. Raises Unreachable, and LaunchError if it was refused."""
    deadline = time.monotonic() + request.patience + _SPARE_SECONDS
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock.connect(endpoint.socket)
            with suppress(BrokenPipeError):  # refused: it has said why
                sock.sendall(line_of(request.to_json()))
            line = _line_from(sock, deadline)
        except TimeoutError:
            raise Unreachable(
                f"the launcher of run {run_id} (process {endpoint.process.pid}) did not answer",
                hint="it may be stopped (`kill -CONT`), or the machine very busy: try again",
            ) from None
        except (FileNotFoundError, ConnectionError) as error:
            raise _gone(endpoint, run_id) from error
        except PermissionError as error:
            raise Unreachable(
                f"the control socket of run {run_id} belongs to another user",
                hint=f"ask as the user who started it: ls -l {endpoint.socket}",
            ) from error
    try:
        answer = Answer.from_json(document_in(line))
    except ValueError as error:
        raise Unreachable(f"run {run_id}: {error}", hint="is it of another version?") from error
    if answer.error:
        raise LaunchError(f"run {run_id}: {answer.error}")
    return answer


def _line_from(sock: socket.socket, deadline: float) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        data = sock.recv(1 << 16)
        if not data or len(line) > LONGEST_ANSWER:
            raise ConnectionResetError
        line += data
    return bytes(line)


def _gone(endpoint: Endpoint, run_id: str) -> Unreachable:
    if endpoint.process.is_alive():
        if os.path.exists(endpoint.socket):
            what = "closed the connection before it answered: it is about to end"
        else:
            what = "has closed its control socket: it is about to end, or starts anew"
        return Unreachable(
            f"the launcher of run {run_id} (process {endpoint.process.pid}) {what}",
            hint="try again in a moment",
        )
    return Unreachable(
        f"the launcher of run {run_id} (process {endpoint.process.pid}) is gone: it was killed",
        hint=f"dlrover-job stop {run_id} ends what may be left of it",
    )


def _elsewhere(known: Sequence[Endpoint], run_id: str, request: Request) -> Unreachable:
    hosts = sorted({each.process.host for each in known})
    return Unreachable(
        f"run {run_id} runs on {', '.join(hosts)}, and cannot be reached from here",
        hint=f"on {hosts[0]}: dlrover-job {request.command.value} {run_id}",
    )
