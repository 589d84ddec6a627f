"""Jobs and handlers are data: what one process writes another reads, or it is refused with why."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlrover_cli.contracts
from dlrover_cli.contracts import (
    AbstractEngine,
    AbstractJob,
    AbstractJobConfig,
    AbstractJobGenerator,
    AbstractJobHandler,
    AbstractJobPlugin,
    AbstractJobSubmitter,
    AbstractPlatform,
    AISubGraph,
    BaseJob,
    BaseJobConfig,
    BaseNode,
    ExecutionMode,
    JobContext,
    JobResult,
    Jsonable,
    NotJsonable,
    PeriodicConfig,
    ProjectDesc,
    register_engine,
    register_job_plugin,
    register_platform,
)
from dlrover_cli.contracts.jsonable import check_round_trip, decode, encode
from tests.contracts.job_classes import (
    Colour,
    Forgetful,
    Fragile,
    Layer,
    Numbered,
    Paint,
    PaintConfig,
    PaintHandler,
    PaintJob,
    ReadOnly,
    Shy,
    WritesBytes,
    paint_job,
)

ROOT = Path(__file__).parents[2]


def written_and_read(value: Jsonable) -> Any:
    """What another process would have of it."""
    return decode(json.loads(json.dumps(encode(value))))


class TestWrittenAndRead:
    def test_every_kind_of_attribute_comes_back(self) -> None:
        paint = Paint()
        again = written_and_read(paint)
        assert type(again) is Paint
        assert again.other.thickness == 2
        for name in ("colour", "text", "whole", "part", "yes", "nothing", "listed", "mapped"):
            assert getattr(again, name) == getattr(paint, name), name

    def test_a_private_attribute_stays_in_its_process(self) -> None:
        assert not hasattr(written_and_read(Paint()), "_handle")

    def test_a_tuple_comes_back_as_a_list(self) -> None:
        layer = Layer(1)
        layer.thickness = (1, (2,))  # type: ignore[assignment]
        assert written_and_read(layer).thickness == [1, [2]]

    def test_a_job_comes_back_with_its_context_and_configuration(self) -> None:
        again = written_and_read(paint_job())
        assert isinstance(again, PaintJob)
        assert (again.name, again.job_config.job_name) == ("paint", "paint")
        assert isinstance(again.job_config, PaintConfig)
        assert again.job_config.exec_mode is ExecutionMode.BATCH
        assert again.job_context.project.project_config == {"floors": 2}
        assert [layer.thickness for layer in again.layers] == [1, 2]

    def test_a_job_that_was_read_has_no_handler_until_it_is_given_one(self) -> None:
        job = paint_job()
        assert job.job_handler is None
        job.job_handler = PaintHandler(7)
        again = written_and_read(job)
        assert again.job_handler is None
        again.job_handler = written_and_read(job.job_handler)
        assert again.job_handler.pid == 7

    def test_a_graph_comes_back(self) -> None:
        config = PaintConfig(
            job_name="paint", periodic_config=PeriodicConfig(cron="0 3 * * *", start_date="2030")
        )
        graph = AISubGraph(config, {"wall": BaseNode("1", "wall", {"m2": 12})}, {"paint": ("dry",)})
        again = written_and_read(graph)
        assert again.config.periodic_config.cron == "0 3 * * *"
        assert again.nodes["wall"].properties == {"m2": 12}
        assert again.edges == {"paint": ["dry"]}

    def test_another_process_reads_it(self, tmp_path: Path) -> None:
        path = tmp_path / "job.json"
        path.write_text(json.dumps(encode(paint_job())))
        program = (
            "import json, sys\n"
            "from dlrover_cli.contracts.jsonable import decode\n"
            "job = decode(json.load(open(sys.argv[1])))\n"
            "print(type(job).__name__, job.job_config.colour, job.layers[1].thickness)\n"
        )
        printed = subprocess.run(
            [sys.executable, "-c", program, path], cwd=ROOT, text=True, capture_output=True
        )
        assert printed.stdout == "PaintJob Colour.RED 2\n", printed.stderr


class TestConfigurations:
    def test_defaults_survive_where_a_file_says_only_a_part(self) -> None:
        config = PaintConfig(coats=3, job_name="paint")
        assert (config.coats, config.colour) == (3, Colour.RED)
        assert config.exec_mode is ExecutionMode.BATCH
        assert (config.platform, config.engine, config.periodic_config) == (None, None, None)
        assert (config.properties, config.after, config.resources) == ({}, [], {})
        assert (config.queue, config.priority) == (None, 0)

    def test_two_configurations_share_nothing(self) -> None:
        given = {"walls": 4}
        first, second = BaseJobConfig(properties=given), BaseJobConfig()
        first.properties["doors"] = 1
        first.after.append("other")
        first.resources["cpu"] = 2
        assert (second.properties, second.after, second.resources) == ({}, [], {})
        assert given == {"walls": 4}

    def test_a_job_has_the_name_of_its_configuration(self) -> None:
        assert BaseJob(JobContext(), BaseJobConfig(job_name="paint")).name == "paint"

    def test_the_run_directory_is_a_path(self) -> None:
        job = paint_job()
        job.job_context.run_directory = "/srv/runs/1"
        assert job.run_directory == Path("/srv/runs/1")


def with_value(value: object) -> Layer:
    layer = Layer(1)
    layer.thickness = value  # type: ignore[assignment]
    return layer


def local_class() -> Jsonable:
    class Local(Jsonable):
        pass

    return Local()


def of_the_main_program() -> Jsonable:
    return type("Typed", (Jsonable,), {"__module__": "__main__"})()  # type: ignore[no-any-return]


def of_no_module() -> Jsonable:
    return type("Gone", (Jsonable,), {"__module__": "gone.away"})()  # type: ignore[no-any-return]


def renamed() -> Jsonable:
    return type("Renamed", (Layer,), {"__module__": Layer.__module__})(1)  # type: ignore[no-any-return]


def in_a_circle() -> Jsonable:
    layer = with_value(None)
    layer.thickness = [layer]  # type: ignore[assignment]
    return layer


BAD: list[tuple[str, Callable[[], Jsonable], str]] = [
    ("a lambda", lambda: with_value(lambda: 1), "Layer.thickness is a function"),
    ("a path", lambda: with_value(Path("/x")), "Layer.thickness is a PosixPath"),
    ("a set", lambda: with_value({1}), "Layer.thickness is a set"),
    ("bytes", lambda: with_value(b"x"), "Layer.thickness is a bytes"),
    ("not a number", lambda: with_value(float("nan")), "Layer.thickness is nan"),
    ("infinity", lambda: with_value([float("inf")]), "Layer.thickness[0] is inf"),
    ("deep in a list", lambda: with_value([[], [0, {2}]]), "Layer.thickness[1][1] is a set"),
    ("deep in a dict", lambda: with_value({"a": {"b": b""}}), "Layer.thickness['a']['b'] is a"),
    ("in another object", lambda: with_value(with_value({1})), "Layer.thickness is a set"),
    ("keys that are numbers", lambda: with_value({1: 2}), "has the key 1"),
    ("a key that names a class", lambda: with_value({"__class__": "x"}), "has the key '__class__'"),
    ("a local class", local_class, "another process cannot import"),
    ("a class of a script", of_the_main_program, "another process cannot import"),
    ("a class of no module", of_no_module, "cannot be loaded: ModuleNotFoundError"),
    ("a class that its module lacks", renamed, "cannot be loaded: AttributeError"),
    ("one that reads back another", Forgetful, "count was 1 and became 2"),
    ("one that cannot be read", Fragile, "cannot be read back from JSON: KeyError: 'pid'"),
    ("one that cannot be set", ReadOnly, "cannot be read back from JSON: AttributeError"),
    ("one that holds itself", in_a_circle, "it holds itself"),
    ("one that cannot be written", Shy, "cannot be written as JSON: RuntimeError: not now"),
    ("one that writes what JSON lacks", WritesBytes, "cannot be written as JSON: TypeError"),
]


@pytest.mark.parametrize("make, why", [pytest.param(m, w, id=i) for i, m, w in BAD])
def test_what_another_process_could_not_read_is_refused(
    make: Callable[[], Jsonable], why: str
) -> None:
    with pytest.raises(NotJsonable) as refused:
        check_round_trip(make(), "the job")
    assert why in refused.value.message
    assert "\n" not in refused.value.message
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("make", [Paint, paint_job, lambda: PaintHandler(1), Numbered])
def test_what_another_process_can_read_is_taken(make: Callable[[], Jsonable]) -> None:
    check_round_trip(make(), "the job")


@pytest.mark.parametrize(
    "name, why",
    [
        ("subprocess::Popen", "neither a Jsonable nor an enum"),
        ("os::system", "neither a Jsonable nor an enum"),
        ("builtins::eval", "neither a Jsonable nor an enum"),
        ("no_such_module::Job", "cannot be loaded"),
        ("Job", "cannot be loaded"),
        ("", "cannot be loaded"),
    ],
)
def test_a_document_that_names_another_class_is_refused(name: str, why: str) -> None:
    with pytest.raises(NotJsonable, match=why):
        decode({"__class__": name, "args": "true"})


def test_the_names_of_the_model_are_those_of_ai_flow() -> None:
    assert AbstractJob is BaseJob
    assert AbstractJobConfig is BaseJobConfig
    assert set(AbstractJobPlugin.__abstractmethods__) == {
        *("generate", "generate_job_resource", "submit_job", "stop_job", "cleanup_job"),
        *("job_type", "job_config_type", "platform", "engine"),
    }
    for name in dlrover_cli.contracts.__all__:
        assert hasattr(dlrover_cli.contracts, name), name


_NEEDED = inspect.Parameter.empty
SIGNATURES: list[tuple[Callable[..., Any], dict[str, object]]] = [
    (BaseJob, {"job_context": _NEEDED, "job_config": _NEEDED}),
    (
        BaseJobConfig,
        {
            "platform": None,
            "engine": None,
            "job_name": None,
            "periodic_config": None,
            "exec_mode": ExecutionMode.BATCH,
            "properties": None,
        },
    ),
    (AbstractPlatform, {}),
    (AbstractEngine, {}),
    (AbstractPlatform.platform, {}),
    (AbstractEngine.engine, {}),
    (AbstractJobPlugin, {}),
    (AbstractJobPlugin.generate, {"sub_graph": _NEEDED, "project_desc": _NEEDED}),
    *(
        (method, {"job": _NEEDED})
        for method in (
            AbstractJobPlugin.generate_job_resource,
            AbstractJobPlugin.submit_job,
            AbstractJobPlugin.stop_job,
            AbstractJobPlugin.cleanup_job,
        )
    ),
    (register_platform, {"platform": _NEEDED}),
    (register_engine, {"engine": _NEEDED}),
    (register_job_plugin, {"plugin": _NEEDED}),
]


@pytest.mark.parametrize("called, expected", SIGNATURES)
def test_what_ai_flow_calls_can_be_called_in_the_same_way(
    called: Callable[..., Any], expected: dict[str, object]
) -> None:
    parameters = dict(inspect.signature(called).parameters)
    parameters.pop("self", None)
    by_position = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    }
    assert by_position == expected
    others = [each for name, each in parameters.items() if name not in expected]
    assert all(each.default is not inspect.Parameter.empty for each in others)


def test_a_plugin_is_a_generator_and_a_submitter_and_a_job_is_a_node() -> None:
    assert issubclass(AbstractJobPlugin, AbstractJobGenerator)
    assert issubclass(AbstractJobPlugin, AbstractJobSubmitter)
    assert issubclass(BaseJob, BaseNode)
    for each in (
        AbstractPlatform,
        AbstractEngine,
        BaseJobConfig,
        BaseNode,
        AISubGraph,
        ProjectDesc,
    ):
        assert issubclass(each, Jsonable)


def test_a_platform_and_an_engine_have_to_name_themselves() -> None:
    with pytest.raises(NotImplementedError, match="platform"):
        AbstractPlatform.platform()
    with pytest.raises(NotImplementedError, match="engine"):
        AbstractEngine.engine()


def test_without_a_wait_of_its_own_a_submitted_job_has_succeeded() -> None:
    assert AbstractJobHandler().wait() == JobResult(0)
    assert JobResult(0).is_success
    assert not JobResult(3, "it failed").is_success
