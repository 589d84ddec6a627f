"""A process that has imported torch once and forks a launcher for every request.

Run as a script by `tests.harness.launcher`; it uses nothing of the test suite. Arguments: the
number of a SOCK_SEQPACKET socket and the session's token. A request is one JSON packet with four
descriptors: a reply socket, stdin, stdout, stderr. The reply is `{"pid": …}` with a pidfd, and
`{"status": …}` when the launcher has ended.

The server stays single-threaded and never runs a tensor operation, so its children are as good as
new processes. What a fork cannot give them (variables read by the interpreter, the loader or torch
at import; /proc/<pid>/cmdline) is why `real=True` exists. When the request socket closes, because
the tests ended or died, the server kills all processes of the session and goes.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.machinery
import json
import os
import select
import signal
import socket
import sys
import tempfile
import termios
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKEN_VARIABLE = "DLROVER_TEST_TOKEN"
MAX_REQUEST = 1 << 20
PRELOAD = (
    "dlrover_cli.cli.run",  # registers an exit function that has to be the first one
    "torch.distributed.run",
    "dlrover_cli.launch.run",
    "dlrover_cli.launch.compose",
    "dlrover_cli.launch.from_settings",
    "dlrover_cli.launch.helpers",
    # What a zygote loads, which then has nothing left to do.
    "numpy",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch.optim",
    "torch._dynamo",
)


@dataclass(slots=True)
class Child:
    """A launcher under way: who it is and whom to tell about its end."""

    pid: int
    pidfd: int
    reply: socket.socket


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    preload()
    job = serve(control)
    if job is not None:
        become_launcher(job)
    else:
        kill_session(sys.argv[2])


def preload() -> None:
    """Import what every launcher imports; a broken module is the launcher's to report."""
    for name in PRELOAD:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - the launcher will meet it again and report it
            print(f"launch server: {name} not preloaded: {error!r}", file=sys.stderr, flush=True)
    threads = list(Path("/proc/self/task").iterdir())
    if len(threads) != 1:
        raise SystemExit(
            f"launch server: {len(threads)} threads after the imports; forks are unsafe"
        )
    gc.collect()
    gc.freeze()


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork launchers until the control socket closes; returns a job in each child."""
    children: dict[int, Child] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for fd, _event in poll.poll():
            if fd in children:
                poll.unregister(fd)
                report(children.pop(fd))
                continue
            packet, fds, _flags, _address = socket.recv_fds(control, MAX_REQUEST, 4)
            if not packet:
                return None
            reply = socket.socket(fileno=fds[0])
            pid = os.fork()
            if pid == 0:
                # Close by object: a forgotten one would close somebody else's descriptor later.
                for each in (control, reply, *(child.reply for child in children.values())):
                    each.close()
                for pidfd in children:
                    os.close(pidfd)
                return {**json.loads(packet), "stdio": fds[1:]}
            for stdio in fds[1:]:
                os.close(stdio)
            child = Child(pid, os.pidfd_open(pid), reply)
            children[child.pidfd] = child
            poll.register(child.pidfd, select.POLLIN)
            with contextlib.suppress(OSError):
                socket.send_fds(reply, [json.dumps({"pid": pid}).encode()], [child.pidfd])


def report(child: Child) -> None:
    _pid, status = os.waitpid(child.pid, 0)
    packet = json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode()
    with contextlib.suppress(OSError):
        child.reply.send(packet)
    child.reply.close()
    os.close(child.pidfd)


def kill_session(token: str) -> None:
    """End every process whose token begins with the session's; the server's own does not."""
    needle = f"\0{TOKEN_VARIABLE}={token}".encode()
    found = True
    while found:
        found = False
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if needle in b"\0" + (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
                    found = True


def become_launcher(job: dict[str, Any]) -> None:
    """Turn the fresh fork into what exec of the console script would have given, and run it."""
    os.setsid()
    for target, source in enumerate(job["stdio"]):
        os.dup2(source, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if job["tty"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    default_signals(job["ignored_signals"])

    stamp_token(job["env"][TOKEN_VARIABLE])
    os.environ.clear()
    os.environ.update(job["env"])
    tempfile.tempdir = None  # some import has asked for it already
    os.chdir(job["cwd"])

    script = job["script"]
    sys.argv = [script, *job["argv"]]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path[0] = str(Path(script).parent)
    run_as_main(script)


def default_signals(ignored: list[int]) -> None:
    """What a new interpreter has, however the tests themselves were started."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Python ignores these two in every process and makes SIGINT a KeyboardInterrupt.
    pythons_own = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGKILL, signal.SIGSTOP}
    for number in signal.valid_signals() - pythons_own:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


def stamp_token(token: str) -> None:
    """Write the token over the server's own in this process's initial environment.

    /proc/<pid>/environ shows the memory that exec laid out, whatever putenv does later, and
    children that are forked rather than executed show the same. The kernel gives the address.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    area = ctypes.string_at(start, end - start)
    prefix = f"{TOKEN_VARIABLE}=".encode()
    entry = next(e for e in area.split(b"\0") if e.startswith(prefix))
    if len(entry) != len(prefix) + len(token):
        raise SystemExit("launch server: the token does not have the length of the server's own")
    ctypes.memmove(start + area.index(entry) + len(prefix), token.encode(), len(token))


def run_as_main(script: str) -> None:
    """Execute the console script as a new `__main__`, as `python script` does."""
    main_module = types.ModuleType("__main__")
    main_module.__file__ = script
    main_module.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    main_module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    exec(compile(Path(script).read_bytes(), script, "exec"), main_module.__dict__)


if __name__ == "__main__":
    main()
