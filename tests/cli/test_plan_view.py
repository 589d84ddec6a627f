"""How a plan looks to a person and to a program."""

import io
import json
from dataclasses import dataclass, field

from rich.console import Console

from dlrover_cli.cli.plan_view import render, to_json
from dlrover_cli.config.sources import DEFAULT, Source, SourceKind


@dataclass(frozen=True)
class Setting:
    name: str
    value: object
    source: Source = DEFAULT


@dataclass(frozen=True)
class Rank:
    local_rank: int
    command: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True)
class Plugin:
    kind: str
    reference: str
    loaded_from: str


@dataclass(frozen=True)
class Plan:
    settings: tuple[Setting, ...] = ()
    ranks: tuple[Rank, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    torchrun: tuple[str, ...] = ("torchrun", "t.py")
    notes: tuple[str, ...] = field(default=())


LONG = "/a/very/long/path" * 12
PLAN = Plan(
    settings=(
        Setting("nnodes", "1:1"),
        Setting("log_dir", None),
        Setting("module", False),
        Setting("max_restarts", 3, Source(SourceKind.ENV, "PET_MAX_RESTARTS")),
        Setting("standalone", True, Source(SourceKind.FLAG, "--standalone")),
        Setting("metrics_handler", ("m::A", "m::B"), Source(SourceKind.FILE, "dlrover.toml:x")),
    ),
    ranks=tuple(
        Rank(
            rank,
            ("/usr/bin/python", "-u", "my train.py", "--tag", "[bold]", LONG),
            {"RANK": str(rank), "WORLD_SIZE": "2", "NAME": "a b"},
        )
        for rank in range(2)
    ),
    plugins=(Plugin("metrics handler", "m::A", "/src/m.py"),),
    torchrun=("torchrun", "--standalone", "my train.py"),
    notes=("The store lives in an agent.",),
)


def shown(plan: Plan, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    render(plan, console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_each_setting_has_its_value_and_where_it_came_from() -> None:
    found = rows(shown(PLAN))
    assert ["max_restarts", "3", "PET_MAX_RESTARTS"] in found
    assert ["standalone", "yes", "--standalone"] in found
    assert ["metrics_handler", "m::A,", "m::B", "dlrover.toml:x"] in found
    assert ["nnodes", "1:1", "default"] in found
    assert ["log_dir", "not", "set", "default"] in found
    assert ["module", "no", "default"] in found


def test_what_was_asked_for_comes_before_the_defaults() -> None:
    names = [row[0] for row in rows(shown(PLAN)) if row and row[-1] in {"default", "--standalone"}]
    assert names == ["standalone", "nnodes", "log_dir", "module"]


def test_names_of_settings_stay_in_one_piece_on_a_common_screen() -> None:
    name = "dynamic_failover_extension"
    long = Setting(name, "pkg.mod::Extension" * 3, Source(SourceKind.FLAG, f"--{name}"))
    assert f"\n{name} " in shown(Plan(settings=(long,)))


def test_commands_can_be_copied_whatever_the_width() -> None:
    lines = shown(PLAN, width=40).splitlines()
    assert f"/usr/bin/python -u 'my train.py' --tag '[bold]' {LONG}" in lines
    assert "torchrun --standalone 'my train.py'" in lines


def test_the_environment_is_split_into_what_ranks_share_and_what_differs() -> None:
    text = shown(PLAN)
    shared, _, differing = text.partition("Environment by rank")
    assert "WORLD_SIZE=2" in shared
    assert "NAME='a b'" in shared
    assert ["Local", "rank", "RANK"] in rows(differing)
    assert ["1", "1"] in rows(differing)


def test_different_commands_are_shown_by_rank() -> None:
    plan = Plan(ranks=(Rank(0, ("a",), {}), Rank(1, ("b",), {}), Rank(2, ("a",), {})))
    text = shown(plan)
    assert "Command of local rank 0, 2\na\n" in text
    assert "Command of local rank 1\nb\n" in text


def test_plugins_and_notes_are_shown_where_there_are_any() -> None:
    assert ["metrics", "handler", "m::A", "/src/m.py"] in rows(shown(PLAN))
    assert "- The store lives in an agent." in shown(PLAN)
    assert "Plugins" not in shown(Plan())
    assert "Notes" not in shown(Plan())


def test_nothing_of_a_long_value_is_lost_on_a_narrow_screen() -> None:
    text = shown(
        Plan(settings=(Setting("log_dir", LONG, Source(SourceKind.FLAG, "--log-dir")),)), 60
    )
    assert LONG in "".join(text.replace("log_dir", "").replace("--log-dir", "").split())


def test_json_is_one_document_with_everything() -> None:
    document = json.loads(to_json(PLAN))
    assert document["schema_version"] == 1
    assert document["settings"][3] == {
        "name": "max_restarts",
        "value": 3,
        "source": {"kind": "environment", "where": "PET_MAX_RESTARTS"},
    }
    assert document["settings"][5]["value"] == ["m::A", "m::B"]
    assert document["ranks"][1]["env"]["RANK"] == "1"
    assert document["ranks"][1]["command"][2] == "my train.py"
    assert document["plugins"] == [
        {"kind": "metrics handler", "reference": "m::A", "loaded_from": "/src/m.py"}
    ]
    assert document["torchrun"] == ["torchrun", "--standalone", "my train.py"]
    assert document["notes"] == ["The store lives in an agent."]
