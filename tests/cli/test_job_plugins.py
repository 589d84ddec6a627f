"""`dlrover-job plugins`: what is installed of every kind, and what is wrong with it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.jobs.plugins import GROUP
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.program import run_python
from tests.cli.test_help import loaded
from tests.harness.launcher import Finished

BUILT_IN = [
    ("kubernetes", "torch"),
    ("local", "cmd_line"),
    ("local", "python"),
    ("local", "torch"),
    ("ray", "torch"),
    ("slurm", "torch"),
]
METRICS_HANDLERS = ["console", "jsonl", "otel", "prometheus"]
BROKEN = "print('while it is imported')\nimport no_such_module\n"


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which a package with a broken plugin is installed."""
    entry_points = f"[{GROUP}]\nmoon-rover = broken_plugin:Rover\n"
    return install(tmp_path, "broken", "broken_plugin.py", BROKEN, entry_points)


def install(folder: Path, name: str, module: str, source: str, entry_points: str) -> dict[str, str]:
    """What pip leaves of a package, and the environment in which it is found."""
    site = folder / "site"
    info = site / f"{name}-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(entry_points)
    (site / module).write_text(source)
    return {"PYTHONPATH": str(site)}


UNIFIED = """
from dlrover_cli.contracts import ManagerExtension

class Power(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes):
        return nodes

class Cloud(ManagerExtension):
    def relaunch_nodes_impl(self, nodes):
        return []

class TakesNothing(ManagerExtension):
    def relaunch_nodes_impl(self):
        return []

class Needs(ManagerExtension):
    def __init__(self, credentials):
        pass

class Stranger:
    pass
"""
UNIFIED_ENTRIES = "[dlrover.unified.extension]\n"
OF_TORCHRUN = """
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousHandler

class Specs(DefaultLogsSpecs):
    pass

class Handler(RendezvousHandler):
    pass

def good():
    return lambda params: None

def bad():
    return None
"""


def test_the_built_in_plugins_are_shown_with_where_they_come_from(
    job: Callable[..., Finished],
) -> None:
    found = job("plugins", "list")
    assert (found.returncode, found.stderr) == (0, "")
    jobs, others = found.stdout.split("\n\n")
    heading, *lines = jobs.splitlines()
    assert heading.split() == ["PLATFORM", "ENGINE", "PLUGIN", "PACKAGE", "IMPORT"]
    assert [tuple(line.split()[:2]) for line in lines] == BUILT_IN
    for line in lines:
        assert re.search(r" dlrover_cli\.platforms\.\w+\.\w+:\w+Plugin +dlrover-cli ", line)
        assert line.endswith(" ms")
    heading, *lines = others.splitlines()
    assert heading.split() == ["KIND", "NAME", "PLUGIN", "PACKAGE", "IMPORT"]
    assert [tuple(line.split()[:3]) for line in lines] == [
        ("metrics", "handler", name) for name in METRICS_HANDLERS
    ]


def test_a_plugin_that_cannot_be_used_is_shown_with_its_problem(
    job: Callable[..., Finished], broken: dict[str, str]
) -> None:
    found = job("plugins", "list", env=broken)
    assert found.returncode == 0
    heading, *lines = found.stdout.split("\n\n")[0].splitlines()
    assert heading.split()[-1] == "PROBLEM"
    assert len(lines) == len(BUILT_IN) + 1
    assert lines[-1].split()[:3] == ["-", "-", "broken_plugin:Rover"]
    assert "no_such_module" in lines[-1]


def test_the_document_is_the_only_thing_on_stdout(
    job: Callable[..., Finished], broken: dict[str, str]
) -> None:
    found = job("plugins", "list", "-o", "json", env=broken)
    document = json.loads(found.stdout)
    assert document["schema_version"] == 1
    *usable, unusable = document["plugins"]
    assert [(each["platform"], each["engine"]) for each in usable] == BUILT_IN
    assert all(each["error"] is None and each["import_seconds"] >= 0 for each in usable)
    assert set(unusable) == set(usable[0])
    assert unusable["entry_point"] == "moon-rover"
    assert (unusable["distribution"], unusable["version"]) == ("broken", "2.5")
    assert (unusable["platform"], unusable["engine"]) == (None, None)
    assert "no_such_module" in unusable["error"]
    assert unusable["hint"]


def test_a_terminal_of_80_columns_loses_nothing(
    job: Callable[..., Finished], broken: dict[str, str]
) -> None:
    env = {**broken, "COLUMNS": "80", "TERM": "xterm"}
    found = job("plugins", "list", tty=True, env=env)
    text = re.sub(r"\x1b\[[0-9;]*m|\r", "", found.stdout)
    assert max(map(len, text.splitlines())) <= 80
    assert "dlrover-cli 0." in text
    assert "no_such_module" in re.sub(r"\s", "", text)


def test_listing_plugins_does_not_load_torch() -> None:
    found = run_python("-X", "importtime", JOB_PROGRAM, "plugins", "list")
    assert found.returncode == 0
    assert loaded(found.stderr) & {"torch", "rich", "yaml"} == set()


