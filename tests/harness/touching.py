"""`dlrover-job` as somebody types it on the host of a live job, in the test's own process."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.errors import DlroverError


class Touch:
    """`dlrover-job` on the host of a node, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, state: Path, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; an error is on stderr."""
        self._monkeypatch.setenv("XDG_STATE_HOME", str(state))
        self._capsys.readouterr()
        try:
            code, problem = main(list(arguments)), ""
        except DlroverError as error:
            code, problem = error.exit_code, f"{error.message}\n{error.hint}"
        said = self._capsys.readouterr()
        return code, said.out, said.err + problem

    def document(self, state: Path, *arguments: str) -> dict[str, Any]:
        _, out, err = self(state, *arguments, "-o", "json")
        assert out, err
        found: dict[str, Any] = json.loads(out)
        return found
