"""From the properties of a torch job to a command line, and what the launcher makes of it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_cli.cli.typer_adapter import read_flags
from dlrover_cli.config.argv import normalise_argv
from dlrover_cli.config.declaring import Kind
from dlrover_cli.config.files import read_config_file
from dlrover_cli.config.properties import launch_arguments
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.errors import ConfigError

REFUSED = {"dry_run", "json", "interactive", "debug_rank", "debugger", "pdb"}
SAMPLES: dict[Kind, Any] = {
    Kind.TEXT: "text",
    Kind.WHOLE: 7,
    Kind.NUMBER: 2.5,
    Kind.FLAG: True,
    Kind.TEXTS: ["one", "two"],
}
OWN_SAMPLES: dict[str, Any] = {
    "nnodes": "1:4",
    "nproc_per_node": 2,
    "rdzv_conf": "timeout=3",
    "metrics_cfg": "port=3",
    "redirects": 3,
    "tee": "0:1,1:2",
    "local_ranks_filter": "0,1",
    "ranks_filter": "0,8-15",
    "signals_to_handle": "SIGTERM,SIGUSR1",
}


def where(key: str) -> str:
    return f"train.yaml:{len(key)}"


def arguments(**properties: Any) -> tuple[str, ...]:
    return launch_arguments({"script": "train.py", **properties}, where)


def launched(argv: tuple[str, ...], directory: Path) -> LaunchSettings:
    """What `dlrover-run` understands when it is started so."""
    return resolve_settings(read_flags(normalise_argv(argv), {}), {}, directory)


def refusal(**properties: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        arguments(**properties)
    assert caught.value.hint
    return caught.value


def test_a_training_with_its_settings_and_arguments() -> None:
    assert arguments(
        args=["--epochs", "3", "--", "-x"],
        nproc_per_node=2,
        max_restarts=3,
        dynamic_failover_extension="my.failover::Extension",
        standalone=True,
        module=False,
        hang_timeout=None,
    ) == (
        "--nproc-per-node=2",
        "--max-restarts=3",
        "--dynamic-failover-extension=my.failover::Extension",
        "--standalone",
        "--",
        "train.py",
        "--epochs",
        "3",
        "--",
        "-x",
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_a_property_and_means_what_it_means_in_a_config_file(
    tmp_path: Path, setting: Any
) -> None:
    if setting.key in REFUSED:
        assert (
            f"train.yaml:{len(setting.key)}: {setting.key} "
            in refusal(**{setting.key: True}).message
        )
        return
    choices = setting.choices
    sample = choices[-1] if choices else OWN_SAMPLES.get(setting.key, SAMPLES[setting.kind])
    settings = launched(arguments(**{setting.key: sample}), tmp_path)
    written = str(sample).lower() if isinstance(sample, bool) else repr(sample)
    (tmp_path / "dlrover.toml").write_text(f"{setting.key} = {written}\n")
    assert getattr(settings, setting.name) == read_config_file(tmp_path).values[setting.name]
    assert getattr(settings, setting.name) != setting.default
    assert settings.training_script == "train.py"


def test_dashes_will_do(tmp_path: Path) -> None:
    argv = launch_arguments({"script": "t.py", "max-restarts": 3}, where)
    assert launched(argv, tmp_path).max_restarts == 3


@pytest.mark.parametrize(
    "key, value, sentence, hint",
    [
        ("nproc_per_nod", 2, "is not a property of a torch job", "mean nproc_per_node?"),
        ("scirpt", "x", "is not a property of a torch job", "mean script?"),
        ("wholly_unknown", 2, "is not a property of a torch job", "dlrover-run --help"),
        ("max_restarts", "3", "takes a whole number, not the text '3'", "max_restarts: 3"),
        ("max_restarts", 1.5, "takes a whole number, not the number 1.5", "max_restarts: 3"),
        ("max_restarts", True, "takes a whole number, not true", "max_restarts: 3"),
        ("max_restarts", -1, "takes 0 or more, not -1", "max_restarts: 10"),
        ("standalone", "yes", "takes true or false, not the text 'yes'", "standalone: true"),
        ("worker_start", "frsh", "takes warm or fresh, not 'frsh'", "worker_start: fresh"),
        ("preload", {"a": 1}, "takes a list of texts, not a table", "preload: ["),
        ("nnodes", "4:1", "has its minimum, 4, above its maximum, 1", "nnodes: 1:4"),
        ("nnodes", 1.5, "takes a text, not the number 1.5", "nnodes: "),
        ("role", "a\0b", "holds a NUL character", "Leave it out"),
        ("preload", ["a", "b\0"], "holds a NUL character", "Leave it out"),
        ("preload", ["a,b"], "cannot be given on a command line", "commas"),
        ("duplicate_stdout_filters", ["a", ",b"], "cannot be given on a command", "commas"),
        ("dry_run", True, "starts nothing", "dlrover-run --dry-run"),
        ("dry-run", False, "starts nothing", "dlrover-run --dry-run"),
        ("json", True, "is for --dry-run", "dlrover-run --dry-run"),
        ("interactive", True, "asks on a terminal, and a submitted job has none", "failover_rules"),
        ("failover", {"rules": []}, "is a table of config files", "failover_rules"),
        ("script", 3, "takes a text, not the number 3", "script: train.py"),
        ("script", "", "takes a text, not the text ''", "script: train.py"),
        ("script", "a\0", "holds a NUL character", "Leave it out"),
        ("args", "--epochs 3", "takes a list of texts, not the text '--epochs 3'", "args: ["),
        ("args", {"epochs": 3}, "takes a list of texts, not a table", "args: ["),
        ("args", ["a", "b\0"], "holds a NUL character", "Leave it out"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(
    key: str, value: object, sentence: str, hint: str
) -> None:
    error = refusal(**{key: value})
    assert error.message.startswith(f"train.yaml:{len(key)}: {key} ")
    assert sentence in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    "value, hint", [(3, "in quotes"), (0.5, "in quotes"), (True, "text"), ([], "text")]
)
def test_an_argument_that_is_not_a_text_is_refused(value: object, hint: str) -> None:
    error = refusal(args=["--epochs", value])
    assert error.message.startswith("train.yaml:4: args[1] takes a text, not ")
    assert hint in (error.hint or "")


def test_a_job_needs_a_script() -> None:
    with pytest.raises(ConfigError, match=r"train\.yaml:6: a torch job needs a script to run"):
        launch_arguments({"nproc_per_node": 2, "script": None}, where)


def test_a_setting_stands_once() -> None:
    with pytest.raises(ConfigError, match="max_restarts is given twice"):
        launch_arguments({"script": "t.py", "max-restarts": 3, "max_restarts": 3}, where)


def test_settings_that_contradict_each_other_are_found_before_the_job_is_submitted() -> None:
    assert "contradict each other" in refusal(no_python=True, module=True).message


@pytest.mark.parametrize(
    "place, hint", [("a.toml:3", "max_restarts = 3"), ("b.toml.yaml:3", "max_restarts: 3")]
)
def test_hints_are_in_the_language_of_the_file(place: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        launch_arguments({"script": "t.py", "max_restarts": "x"}, lambda _: place)
    assert caught.value.hint == f"Write it like this: {hint}"


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
WORDS = TEXTS.filter(lambda text: text and "," not in text)


@settings(max_examples=30)
@given(
    script=TEXTS.filter(bool),
    args=st.lists(TEXTS),
    role=TEXTS,
    log_dir=TEXTS,
    filters=st.lists(WORDS, min_size=1),
    modules=st.lists(st.from_regex(r"[a-z_.]+", fullmatch=True), min_size=1),
    interval=st.floats(0.01, 1e6),
)
def test_any_text_arrives_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    script: str,
    args: list[str],
    role: str,
    log_dir: str,
    filters: list[str],
    modules: list[str],
    interval: float,
) -> None:
    properties = {
        "script": script,
        "args": args,
        "role": role,
        "log_dir": log_dir,
        "duplicate_stderr_filters": filters,
        "preload": modules,
        "monitor_interval": interval,
    }
    argv = launch_arguments(properties, where)
    found = launched(argv, tmp_path_factory.getbasetemp())
    assert (found.training_script, found.training_script_args) == (script, tuple(args))
    assert (found.role, found.log_dir) == (role, log_dir)
    assert found.duplicate_stderr_filters == tuple(filters)
    assert found.preload == tuple(modules)
    assert found.monitor_interval == interval