class TestExtensions:
    def test_each_is_shown_below_the_job_plugins_with_its_kind(
        self, job: Callable[..., Finished], tmp_path: Path
    ) -> None:
        entries = f"{UNIFIED_ENTRIES}power = mine:Power\nstranger = mine:Stranger\n"
        found = job("plugins", "list", env=install(tmp_path, "mine", "mine.py", UNIFIED, entries))
        assert found.returncode == 0
        jobs, others = found.stdout.split("\n\n")
        assert len(jobs.splitlines()) == len(BUILT_IN) + 1
        heading, good, bad, *_ = others.splitlines()
        assert heading.split() == ["KIND", "NAME", "PLUGIN", "PACKAGE", "IMPORT", "PROBLEM"]
        assert good.startswith("unified extension  power")
        assert "mine:Power" in good
        assert "mine 2.5" in good
        assert "must derive from ManagerExtension and derives from object" in bad

    def test_the_document_has_them_beside_the_job_plugins(
        self, job: Callable[..., Finished], tmp_path: Path
    ) -> None:
        entries = f"{UNIFIED_ENTRIES}power = mine:Power\ncloud = mine:Cloud\n"
        env = install(tmp_path, "mine", "mine.py", UNIFIED, entries)
        document = json.loads(job("plugins", "list", "-o", "json", env=env).stdout)
        assert len(document["plugins"]) == len(BUILT_IN)
        names = [(each["kind"], each["entry_point"]) for each in document["extensions"]]
        assert names[:2] == [("unified extension", "cloud"), ("unified extension", "power")]
        assert names[2:] == [("metrics handler", name) for name in METRICS_HANDLERS]
        [conflict] = document["conflicts"]
        assert "mine:Cloud is asked, and not mine:Power" in conflict

    @pytest.mark.full
    def test_those_of_torchrun_are_judged_as_torch_uses_them(
        self, job: Callable[..., Finished], tmp_path: Path
    ) -> None:
        entries = (
            "[torchrun.handlers]\nbad = theirs:bad\ngood = theirs:good\n"
            "[torchrun.logs_specs]\nspecs = theirs:Specs\nworse = theirs:Handler\n"
        )
        env = install(tmp_path, "theirs", "theirs.py", OF_TORCHRUN, entries)
        found = job("plugins", "check", "-o", "json", env=env)
        assert found.returncode == 1
        problems = {
            (each["kind"], each["entry_point"]): each["error"]
            for each in json.loads(found.stdout)["checked"]
            if each["kind"] not in ("job plugin", "metrics handler")
        }
        assert problems.pop(("rendezvous backend", "good")) is None
        assert problems.pop(("logs specs", "specs")) is None
        assert "nothing that could be called" in problems.pop(("rendezvous backend", "bad"))
        assert "must derive from LogsSpecs" in problems.pop(("logs specs", "worse"))
        assert problems == {}


class TestCheck:
    def test_all_is_well(self, job: Callable[..., Finished]) -> None:
        found = job("plugins", "check")
        assert (found.returncode, found.stderr) == (0, "")
        lines = [line.split()[:3] for line in found.stdout.splitlines()]
        assert lines[: len(BUILT_IN)] == [["ok", "job", "plugin"]] * len(BUILT_IN)
        assert lines[len(BUILT_IN) :] == [["ok", "metrics", "handler"]] * len(METRICS_HANDLERS)

    def test_one_that_cannot_be_used_is_an_error_with_a_hint(
        self, job: Callable[..., Finished], broken: dict[str, str]
    ) -> None:
        found = job("plugins", "check", env=broken)
        assert found.returncode == 1
        lines = found.stdout.splitlines()
        [number] = [at for at, line in enumerate(lines) if line.startswith("broken")]
        assert "no_such_module" in lines[number]
        assert lines[number + 1].strip().startswith("hint: ")

    def test_a_conflict_is_explained_and_is_no_error(
        self, job: Callable[..., Finished], tmp_path: Path
    ) -> None:
        entries = f"{UNIFIED_ENTRIES}power = mine:Power\ncloud = mine:Cloud\n"
        env = install(tmp_path, "mine", "mine.py", UNIFIED, entries)
        found = job("plugins", "check", env=env)
        assert found.returncode == 0, found
        assert found.stdout.splitlines()[-1] == (
            "note    relaunch_nodes_impl is defined by several extensions: mine:Cloud is asked, "
            "and not mine:Power, unless it calls super()"
        )

    @pytest.mark.parametrize(
        "reference, code, words",
        [
            ("mine::Power", 0, "ok      unified extension mine::Power"),
            ("mine::TakesNothing", 1, "is called with the list of nodes, and does not take it"),
            ("mine::Needs", 1, "its constructor needs arguments"),
            ("mine::Stranger", 2, "derives from none of AbstractJobPlugin, ManagerExtension"),
            ("mine::Nobody", 2, "there is no 'Nobody'"),
        ],
    )
    def test_a_class_is_checked_as_what_it_derives_from(
        self,
        job: Callable[..., Finished],
        tmp_path: Path,
        reference: str,
        code: int,
        words: str,
    ) -> None:
        (tmp_path / "mine.py").write_text(UNIFIED)
        found = job("plugins", "check", reference)
        assert found.returncode == code, found
        assert words in found.stdout + found.stderr

    def test_a_failover_extension_and_a_job_plugin_are_known_too(
        self, job: Callable[..., Finished]
    ) -> None:
        examples = Path(__file__).parents[2] / "examples"
        for folder, reference, kind in (
            ("failover", "abort_on_code::AbortOnKnownCode", "failover extension"),
            ("job_plugin", "dlrover_make::LocalMakePlugin", "job plugin"),
            ("metrics_in_memory", "mymetrics::MyMetricHandler", "metrics handler"),
        ):
            found = job("plugins", "check", reference, cwd=examples / folder)
            assert found.returncode == 0, found
            assert found.stdout.startswith(f"ok      {kind} {reference}")

    def test_checking_does_not_load_torch_where_nothing_needs_it(self) -> None:
        found = run_python("-X", "importtime", JOB_PROGRAM, "plugins", "check")
        assert found.returncode == 0
        assert "torch" not in loaded(found.stderr)
