"""What runs on the nodes: looks around there, starts one agent, and reads what it wrote.

Ray carries this file to the nodes by value, so that their Ray need not have this package; hence it
uses the standard library alone.
"""

import json
import os
import shutil
import subprocess
import tempfile
from typing import Any

# Runs as the agent before it becomes it: ends with the actor, however that ends, and hears the
# signals that Ray's worker does not want to hear. Too much for a fork of a process with threads.
_BECOME = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.execv(sys.argv[2], sys.argv[2:])
"""
_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_FACTS = ("KUBERNETES_SERVICE_HOST", "RAY_", "POD_", "NODE_", "HOSTNAME")
_NO_FACTS = ("RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_RAYLET_PID", "RAY_LD_PRELOAD_ON_WORKERS")
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")
_MOST_BYTES = 4 << 20


def look_around(wanted: dict[str, Any]) -> dict[str, Any]:
    """Whether the job can run here, in words, and what tells about the node."""
    return {"problem": _problem(wanted), "envs": _facts_of(os.environ)}


def answer() -> bool:
    """Somebody is there."""
    return True


class AgentHost:
    """The actor of one agent: the agent's process is its child and ends with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._root = ""
        self._own_root = ""

    def start(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Start the agent; says whether it writes to the run directory of the manager itself."""
        shares = _holds(plan["probe"], plan["token"])
        self._root = plan["run_directory"]
        environ = dict(plan["environ"])
        if not shares:
            self._own_root = tempfile.mkdtemp(prefix="dlrover-")
            self._root = os.path.join(self._own_root, plan["run_id"])
            part = json.loads(environ[plan["part_variable"]]) | {"run_directory": self._root}
            environ[plan["part_variable"]] = json.dumps(part)
        if plan["has_devices"]:
            environ |= {key: os.environ[key] for key in _DEVICE_VARIABLES if key in os.environ}
        output = os.path.join(self._root, "agents", plan["agent"])
        os.makedirs(output, mode=0o700, exist_ok=True)
        argv = plan["argv"]
        command = [argv[0], "-I", "-S", "-c", _BECOME, str(os.getpid()), *argv]
        with _appending(output, "stdout.log") as out, _appending(output, "stderr.log") as err:
            self._process = subprocess.Popen(
                command,
                cwd=plan["cwd"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        return {"pid": self._process.pid, "shares": shares}

    def wait(self) -> int | None:
        """Its exit code, negative for a signal."""
        return None if self._process is None else self._process.wait()

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def read(self, seen: dict[str, tuple[int, int]]) -> list[tuple[str, int, int, bytes]]:
        """What is new in the files of a directory of its own: path, inode, offset, bytes.

        ``seen`` has the inode and the number of bytes of each file that the reader has. Not more
        than some megabytes at once; an empty answer means that there is no more.
        """
        found: list[tuple[str, int, int, bytes]] = []
        room = _MOST_BYTES
        for path in _files_below(self._root) if self._own_root else ():
            name = os.path.relpath(path, self._root)
            inode, offset = seen.get(name, (0, 0))
            try:
                with open(path, "rb") as file:
                    status = os.fstat(file.fileno())
                    if status.st_ino != inode or status.st_size < offset:
                        offset = 0  # another file by that name
                    file.seek(offset)
                    data = file.read(room)
            except OSError:
                continue
            if data or name not in seen:
                found.append((name, status.st_ino, offset, data))
                room -= len(data)
            if room <= 0:
                break
        return found

    def forget(self) -> None:
        """Remove the directory of its own: all of it has been read."""
        if self._own_root:
            shutil.rmtree(self._own_root, ignore_errors=True)


def _problem(wanted: dict[str, Any]) -> str:
    if not os.path.isdir(wanted["cwd"]):
        return f"there is no directory {wanted['cwd']}"
    interpreter = wanted["interpreter"]
    if not os.access(interpreter, os.X_OK):
        return f"there is no interpreter {interpreter}"
    for path in wanted["files"]:
        if not os.access(os.path.join(wanted["cwd"], path), os.R_OK):
            return f"there is no {path}, or it cannot be read"
    program = os.path.join(wanted["cwd"], wanted["program"])
    if wanted["program"] and not (
        shutil.which(wanted["program"], path=wanted["path"]) or os.access(program, os.X_OK)
    ):
        return f"there is no program {wanted['program']}"
    return _module_problem(interpreter, wanted["cwd"], wanted["modules"])


def _module_problem(interpreter: str, cwd: str, modules: list[str]) -> str:
    """Looked for in the job's interpreter, which is not the one of Ray here."""
    code = (
        "import importlib.util, sys\n"
        "sys.path.insert(0, '')\n"
        "print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n.split('.')[0]) is None])"
    )
    asked = subprocess.run(
        [interpreter, "-c", code, *modules], cwd=cwd, capture_output=True, text=True, timeout=60
    )
    if asked.returncode != 0:
        return f"{interpreter} does not run: {asked.stderr.strip()[-200:]}"
    missing = asked.stdout.split()
    return f"{interpreter} has no module {', '.join(missing)}" if missing else ""


def _facts_of(environ: Any) -> dict[str, str]:
    return {
        key: text
        for key, text in environ.items()
        if key.startswith(_FACTS)
        and key not in _NO_FACTS
        and not any(word in key.upper() for word in _SECRETS)
    }


def _holds(path: str, token: str) -> bool:
    try:
        with open(path) as file:
            return file.read() == token
    except OSError:
        return False


def _appending(directory: str, name: str) -> Any:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = os.open(os.path.join(directory, name), flags, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def _files_below(root: str) -> list[str]:
    """Whole files only: what is being written beside its final name begins with a dot."""
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if not name.startswith(".")
    )
