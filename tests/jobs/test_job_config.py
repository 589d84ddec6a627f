"""From an entry of a job file to a plugin's configuration, whose own defaults survive."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.jobs import BaseJobConfig, ExecutionMode
from dlrover_cli.contracts.jsonable import check_round_trip
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.job_config import property_places
from dlrover_cli.jobs.job_file import JobEntry, make_config, make_sub_graph, read_job_file


class Tuned(BaseJobConfig):
    """Has parameters and default properties of its own, and hands on the others."""

    def __init__(self, retries: int = 3, mode: str = "fast", **kwargs: Any) -> None:
        kwargs.setdefault("exec_mode", ExecutionMode.STREAM)
        kwargs.setdefault("properties", {"python": "python3", "level": 1})
        super().__init__(**kwargs)
        self.retries = retries
        self.mode = mode
        self.queue = "default"


class Closed(BaseJobConfig):
    """Takes nothing at all."""

    def __init__(self) -> None:
        super().__init__(properties={"level": 1})


class Careful(BaseJobConfig):
    """Looks at its properties."""

    def __init__(self, properties: dict[str, Any]) -> None:
        if "level" not in properties:
            raise LookupError("level is needed")
        super().__init__(properties=properties)


class Demanding(BaseJobConfig):
    def __init__(self, image: str, job_name: str = "") -> None:
        super().__init__(job_name=job_name)
        self.image = image


def entry(directory: Path, text: str) -> JobEntry:
    path = directory / "train.yaml"
    path.write_text(text)
    return read_job_file(path).jobs[-1]


def refusal(directory: Path, text: str, config_type: type[BaseJobConfig]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        make_config(entry(directory, text), config_type)
    assert caught.value.hint
    return caught.value


def test_what_the_file_says_is_in_the_configuration(tmp_path: Path) -> None:
    text = """\
    first: {engine: torch}
    train:
      engine: torch
      after: first
      periodic_config: {interval: 1h}
      exec_mode: STREAM
      properties: {script: train.py}
      resources: {cpu: 4}
      queue: night
      priority: 7
    """
    config = make_config(entry(tmp_path, text), BaseJobConfig)
    assert (config.platform, config.engine, config.job_name) == ("local", "torch", "train")
    assert config.periodic_config is not None
    assert config.periodic_config.interval == "1h"
    assert config.exec_mode is ExecutionMode.STREAM
    assert config.properties == {"script": "train.py"}
    assert config.after == ["first"]
    assert config.resources == {"cpu": 4}
    assert (config.queue, config.priority) == ("night", 7)
    check_round_trip(config, "the configuration")


def test_defaults_of_the_class_survive_what_the_file_leaves_out(tmp_path: Path) -> None:
    text = "train: {engine: tuned, queue: null, properties: {level: 2, python: null}}"
    config = make_config(entry(tmp_path, text), Tuned)
    assert isinstance(config, Tuned)
    assert config.exec_mode is ExecutionMode.STREAM
    assert config.queue == "default"
    assert config.retries == 3
    assert config.properties == {"python": "python3", "level": 2}


def test_further_parameters_may_be_named_in_the_file(tmp_path: Path) -> None:
    text = "train: {engine: tuned, retries: 5, mode: null, exec_mode: BATCH}"
    config = make_config(entry(tmp_path, text), Tuned)
    assert isinstance(config, Tuned)
    assert (config.retries, config.mode) == (5, "fast")
    assert config.exec_mode is ExecutionMode.BATCH


def test_a_class_whose_constructor_takes_nothing_is_filled_in(tmp_path: Path) -> None:
    text = "train: {engine: closed, properties: {script: t.py}, priority: 2}"
    config = make_config(entry(tmp_path, text), Closed)
    assert (config.platform, config.engine, config.job_name) == ("local", "closed", "train")
    assert config.properties == {"level": 1, "script": "t.py"}
    assert config.priority == 2


def test_a_constructor_sees_the_properties_of_the_file(tmp_path: Path) -> None:
    config = make_config(entry(tmp_path, "train: {engine: e, properties: {level: 3}}"), Careful)
    assert config.properties == {"level": 3}
    error = refusal(tmp_path, "\ntrain: {engine: e}", Careful)
    assert error.message.startswith(f"{tmp_path}/train.yaml:2: the configuration of job 'train'")
    assert "LookupError: level is needed" in error.message


@pytest.mark.parametrize(
    "config_type, key, hint",
    [
        (BaseJobConfig, "proprties", "Did you mean 'properties'?"),
        (BaseJobConfig, "image", "There are: job_name, platform"),
        (Tuned, "retires", "Did you mean 'retries'?"),
        (Tuned, "kwargs", "There are: "),
        (Closed, "self", "There are: "),
    ],
)
def test_a_key_that_nobody_knows_is_refused_with_its_line(
    tmp_path: Path, config_type: type[BaseJobConfig], key: str, hint: str
) -> None:
    error = refusal(tmp_path, f"train:\n  engine: e\n  {key}: 1\n", config_type)
    assert error.message == (
        f"{tmp_path}/train.yaml:3: there is no key {key!r} in a job of engine 'e'"
    )
    assert error.hint is not None
    assert hint in error.hint


def test_an_unknown_key_is_refused_even_if_nothing_stands_after_it(tmp_path: Path) -> None:
    error = refusal(tmp_path, "train:\n  engine: e\n  afetr:\n", BaseJobConfig)
    assert "train.yaml:3: there is no key 'afetr'" in error.message


def test_a_parameter_without_a_default_has_to_be_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, "train:\n  engine: e\n", Demanding)
    assert error.message == (
        f"{tmp_path}/train.yaml:1: job 'train' has no image, and Demanding needs it"
    )
    config = make_config(entry(tmp_path, "train: {engine: e, image: x}"), Demanding)
    assert vars(config)["image"] == "x"


def test_the_sub_graph_is_one_job_and_what_it_comes_after(tmp_path: Path) -> None:
    job = entry(tmp_path, "a: {engine: e}\nb: {engine: e, after: [a], properties: {x: 1}}")
    graph = make_sub_graph(job, make_config(job, BaseJobConfig))
    assert graph.name == "b"
    assert graph.edges == {"b": ["a"]}
    assert [(node.name, node.properties) for node in graph.nodes.values()] == [("b", {"x": 1})]
    assert graph.config.job_name == "b"
    check_round_trip(graph, "the sub-graph")


def test_a_property_is_found_in_the_file_until_the_configuration_was_written(
    tmp_path: Path,
) -> None:
    job = entry(tmp_path, "train:\n  engine: e\n  properties:\n    x: 1\n    y: 2\n")
    config = make_config(job, BaseJobConfig)
    assert property_places(config)("y") == f"{tmp_path}/train.yaml:5"
    assert property_places(config)("z") == f"{tmp_path}/train.yaml:3"
    again = BaseJobConfig.from_json(config.to_json())
    assert property_places(again)("y") == "job 'train'"
