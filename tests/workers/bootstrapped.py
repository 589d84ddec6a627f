"""Real Python workers with the in-worker bootstrap, started as the agent starts them."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.workers.beats import Beat, BeatPage
from dlrover_cli.workers.bootstrap import bootstrap_environment
from tests.harness.waiting import eventually


@dataclass(frozen=True, slots=True)
class Ended:
    """One worker that ran to its end."""

    status: int
    stdout: str
    stderr: str
    directory: Path
    beat: Beat

    def record(self, name: str) -> dict[str, Any]:
        """One of the files that the worker left."""
        document: dict[str, Any] = json.loads((self.directory / f"{name}.json").read_text())
        return document

    @property
    def records(self) -> set[str]:
        return {path.stem for path in self.directory.glob("*.json")}

    @property
    def problems(self) -> str:
        log = self.directory / "bootstrap.log"
        return log.read_text() if log.exists() else ""


class Workers:
    """Starts workers below one directory; `Workers(tmp_path)` in a test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = directory / "train.py"
        self._started = 0

    def write(self, code: str) -> Path:
        self.script.write_text(textwrap.dedent(code))
        return self.script

    def environment(
        self, env: Mapping[str, str] | None = None, **options: Any
    ) -> tuple[dict[str, str], Path, BeatPage]:
        """The environment of a new worker, its directory and its page."""
        self._started += 1
        directory = self.directory / f"worker_{self._started}"
        directory.mkdir()
        page = BeatPage(self.directory / f"beat_{self._started}")
        base = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | dict(env or {})
        return bootstrap_environment(base, directory, page.path, **options), directory, page

    def run(
        self,
        code: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        before: Callable[[Path], None] = lambda directory: None,
        **options: Any,
    ) -> Ended:
        """Run a script to its end."""
        environ, directory, page = self.environment(env, **options)
        before(directory)
        done = subprocess.run(
            [python, "-u", str(self.write(code)), *args],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        beat = page.read()
        page.close()
        return Ended(done.returncode, done.stdout, done.stderr, directory, beat)

    def run_plain(self, code: str, *args: str, env: Mapping[str, str] | None = None) -> Ended:
        """The same without anything of ours."""
        base = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | dict(env or {})
        done = subprocess.run(
            [sys.executable, "-u", str(self.write(code)), *args],
            env=base,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ended(done.returncode, done.stdout, done.stderr, self.directory, Beat())

    @contextmanager
    def running(self, code: str, *, until: str = "ready\n", **options: Any) -> Iterator["Running"]:
        """A worker that runs while inside; entered when it has printed `until`."""
        environ, directory, page = self.environment(**options)
        process = subprocess.Popen(
            [sys.executable, "-u", str(self.write(code))],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == until
            yield Running(process, directory, page)
        finally:
            process.kill()
            process.communicate()
            page.close()


@dataclass(frozen=True, slots=True)
class Running:
    process: subprocess.Popen[str]
    directory: Path
    page: BeatPage

    @property
    def pid(self) -> int:
        return self.process.pid

    def await_record(self, name: str) -> dict[str, Any]:
        path = self.directory / f"{name}.json"
        eventually(path.exists, 20, what=f"{name}.json")
        document: dict[str, Any] = json.loads(path.read_text())
        return document
