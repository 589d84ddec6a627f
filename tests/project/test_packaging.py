"""The distribution: what an install takes is pinned, and a torch that is present stays."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import dlrover_cli
from tests.project.documents import ROOT, text, tracked_files

PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
CONTRACTS = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_constraints_pin_all_that_an_install_takes(extra: str):
    constraints = pinned_versions()
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    try:
        needed = with_dependencies(wanted) - {"dlrover-cli"}
    except metadata.PackageNotFoundError as error:
        if extra == "dev":
            raise
        pytest.skip(f"the extra {extra!r} is not installed: {error}")
    assert needed - set(constraints) == set()
    for name in needed:
        installed = Version(metadata.version(name))
        assert Version(installed.public) == Version(constraints[name]), name


def test_any_build_of_the_tested_torch_satisfies_range_and_constraint():
    [torch] = [Requirement(r) for r in PROJECT["dependencies"] if r.startswith("torch")]
    pin = Requirement(f"torch=={pinned_versions()['torch']}")
    assert pin.specifier == Requirement("torch==2.13.0").specifier
    for build in ("2.13.0", "2.13.0+cpu", "2.13.0+cu130"):
        assert torch.specifier.contains(build)
        assert pin.specifier.contains(build)
    assert not torch.specifier.contains("2.12.1")
    assert not torch.specifier.contains("2.14.0")


def test_the_installed_version_is_the_one_in_the_source():
    assert metadata.version("dlrover-cli") == dlrover_cli.__version__


def test_the_licence_is_apache_2():
    licence = text("LICENSE")
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout knows its files")
def test_nothing_names_this_machine_or_a_registry():
    hosts = r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|anaconda\.org"
    # Paths of one part, such as /usr or /src, may well be meant.
    places = {ROOT, Path.home() / "x", Path(sys.prefix)}
    names = [re.escape(str(place).removesuffix("x")) for place in places if len(place.parts) > 2]
    pattern = re.compile("|".join([hosts, *names]))
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked_files()
        if path != Path(__file__)
        for match in [pattern.search(path.read_text(errors="replace"))]
        if match
    ]
    assert found == []


def test_modules_of_the_torch_free_contract_import_without_torch():
    [contract] = [c for c in CONTRACTS if c["type"] == "forbidden"]
    program = (
        "import importlib, pkgutil, sys\n"
        "for name in sys.argv[1:]:\n"
        "    module = importlib.import_module(name)\n"
        "    for each in pkgutil.walk_packages(getattr(module, '__path__', []), name + '.'):\n"
        "        importlib.import_module(each.name)\n"
        "        assert 'torch' not in sys.modules, each.name + ' imports torch'\n"
    )
    command = [sys.executable, "-c", program, *contract["source_modules"]]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def pinned_versions() -> dict[str, str]:
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    pairs = (line.split("==") for line in lines)
    return {canonicalize_name(name): version for name, version in pairs}


def with_dependencies(requirements: list[str]) -> set[str]:
    """The names of these requirements and of all that they require in turn."""
    found: set[str] = set()
    waiting = [Requirement(requirement) for requirement in requirements]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in done:
            continue
        done.add(key)
        found.add(name)
        for text_ in metadata.requires(name) or []:
            further = Requirement(text_)
            extras = requirement.extras or {""}
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in extras
            ):
                waiting.append(further)
    return found
