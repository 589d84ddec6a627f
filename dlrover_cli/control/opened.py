"""The control socket of one launcher of a run, and what the run directory tells about it."""

import os
from collections.abc import Mapping
from contextlib import suppress

from dlrover_cli.control.place import FILE, bind, runtime_directory
from dlrover_cli.control.redaction import redacted
from dlrover_cli.control.server import ControlServer, Respond
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import RunDirectory

ENVIRONMENT_FILE = "environment.json"


class Control:
    """Opened for the life of one launcher, and closed by whoever opened it."""

    def __init__(
        self,
        respond: Respond,
        record: Recorder,
        run_directory: RunDirectory,
        environ: Mapping[str, str],
    ) -> None:
        """Raises LaunchError if there is no place for a socket."""
        self._directory = run_directory
        self._environ = redacted(environ)
        listener, self._path = bind(runtime_directory(environ, os.geteuid()))
        # In its thread, since a disk may be slow and the job need not wait for it.
        self._server = ControlServer(listener, respond, record, self._write_files)

    def close(self) -> None:
        """Leave neither socket nor the file that names it behind."""
        with suppress(OSError):
            self._path.unlink()
        self._server.close()
        with suppress(OSError):
            (self._directory.node / FILE).unlink()

    def _write_files(self) -> None:
        node = f"nodes/{self._directory.agent}"
        own = {"schema_version": 1, "socket": str(self._path), **ProcessIdentity.own().to_json()}
        self._directory.write_document(f"{node}/{FILE}", own)
        document = {"schema_version": 1, "environment": self._environ}
        self._directory.write_document(f"{node}/{ENVIRONMENT_FILE}", document)
