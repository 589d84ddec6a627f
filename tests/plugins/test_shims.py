"""The source documents' code runs with their import lines, with and without the real packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_cli.plugins.reference import load_reference
from tests.plugins.user_code import UserCode

REPOSITORY = Path(__file__).parents[2]

# Both as printed in "How to Implement Dynamic Fault Tolerance in DLRover".
ABSTRACTION = """
from abc import ABC, abstractmethod

from dlrover.python.common.enums import FailoverStrategy


class DynamicFailoverExtension(ABC):

    @abstractmethod
    def get_user_failover_strategy(self, failure_info) -> FailoverStrategy:
        return FailoverStrategy.NORMAL_FAILOVER
"""
EXAMPLE = """
from dlrover.python.elastic_agent.torch.dynamic_failover import (
    DynamicAgentFailoverExtension, AgentFailureInfo,
)
from dlrover.python.common.enums import FailoverStrategy


class TestDynamicFailoverExtension(DynamicAgentFailoverExtension):

    def get_user_failover_strategy(self,
                                   failure_info: AgentFailureInfo) -> FailoverStrategy:
        # stop job whatever the failure is
        return FailoverStrategy.ABORTION_FAILOVER
"""
MANAGER_EXAMPLE = """
from dlrover.python.unified.controller.extension import ManagerExtension

class XXXExtension(ManagerExtension):
    def xxx(self):
        return "xxx"
"""
LOAD_EXAMPLE = """
from pathlib import Path
from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.plugins.failover_extension import load_failover_extension

reference = "test.user_def_failover::TestDynamicFailoverExtension"
extension = load_failover_extension(reference, [Path.cwd()])
answer = extension.get_user_failover_strategy(AgentFailureInfo(node_rank=1))
print(answer.name, type(answer).__module__)
"""
# What an installed DLRover has at these paths, as far as an extension can see it.
INSTALLED_ENUMS = """
from enum import Enum

class FailoverStrategy(Enum):
    NORMAL_FAILOVER = "NORMAL_FAILOVER"
    ABORTION_FAILOVER = "ABORTION_FAILOVER"
"""
INSTALLED_FAILOVER = """
from abc import ABC, abstractmethod
from dataclasses import dataclass

@dataclass
class AgentFailureInfo:
    node_rank: int = -1

class DynamicAgentFailoverExtension(ABC):
    @abstractmethod
    def get_user_failover_strategy(self, failure_info): ...
