"""The control socket: only its user is heard, and nobody can hold it up."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.control import server
from dlrover_cli.control.client import Endpoint, Unreachable, ask, ask_run
from dlrover_cli.control.opened import Control
from dlrover_cli.control.place import bind, runtime_directory
from dlrover_cli.control.server import ControlServer
from dlrover_cli.control.wire import (
    LONGEST_REQUEST,
    Answer,
    By,
    Command,
    NodeAnswer,
    Request,
    line_of,
)
from dlrover_cli.errors import LaunchError
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import RunDirectory
from tests.harness.waiting import eventually

SOMEBODY_ELSE = 12345


class Served:
    """A server that answers every request with its command, unless it is told to wait."""

    def __init__(self, directory: Path) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[Request, By]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        listener, self.path = bind(directory)
        self.server = ControlServer(listener, self.respond, self.record)

    def respond(self, request: Request, by: By) -> Answer:
        self.asked.append((request, by))
        assert self.go_on.wait(30)
        return Answer((NodeAnswer("here", says=request.command.value),))

    def record(self, kind: str, **data: Any) -> None:
        self.events.append((kind, data))

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(20)
        sock.connect(str(self.path))
        return sock

    def ask(self, command: Command = Command.STACKS) -> Answer:
        endpoint = Endpoint("agent", str(self.path), ProcessIdentity.own())
        return ask(endpoint, "run", Request(command, seconds=30))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.go_on.set()
    served.server.close()


def answer_to(sock: socket.socket) -> Answer:
    text = b""
    while data := sock.recv(65536):
        text += data
    return Answer.from_json(json.loads(text))


def test_a_request_is_answered_and_its_author_is_known(served: Served) -> None:
    answer = served.ask(Command.RESTART)
    assert [node.says for node in answer.nodes] == ["restart"]
    [(_, by)] = served.asked
    assert (by.uid, by.pid) == (os.getuid(), os.getpid())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_is_refused_and_written_down(served: Served, tmp_path: Path) -> None:
    # Everything that the file system would refuse is allowed: what is left is the server's word.
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o001 == 0:
            path.chmod(path.stat().st_mode | 0o011)
    served.path.chmod(0o666)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(SOMEBODY_ELSE)
            os.setuid(SOMEBODY_ELSE)
            try:
                served.ask(Command.ABORT)
            except LaunchError as error:
                os.write(write, error.message.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as told:
        assert "this run is not that of" in told.read()
    assert served.asked == []
    [(kind, data)] = served.events
    assert (kind, data["by"]["uid"], data["by"]["pid"]) == ("control_refused", SOMEBODY_ELSE, child)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"\xff\xfe\x00",
        b"[" * 20_000,
        b"{}",
        b'"text"',
        b'{"schema_version": 2, "command": "abort"}',
        b'{"schema_version": 1, "command": "format"}',
        b'{"schema_version": 1, "command": "stacks", "ranks": [true]}',
        b'{"schema_version": 1, "command": "stacks", "seconds": NaN}',
        b'{"schema_version": 1, "command": "node-failover", "node": -1}',
    ],
    ids=lambda line: line[:60].decode("ascii", "replace"),
)
def test_what_is_no_request_gets_a_sentence(served: Served, line: bytes) -> None:
    with served.connect() as sock:
        sock.sendall(line + b"\n")
        assert answer_to(sock).error.startswith("this is no request")
    assert served.asked == []
    assert served.ask().nodes


def test_a_line_without_an_end_is_cut_off(served: Served) -> None:
    with served.connect() as sock:
        sock.sendall(b"x" * (LONGEST_REQUEST + 1))
        assert "at most 64 KiB" in answer_to(sock).error
    assert served.ask().nodes


def test_half_a_line_holds_nobody_up_and_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SECONDS_TO_ASK", 0.3)
    with served.connect() as half:
        half.sendall(b'{"schema_version": 1, "comm')
        assert served.ask().nodes
        assert half.recv(1) == b""  # after a while
    assert len(served.asked) == 1


def test_many_connections_do_not_keep_others_out(served: Served) -> None:
    idle = [served.connect() for _ in range(100)]
    try:
        assert served.ask().nodes
    finally:
        for sock in idle:
            sock.close()


def test_a_client_that_never_reads_holds_nobody_up(served: Served) -> None:
    def respond(request: Request, by: By) -> Answer:
        return Answer((NodeAnswer("here", stacks={0: "x" * 2_000_000}),))

    served.server._respond = respond
    with served.connect() as deaf:
        deaf.sendall(line_of(Request(Command.STACKS).to_json()))
        [node] = served.ask().nodes
        assert len(node.stacks[0]) == 2_000_000


def test_slow_answers_are_few_at_once_and_the_rest_is_told_so(served: Served) -> None:
    served.go_on.clear()
    slow = [served.connect() for _ in range(8)]
    for sock in slow:
        sock.sendall(line_of(Request(Command.STACKS).to_json()))
    eventually(lambda: len(served.asked) == 8)
    with pytest.raises(LaunchError, match="too many requests at once"):
        served.ask()
    served.go_on.set()
    for sock in slow:
        assert answer_to(sock).nodes
        sock.close()


def test_an_answer_under_way_is_given_before_the_end(served: Served) -> None:
    served.go_on.clear()
    with served.connect() as sock:
        sock.sendall(line_of(Request(Command.ABORT).to_json()))
        eventually(lambda: served.asked)
        threading.Timer(0.1, served.go_on.set).start()
        served.server.close()
        assert [node.says for node in answer_to(sock).nodes] == ["abort"]


def test_an_error_of_ours_reaches_whoever_asked(served: Served) -> None:
    def respond(request: Request, by: By) -> Answer:
        raise RuntimeError("a bug")

    served.server._respond = respond
    with pytest.raises(LaunchError, match="could not answer: RuntimeError: a bug"):
        served.ask()


# ---- its place ----------------------------------------------------------------------------------


def test_the_runtime_directory_is_the_users_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    short = {"XDG_RUNTIME_DIR": str(tmp_path)}
    found = runtime_directory(short, os.getuid())
    assert found.stat().st_mode & 0o777 == 0o700
    assert found == tmp_path / "dlrover" or len(str(tmp_path)) > 60


@pytest.mark.parametrize("base", ["relative", "/nowhere/at/all", "/" + "long/" * 30])
def test_a_runtime_directory_that_cannot_be_used_is_left_alone(base: str) -> None:
    found = runtime_directory({"XDG_RUNTIME_DIR": base}, os.getuid())
    assert found == Path(f"/tmp/dlrover-{os.getuid()}")


def test_a_directory_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    from dlrover_cli.control.place import _made

    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("open", "link"):
        with pytest.raises(LaunchError, match="alone"):
            _made(tmp_path / name, os.getuid())


def test_sockets_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    dead, dead_path = bind(tmp_path)
    dead.close()
    living, living_path = bind(tmp_path)
    assert not dead_path.exists()
    other, _other_path = bind(tmp_path)
    assert living_path.exists()
    for sock in (living, other):
        sock.close()


def test_a_closed_control_leaves_neither_socket_nor_address(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "run", "agent", print)
    directory.node.mkdir(parents=True)
    environ = {"MY_TOKEN": "hush", "LANG": "C"}
    control = Control(lambda request, by: Answer(), lambda kind, **data: None, directory, environ)
    eventually((directory.node / "environment.json").exists)
    answer = ask_run(tmp_path, "run", Request(Command.STACKS))
    assert answer == Answer()
    [socket_path] = [json.loads((directory.node / "control.json").read_text())["socket"]]
    control.close()
    assert not (directory.node / "control.json").exists()
    assert not Path(socket_path).exists()
    kept = json.loads((directory.node / "environment.json").read_text())
    assert kept["environment"] == {"LANG": "C", "MY_TOKEN": "[redacted]"}


# ---- whom a client cannot reach -----------------------------------------------------------------


def write_address(directory: Path, **changes: Any) -> None:
    node = directory / "nodes" / "agent"
    node.mkdir(parents=True)
    own = {"socket": "/nowhere.sock", **ProcessIdentity.own().to_json(), **changes}
    (node / "control.json").write_text(json.dumps(own))


def test_a_run_without_an_address_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="has no control socket"):
        ask_run(tmp_path, "run", Request(Command.STACKS))


def test_a_run_of_another_host_names_it_and_what_to_type_there(tmp_path: Path) -> None:
    write_address(tmp_path, host="elsewhere")
    with pytest.raises(Unreachable, match="runs on elsewhere") as caught:
        ask_run(tmp_path, "run", Request(Command.NODE_FAILOVER))
    assert caught.value.hint == "on elsewhere: dlrover-job node-failover run"


def test_a_killed_launcher_is_called_gone(tmp_path: Path) -> None:
    write_address(tmp_path, start_time=1)
    with pytest.raises(Unreachable, match="is gone: it was killed") as caught:
        ask_run(tmp_path, "run", Request(Command.STACKS))
    assert caught.value.hint is not None
    assert "dlrover-job stop run" in caught.value.hint


def test_a_launcher_about_to_end_is_told_from_a_dead_one(tmp_path: Path) -> None:
    write_address(tmp_path)
    with pytest.raises(Unreachable, match="has closed its control socket"):
        ask_run(tmp_path, "run", Request(Command.STACKS))
