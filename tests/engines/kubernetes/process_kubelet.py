"""Pods as processes of this machine: what the objects say is really run, as far as that goes.

A container's command and variables are taken from the pod as they are; only what needs a network of
pods is put in other words: names of pods become loopback, and the store's port a free one. Volumes,
images, limits and security there are none.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.engines.kubernetes.api_server import ApiServer

Json = dict[str, Any]
_PROGRAMS = {
    "dlrover-run": "from dlrover_cli.cli.run import console; console()",
    "dlrover-job": "from dlrover_cli.cli.job import console; console()",
}
_PORT = "29400"


class ProcessKubelet:
    """To be the behaviour of an `ApiServer`; ends what is left when it is closed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.codes: list[tuple[str, int]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])

    def __call__(self, server: ApiServer, pod: Json) -> None:
        """In a thread of its own: from the start of the container to its end."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        container = pod["spec"]["containers"][0]
        state = self._directory / uid
        state.mkdir()
        process = subprocess.Popen(
            self._command(container["command"]),
            env=self._environment(container["env"], name, state),
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with self._lock:
            self._processes[uid] = process
        server.run(pod, f"machine-of-{name}")
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            last = line.decode(errors="replace").rstrip("\n")
            server.print(pod, last)
        code = process.wait()
        code = 128 - code if code < 0 else code
        self.codes.append((name, code))
        server.end(pod, code, last if code else "")

    def kill(self, pod: Json, number: signal.Signals = signal.SIGKILL) -> None:
        """All processes of a container, as when its machine is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self._processes[pod["metadata"]["uid"]].pid, number)

    def end(self, pod: Json) -> None:
        """As the kubelet does: SIGTERM to the container's first process."""
        process = self._processes.get(pod["metadata"]["uid"])
        if process is not None:
            process.terminate()

    def close(self) -> None:
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _command(self, command: list[str]) -> list[str]:
        program, *arguments = command
        return [sys.executable, "-c", _PROGRAMS[program], *map(self._localised, arguments)]

    def _localised(self, argument: str) -> str:
        if argument.startswith("--rdzv-endpoint="):
            return f"--rdzv-endpoint=127.0.0.1:{self._port}"
        if argument == f"--port={_PORT}":
            return f"--port={self._port}"
        return argument.replace("$$(", "$(")

    def _environment(self, variables: list[Json], name: str, state: Path) -> dict[str, str]:
        fields = {"status.podIP": "127.0.0.1", "spec.nodeName": f"machine-of-{name}"}
        found = {key: text for key, text in os.environ.items() if not key.startswith("DLROVER_R")}
        for variable in variables:
            if "value" in variable:
                found[variable["name"]] = variable["value"]
            else:
                found[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        return found | {"XDG_STATE_HOME": str(state)}
