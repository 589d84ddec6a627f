"""Fixtures: the API server on loopback, and an environment in which it is the cluster at hand."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.engines import are_required

if TYPE_CHECKING:
    from tests.engines.kubernetes.api_server import ApiServer

_MISSING = [
    name for name in ("kubernetes", "kubernetes_validate") if importlib.util.find_spec(name) is None
]


class _Missing(pytest.Module):
    """Stands for a test module that cannot even be imported."""

    def collect(self) -> Any:
        reason = f"the extra 'k8s' is not installed: {', '.join(_MISSING)}"
        if are_required():
            raise self.CollectError(reason)
        pytest.skip(reason, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    return _Missing.from_parent(parent, path=module_path) if _MISSING else None


@pytest.fixture
def api() -> Iterator["ApiServer"]:
    """Whatever it was asked that Kubernetes would not have understood fails the test."""
    from tests.engines.kubernetes.api_server import serving

    with serving() as server:
        yield server
        assert server.faults == []


@pytest.fixture
def cluster(api: "ApiServer", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "ApiServer":
    """The same, as the cluster that KUBECONFIG names."""
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return api


@pytest.fixture
def settings() -> Callable[..., Any]:
    """`settings(nnodes="2", …)`: as from a command line."""
    from dlrover_cli.config.resolve import resolve_settings

    def make(script: str = "train.py", *args: str, **flags: object) -> Any:
        given = {"k8s_image": "registry.example.com/team/train:1.0", **flags}
        texts = {"training_script": script, "training_script_args": args}
        return resolve_settings({**texts, **given}, {}, Path("/nonexistent"))

    return make
