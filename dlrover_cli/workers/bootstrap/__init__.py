"""How our code gets into a fresh Python worker without a change to its command line.

``site/`` holds a ``sitecustomize.py``. With that directory in front of ``PYTHONPATH`` the
interpreter imports it at its start, it removes every trace of itself, and installs ``in_worker/``,
which is all that ever runs inside a worker. A worker that is forked instead of started calls
``in_worker.install.install`` itself; nothing in there knows how it got there.
"""

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

# The names are repeated in site/sitecustomize.py, which cannot import anything from here.
WORKER_DIRECTORY = "DLROVER_WORKER_DIR"
BEAT_FILE = "DLROVER_BEAT_FILE"
FRAME_LOCALS = "DLROVER_FRAME_LOCALS"
DEBUG = "DLROVER_DEBUG"
POST_MORTEM = "DLROVER_POST_MORTEM"
TERMINAL = "DLROVER_TERMINAL"
_ORIGINAL_PATH = "DLROVER_PYTHONPATH"
_OURS = frozenset(
    (WORKER_DIRECTORY, BEAT_FILE, FRAME_LOCALS, DEBUG, POST_MORTEM, TERMINAL, _ORIGINAL_PATH)
)
_SITE = Path(__file__).resolve().parent / "site"


def bootstrap_environment(
    env: Mapping[str, str],
    directory: Path | str,
    beat_file: Path | str | None,
    *,
    python: bool = True,
    frame_locals: bool = False,
    debugging: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """``env`` for a worker that leaves its facts in ``directory`` and beats in ``beat_file``.

    ``python=False`` is for a program that is not ours to look into: it learns where the directory
    and the beat file are, so that ``dlrover_cli.heartbeat()`` works below it, and nothing else
    changes. ``frame_locals`` adds the local variables to the frames of a recorded exception;
    ``debugging`` is what somebody wants to look into, by `DEBUG`, `POST_MORTEM` and `TERMINAL`.
    """
    # An agent may itself run inside a worker: what that one was told is not for its workers.
    prepared = {name: value for name, value in env.items() if name not in _OURS}
    prepared[WORKER_DIRECTORY] = os.path.abspath(directory)
    if beat_file is not None:
        prepared[BEAT_FILE] = os.path.abspath(beat_file)
    if not python:
        return prepared
    if frame_locals:
        prepared[FRAME_LOCALS] = "1"
    prepared.update(debugging or {})
    original = env.get("PYTHONPATH")
    prepared["PYTHONPATH"] = f"{_SITE}{os.pathsep}{original}" if original else str(_SITE)
    if original is not None:
        prepared[_ORIGINAL_PATH] = original
    return prepared


def restore_python_path(environ: MutableMapping[str, str]) -> None:
    """Undo what `bootstrap_environment` did to ``PYTHONPATH``, for a worker that needs no site."""
    if not environ.get("PYTHONPATH", "").startswith(str(_SITE)):
        return
    original = environ.pop(_ORIGINAL_PATH, None)
    if original is None:
        del environ["PYTHONPATH"]
    else:
        environ["PYTHONPATH"] = original
