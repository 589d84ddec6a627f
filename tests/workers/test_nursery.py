"""The nursery by itself: its channel, what it starts, and what it does not let live."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from dlrover_cli.workers import nursery
from dlrover_cli.workers.commands import NurseryClient
from tests.harness.processes import is_alive, process_info
from tests.harness.waiting import eventually
from tests.workers.helpers import SLEEP, python, read_pid


@pytest.fixture
def client(process_token):
    client = NurseryClient.start()
    yield client
    client.close()


@pytest.fixture
def channels():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield nursery.Channel(ours), nursery.Channel(theirs)


def start(client, id_, argv, *, fds=(), numbers=None, env=None):
    """Start a process with /dev/null as its three streams and the given descriptors."""
    with open(os.devnull, "r+b") as null:
        client.request(
            {
                "op": "start",
                "id": id_,
                "argv": [nursery.packed(part) for part in argv],
                "env": {
                    nursery.packed(k): nursery.packed(v) for k, v in (env or os.environ).items()
                },
                "fds": [0, 1, 2, *(numbers if numbers is not None else fds)],
            },
            [null.fileno()] * 3 + list(fds),
        )
    return await_event(client, id_, "started", "start_failed")


def await_event(client, id_, *events):
    return client.await_report(lambda r: r.get("id") == id_ and r["event"] in events)


# ---- the channel -------------------------------------------------------------------------------


def test_messages_of_any_size_arrive_whole_and_in_order(channels):
    sender, receiver = channels
    messages = [{"number": n, "text": "é\udcff" * (1 << n)} for n in range(18)]
    thread = threading.Thread(target=lambda: [sender.send(each) for each in messages])
    thread.start()
    received = []
    while len(received) < len(messages):
        received += [message for message, _ in receiver.receive()]
    thread.join()
    assert received == messages


def test_descriptors_stay_with_their_message(channels):
    sender, receiver = channels
    pipes = [os.pipe() for _ in range(40)]
    thread = threading.Thread(
        target=lambda: [
            sender.send({"number": n, "fds": [0, 1]}, pipe) for n, pipe in enumerate(pipes)
        ]
    )
    thread.start()
    received = []
    while len(received) < len(pipes):
        received += receiver.receive()
    thread.join()
    for (message, fds), pipe in zip(received, pipes, strict=True):
        assert [os.fstat(fd).st_ino for fd in fds] == [os.fstat(fd).st_ino for fd in pipe]
        assert [os.get_inheritable(fd) for fd in fds] == [False, False]
        assert message["fds"] == [0, 1]
        for fd in (*fds, *pipe):
            os.close(fd)


def test_a_peer_that_is_gone_is_an_end_of_file(channels):
    sender, receiver = channels
    sender.send({"last": True})
    sender.close()
    assert [message for message, _ in receiver.receive()] == [{"last": True}]
    with pytest.raises(EOFError):
        list(receiver.receive())


# ---- starting ----------------------------------------------------------------------------------


def test_arguments_and_variables_are_any_bytes(client, tmp_path):
    path = tmp_path / "seen"
    code = (
        "import os, sys;"
        "open(sys.argv[1], 'wb').write(os.fsencode(sys.argv[2]) + os.environb[b'ODD'])"
    )
    odd = os.fsdecode(b"\xff\xfe caf\xc3\xa9 \x01")
    argv = [sys.executable, *python(code, str(path), odd)]
    start(client, "0/0", argv, env={**os.environ, "ODD": odd})
    await_event(client, "0/0", "exited")
    assert path.read_bytes() == os.fsencode(odd) * 2


def test_a_worker_has_only_the_descriptors_that_were_meant_for_it(client, tmp_path):
    code = (
        "import os, sys; fds = os.listdir('/proc/self/fd');"
        "open(sys.argv[1], 'w').write(' '.join(fds))"
    )
    for worker in range(3):
        path = tmp_path / str(worker)
        start(client, f"0/{worker}", [sys.executable, *python(code, str(path))])
        await_event(client, f"0/{worker}", "exited")
        # The fourth is the directory while it is being listed.
        assert sorted(map(int, path.read_text().split())) == [0, 1, 2, 3]


def test_descriptors_get_the_numbers_that_were_asked_for(client, tmp_path):
    """Also where the numbers are those that the nursery itself has in use."""
    pipes = [os.pipe() for _ in range(6)]
    numbers = [3, 4, 5, 6, 7, 8]
    code = "import os\nfor n in range(3, 9): os.write(n, b'%d' % n)"
    argv = [sys.executable, *python(code)]
    start(client, "0/0", argv, fds=[write for _, write in pipes], numbers=numbers)
    assert await_event(client, "0/0", "exited")["status"] == 0
    for (read, write), number in zip(pipes, numbers, strict=True):
        assert os.read(read, 10) == b"%d" % number
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    "program, error",
    [
        ("no-such-program", "No such file or directory"),
        ("/", "Permission denied"),
        ("a\0b", "Invalid argument"),
    ],
)
def test_what_cannot_be_executed_is_reported(client, program, error):
    report = start(client, "0/0", [program])
    assert (report["event"], report["error"]) == ("start_failed", error)
    # It goes on serving.
    assert start(client, "0/1", ["true"])["event"] == "started"


def test_a_process_limit_is_reported_and_survived(client, tmp_path):
    subprocess.run(["prlimit", f"--pid={client._process.pid}", "--nofile=8:8"], check=True)
    report = start(client, "0/0", [sys.executable, *python("")])
    assert report["event"] == "start_failed"
    assert report["error"] == "Too many open files"
    subprocess.run(["prlimit", f"--pid={client._process.pid}", "--nofile=100:100"], check=False)
    assert client.is_alive()


def test_exit_codes_signals_and_usage_are_reported(client):
    argv = [sys.executable, *python("import os, sys; sum(range(10**6)); os._exit(7)")]
    pid = start(client, "0/0", argv)["pid"]
    report = await_event(client, "0/0", "exited")
    assert (report["status"], report["pid"]) == (7, pid)
    assert report["cpu_seconds"] > 0
    assert report["max_rss_kb"] > 1000
    start(client, "0/1", [sys.executable, *python("import os; os.kill(os.getpid(), 11)")])
    assert await_event(client, "0/1", "exited")["status"] == -signal.SIGSEGV


def test_a_worker_leads_a_session_with_default_signals(client, tmp_path):
    path = tmp_path / "seen"
    code = (
        "import json, os, signal, sys; status = open('/proc/self/status').read();"
        "json.dump([os.getpid() == os.getsid(0) == os.getpgid(0),"
        " [line for line in status.splitlines() if line.startswith(('SigIgn', 'SigBlk'))]],"
        " open(sys.argv[1], 'w'))"
    )
    # Something that is not Python, which would ignore SIGPIPE by itself.
    script = tmp_path / "seen.sh"
    script.write_text(f"#!/bin/sh\ngrep -E 'SigIgn|SigBlk|SigCgt' /proc/self/status > {path}.sh\n")
    script.chmod(0o755)
    start(client, "0/0", [sys.executable, *python(code, str(path))])
    start(client, "0/1", [str(script)])
    await_event(client, "0/0", "exited")
    await_event(client, "0/1", "exited")
    leads, _ = json.loads(path.read_text())
    assert leads
    masks = dict(line.split() for line in (tmp_path / "seen.sh").read_text().splitlines())
    assert int(masks["SigIgn:"], 16) == 0
    assert int(masks["SigBlk:"], 16) == 0


# ---- signals and sweeping ----------------------------------------------------------------------


def test_signals_go_to_the_whole_group_of_the_right_worker(client, tmp_path):
    script = "sleep 60 & echo $! > $1; wait"
    pids = {}
    for worker in (0, 1):
        path = tmp_path / str(worker)
        pids[worker] = start(client, f"0/{worker}", ["sh", "-c", script, "sh", str(path)])["pid"]
        eventually(lambda path=path: read_pid(path))
    client.request({"op": "signal", "id": "0/0", "signal": signal.SIGTERM})
    assert await_event(client, "0/0", "exited")["status"] == -signal.SIGTERM
    eventually(lambda: not is_alive(read_pid(tmp_path / "0")))
    assert is_alive(pids[1])
    assert is_alive(read_pid(tmp_path / "1"))


DAEMONS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file: file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_sweep_ends_children_grandchildren_and_daemons(client, tmp_path):
    daemon = tmp_path / "daemon"
    pid = start(client, "0/0", [sys.executable, *python(DAEMONS, str(daemon))])["pid"]
    eventually(lambda: read_pid(daemon))
    assert process_info(read_pid(daemon)).parent == client._process.pid
    client.request({"op": "sweep", "deadline": 10.0})
    assert client.await_report(lambda r: r["event"] == "swept")["stuck"] == []
    assert await_event(client, "0/0", "exited")["status"] == -signal.SIGKILL
    assert not is_alive(pid)
    assert not is_alive(read_pid(daemon))


def test_a_sweep_wins_against_processes_that_keep_forking(client, tmp_path):
    code = (
        "import os, time\n"
        "for _ in range(400):\n"
        "    if os.fork() == 0: os.setsid()\n"
        "    else: break\n"
        "    time.sleep(0.001)\n"
        "time.sleep(60)"
    )
    for worker in range(3):
        start(client, f"0/{worker}", [sys.executable, *python(code)])
    client.request({"op": "sweep", "deadline": 20.0})
    assert client.await_report(lambda r: r["event"] == "swept")["stuck"] == []
    below = [p for p in nursery.live_processes() if p.parent == client._process.pid]
    assert below == []


# ---- the end of the agent ----------------------------------------------------------------------


def test_a_closed_channel_ends_everything_below(process_token, tmp_path):
    client = NurseryClient.start()
    daemon = tmp_path / "daemon"
    pid = start(client, "0/0", [sys.executable, *python(DAEMONS, str(daemon))])["pid"]
    eventually(lambda: read_pid(daemon))
    client.close()
    assert not is_alive(pid)
    assert not is_alive(read_pid(daemon))


def test_guarded_strangers_end_with_a_vanished_agent(process_token):
    stranger = subprocess.Popen([sys.executable, *python(SLEEP)], start_new_session=True)
    bystander = subprocess.Popen([sys.executable, *python(SLEEP)])
    client = NurseryClient.start()
    client.request({"op": "guard", "pids": [stranger.pid]})
    client.close()
    assert stranger.wait(10) == -signal.SIGKILL
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_leaving_spares_what_is_left(process_token, tmp_path):
    client = NurseryClient.start()
    pid = start(client, "0/0", ["sleep", "60"])["pid"]
    # Its own end would take its children with it: a worker is killed with its parent.
    script = "sleep 60 & echo $! > $1"
    start(client, "0/1", ["sh", "-c", script, "sh", str(tmp_path / "pid")])
    await_event(client, "0/1", "exited")
    left_behind = read_pid(tmp_path / "pid")
    client.leave()
    assert is_alive(left_behind)
    eventually(lambda: not is_alive(pid))
    os.kill(left_behind, signal.SIGKILL)


def test_a_forked_helper_of_the_agent_does_not_hold_the_channel_open(process_token):
    client = NurseryClient.start()
    pid = start(client, "0/0", ["sleep", "60"])["pid"]
    helper = os.fork()
    if helper == 0:
        try:
            signal.pause()
        finally:
            os._exit(0)
    try:
        client.close()  # returns when the nursery has ended
        assert not is_alive(pid)
    finally:
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)


def test_signals_that_everybody_gets_do_not_end_it(client):
    start(client, "0/0", ["sleep", "60"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(client._process.pid, number)
    assert start(client, "0/1", ["true"])["event"] == "started"
    assert client.is_alive()


def test_a_bug_in_it_still_takes_its_workers_with_it(process_token, tmp_path):
    client = NurseryClient.start()
    daemon = tmp_path / "daemon"
    pid = start(client, "0/0", [sys.executable, *python(DAEMONS, str(daemon))])["pid"]
    eventually(lambda: read_pid(daemon))
    client.channel._socket.sendall(nursery._LENGTH.pack(3) + b"{}}")  # not JSON
    assert client._process.wait(20) != 0
    assert not is_alive(pid)
    assert not is_alive(read_pid(daemon))
    client.close()


def test_families_are_told_from_strangers_that_got_their_number(process_token):
    stranger = subprocess.Popen([sys.executable, *python(SLEEP)], start_new_session=True)
    assert nursery.kill_families({stranger.pid: "1"}, 5.0) == []
    assert stranger.poll() is None
    assert nursery.kill_families({stranger.pid: nursery.start_time(stranger.pid)}, 10.0) == []
    assert stranger.wait(10) == -signal.SIGKILL