"""


def run_python(code: str, cwd: Path, *path: Path) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, REPOSITORY]))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.fixture
def installed_dlrover(tmp_path: Path) -> Path:
    site = UserCode(tmp_path / "site")
    for package in (".", "python", "python/common", "python/elastic_agent"):
        site.write(f"dlrover/{package}/__init__.py", "")
    site.write("dlrover/python/elastic_agent/torch/__init__.py", "")
    site.write("dlrover/python/common/enums.py", INSTALLED_ENUMS)
    site.write("dlrover/python/elastic_agent/torch/dynamic_failover.py", INSTALLED_FAILOVER)
    return site.root


@pytest.fixture
def work(tmp_path: Path) -> UserCode:
    code = UserCode(tmp_path / "work")
    code.write("test/user_def_failover.py", EXAMPLE)
    return code


class TestDlroversExample:
    @pytest.mark.parametrize("with_init", [True, False])
    def test_runs_as_printed_without_dlrover(self, work: UserCode, with_init: bool) -> None:
        if with_init:
            work.write("test/__init__.py", "")
        said = run_python(LOAD_EXAMPLE, work.root)
        assert said == "ABORTION_FAILOVER dlrover_cli.contracts.failover"

    @pytest.mark.parametrize("with_init", [True, False])
    def test_runs_as_printed_with_dlrover(
        self, work: UserCode, installed_dlrover: Path, with_init: bool
    ) -> None:
        if with_init:
            work.write("test/__init__.py", "")
        said = run_python(LOAD_EXAMPLE, work.root, installed_dlrover)
        assert said == "ABORTION_FAILOVER dlrover.python.common.enums"

    def test_runs_beside_a_folder_that_only_has_the_name_of_dlrover(self, work: UserCode) -> None:
        work.write("dlrover/job.yaml", "")
        said = run_python(LOAD_EXAMPLE, work.root)
        assert said == "ABORTION_FAILOVER dlrover_cli.contracts.failover"

    def test_runs_on_top_of_a_copy_of_the_printed_base_class(self, work: UserCode) -> None:
        work.write("test/base_copy.py", ABSTRACTION)
        work.write(
            "test/user_def_failover.py",
            """
            from .base_copy import DynamicFailoverExtension, FailoverStrategy

            class TestDynamicFailoverExtension(DynamicFailoverExtension):
                def get_user_failover_strategy(self, failure_info):
                    return FailoverStrategy.ABORTION_FAILOVER
            """,
        )
        assert run_python(LOAD_EXAMPLE, work.root).startswith("ABORTION_FAILOVER")


IMPORT_PATHS = {
    "dlrover.python.common.enums": ["FailoverStrategy"],
    "dlrover.python.common.failover": ["DynamicFailoverExtension", "FailureInfo"],
    "dlrover.python.elastic_agent.torch.dynamic_failover": [
        "AgentFailureInfo",
        "DynamicAgentFailoverExtension",
    ],
    "dlrover.python.unified.controller.extension": ["ManagerExtension"],
    "dlrover.python.unified.common.actor_base": ["NodeInfo"],
}


class TestImportPaths:
    def test_every_import_path_of_dlrover_is_ours_without_it_and_without_torch(
        self, tmp_path: Path
    ) -> None:
        lines = [f"from {path} import {', '.join(names)}" for path, names in IMPORT_PATHS.items()]
        checks = [
            f"assert {name}.__module__.startswith('dlrover_cli.contracts.')"
            for names in IMPORT_PATHS.values()
            for name in names
        ]
        code = [
            "from dlrover_cli.plugins.shims import install_import_shims",
            "install_import_shims()",
            *lines,
            *checks,
            MANAGER_EXAMPLE,
            "print(XXXExtension().xxx())",
            "import sys; assert 'torch' not in sys.modules",
        ]
        assert run_python("\n".join(code), tmp_path) == "xxx"

    def test_torchelastic_metrics_is_torchs(self, user: UserCode) -> None:
        from torch.distributed.elastic import metrics as real

        user.write(
            "mymetrics.py",
            """
            import torchelastic.metrics as metrics


            class MyMetricHandler(metrics.MetricHandler):
                def emit(self, metric_data: metrics.MetricData):
                    pass

            metrics.initialize_metrics()
            """,
        )
        handler = load_reference(
            "mymetrics::MyMetricHandler",
            option="--metrics_handler",
            base=real.MetricHandler,
            roots=user.roots,
        )
        shim = sys.modules["torchelastic.metrics"]
        assert shim.configure is real.configure
        assert handler.__module__ == "mymetrics"

    def test_an_installed_package_is_never_hidden(
        self, tmp_path: Path, installed_dlrover: Path
    ) -> None:
        UserCode(installed_dlrover).write("torchelastic/__init__.py", "metrics = 'theirs'\n")
        code = """
from dlrover_cli.plugins.shims import install_import_shims
install_import_shims()
import dlrover, dlrover.python.common.enums as enums, torchelastic
print(torchelastic.metrics, enums.__file__)
"""
        said = run_python(code, tmp_path, installed_dlrover)
        assert said == f"theirs {installed_dlrover}/dlrover/python/common/enums.py"

    def test_an_older_dlrover_gets_only_what_it_lacks(
        self, tmp_path: Path, installed_dlrover: Path
    ) -> None:
        lacking = installed_dlrover / "dlrover/python/elastic_agent/torch/dynamic_failover.py"
        lacking.unlink()
        code = """
from dlrover_cli.plugins.shims import install_import_shims
install_import_shims()
from dlrover.python.elastic_agent.torch import dynamic_failover
from dlrover.python.common.enums import FailoverStrategy
print(dynamic_failover.AgentFailureInfo.__module__, FailoverStrategy.__module__)
"""
        said = run_python(code, tmp_path, installed_dlrover)
        assert said == "dlrover_cli.contracts.failover dlrover.python.common.enums"


def test_the_finder_is_last_and_there_once(user: UserCode) -> None:
    from dlrover_cli.plugins.shims import ShimFinder, install_import_shims

    install_import_shims()
    later = object()
    sys.meta_path.append(later)  # type: ignore[arg-type]
    install_import_shims()
    assert isinstance(sys.meta_path[-1], ShimFinder)
    assert sum(isinstance(finder, ShimFinder) for finder in sys.meta_path) == 1


def test_what_is_not_provided_stays_missing(user: UserCode) -> None:
    from dlrover_cli.plugins.shims import install_import_shims

    install_import_shims()
    with pytest.raises(ModuleNotFoundError, match=r"dlrover\.python\.common\.log"):
        import dlrover.python.common.log  # noqa: F401
