"""The first code of ours in a fresh Python worker; when it is done, nothing shows that it ran.

The interpreter imports it because the agent put this directory in front of ``PYTHONPATH``. It
puts ``sys.path`` and the environment back, so that whatever the worker starts is not affected,
installs what ``in_worker`` has, and then imports the ``sitecustomize`` that Python would have
found without us. A worker is never broken by it: whatever goes wrong becomes one line in a file.
"""

import os
import sys

_PACKAGE = "_dlrover_worker"


def _put_back() -> None:
    """Make ``sys.path`` and ``PYTHONPATH`` what they would have been."""
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    original = os.environ.pop("DLROVER_PYTHONPATH", None)
    if original is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = original


def _install() -> None:
    """Load ``in_worker`` under a private name: ``dlrover_cli`` may not be installed here."""
    directory = os.environ.get("DLROVER_WORKER_DIR")
    if not directory:
        return
    package = type(sys)(_PACKAGE)
    code = os.path.join(os.path.dirname(os.path.dirname(__file__)), "in_worker")
    package.__path__ = [code]
    sys.modules[_PACKAGE] = package
    try:
        __import__(f"{_PACKAGE}.install")
        package.install.install(directory, os.environ.get("DLROVER_BEAT_FILE"))
    except Exception as error:  # noqa: BLE001 - a worker must start whatever is wrong with us
        try:
            with open(os.path.join(directory, "bootstrap.log"), "a") as log:
                log.write(f"cannot install: {type(error).__name__}: {error}\n")
        except OSError:
            pass
    sys.path_importer_cache.pop(code, None)


if __name__ == "sitecustomize":
    _put_back()
    _install()
    # Where there is none, this raises what Python itself would have met, and it knows what to do.
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")
