"""Where control sockets are: in a short path, in a directory that only the user can enter.

The path of a socket has at most 107 bytes, and network file systems have no sockets: so it is not
in the run directory. `nodes/<agent>/control.json` there says where it is, and whose.
"""

import os
import secrets
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dlrover_cli.errors import LaunchError

FILE = "control.json"
_LONGEST_PATH = 107
_SUFFIX = ".sock"


def runtime_directory(environ: Mapping[str, str], uid: int) -> Path:
    """`$XDG_RUNTIME_DIR/dlrover` or `/tmp/dlrover-<uid>`, made if need be. Raises LaunchError.

    Anybody may make a directory in /tmp before we do: one that is not ours alone is not used.
    """
    base = environ.get("XDG_RUNTIME_DIR", "")
    if (
        os.path.isabs(base)
        and len(os.fsencode(base)) < _LONGEST_PATH - 40
        and _is_private(base, uid)
    ):
        with suppress(LaunchError):
            return _made(Path(base) / "dlrover", uid)
    return _made(Path(f"/tmp/dlrover-{uid}"), uid)


def bind(directory: Path) -> tuple[socket.socket, Path]:
    """A socket that listens, and its path. What dead launchers have left there is removed."""
    _remove_stale(directory)
    name = f"{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
    path, unseen = directory / name, directory / f".{name}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(unseen))
        os.chmod(unseen, 0o600)
        listener.listen(128)
        # Under its name only now: one that is bound and does not listen yet looks like a dead one.
        os.rename(unseen, path)
    except OSError as error:
        listener.close()
        with suppress(OSError):
            os.unlink(unseen)
        raise LaunchError(
            f"cannot open a control socket in {directory}: {error.strerror}"
        ) from error
    return listener, path


def _made(path: Path, uid: int) -> Path:
    with suppress(FileExistsError):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            raise
        except OSError as error:
            raise LaunchError(f"cannot make {path}: {error.strerror}") from error
    if not _is_private(path, uid):
        raise LaunchError(
            f"{path} is not a directory of uid {uid} alone, as `ls -ld {path}` shows",
            hint="remove it, or set XDG_RUNTIME_DIR to a directory of your own with mode 0700",
        )
    return path


def _is_private(path: str | Path, uid: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def _remove_stale(directory: Path) -> None:
    """Nobody listens at them any more; their processes were killed."""
    for path in directory.glob(f"*{_SUFFIX}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                with suppress(OSError):
                    path.unlink()
            except OSError:
                continue  # it is busy, or gone by now
