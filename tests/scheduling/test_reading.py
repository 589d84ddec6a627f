"""Extender files: Volcano's own load as printed, and what is wrong is named with its line."""

from pathlib import Path

import pytest

from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.errors import UsageError
from dlrover_cli.scheduling.options import from_options
from dlrover_cli.scheduling.reading import parse_extender_file, read_extender_file
from dlrover_cli.scheduling.settings import Action, QueueSettings, SchedulingConfig

VOLCANO = Path(__file__).parent / "volcano"
EVERY_DOCUMENTED_VERB = set(Verb) - {Verb.JOB_ENQUEUED}
URL = "extender.urlPrefix: http://127.0.0.1:1\n"


def parsed(text: str) -> SchedulingConfig:
    return parse_extender_file(text, Path("conf/extender.yaml"))


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parsed(text)
    return caught.value


def test_volcano_s_whole_configuration_loads_as_printed() -> None:
    config = read_extender_file(VOLCANO / "full.yaml")
    [extender] = config.extenders
    assert config.actions == (Action.RECLAIM, Action.ALLOCATE, Action.BACKFILL, Action.PREEMPT)
    assert str(extender.address) == "http://127.0.0.1:8080"
    assert extender.http_timeout == 0.1
    assert extender.ignorable
    assert extender.managed_resources == {"nvidia.com/gpu", "nvidia.com/gpumem"}
    assert extender.verbs == {verb: verb.value for verb in EVERY_DOCUMENTED_VERB}


def test_volcano_s_first_example_loads_as_printed() -> None:
    config = read_extender_file(VOLCANO / "gpu_extender.yaml")
    [extender] = config.extenders
    assert str(extender.address) == "http://gpu-scheduler:8080"
    assert extender.http_timeout == 1.0
    assert extender.verbs == {Verb.PREDICATE: "predicate", Verb.PRIORITIZE: "prioritize"}
    assert extender.managed_resources == {"nvidia.com/gpu", "nvidia.com/gpumem"}
    assert not extender.ignorable


def test_volcano_s_second_example_loads_as_printed() -> None:
    [extender] = read_extender_file(VOLCANO / "custom_node_filtering.yaml").extenders
    assert extender.http_timeout == 0.5
    assert extender.verbs == {Verb.PREDICATE: "customFilter"}
    assert extender.ignorable
    assert extender.managed_resources == frozenset()


def test_volcano_s_third_example_loads_as_printed() -> None:
    config = read_extender_file(VOLCANO / "full_lifecycle_hooks.yaml")
    [extender] = config.extenders
    assert extender.http_timeout == 2.0
    assert len(extender.verbs) == 8
    assert config.actions == (Action.RECLAIM, Action.ALLOCATE, Action.BACKFILL, Action.PREEMPT)


def test_arguments_alone_are_an_extender() -> None:
    config = parsed(URL + "extender.predicateVerb: p\n")
    assert [each.verbs for each in config.extenders] == [{Verb.PREDICATE: "p"}]
    assert config.extenders[0].http_timeout == 1.0
    assert config.actions == (Action.ALLOCATE, Action.BACKFILL)


def test_several_extenders_keep_their_order_and_others_are_named() -> None:
    config = parsed(
        'actions: "enqueue, allocate"\n'
        "tiers:\n"
        "- plugins:\n"
        "  - name: gang\n"
        "    enablePreemptable: false\n"
        "  - name: extender\n"
        "    arguments: {extender.urlPrefix: 'http://b:1'}\n"
        "- plugins:\n"
        "  - name: extender\n"
        "    enablePredicate: true\n"
        "    arguments: {extender.urlPrefix: 'http://a:1'}\n"
        "  - name: drf\n"
        "configurations:\n"
        "- name: enqueue\n"
    )
    assert [each.address.host for each in config.extenders] == ["b", "a"]
    assert config.skipped == ("gang", "drf", "configurations")
    assert config.actions == (Action.ALLOCATE,)


@pytest.mark.parametrize("written", ["[a/b, c]", "a/b,c", '" a/b , c ,"', "\n- a/b\n- c"])
def test_managed_resources_are_a_list_or_separated_by_commas(written: str) -> None:
    [extender] = parsed(f"{URL}extender.managedResources: {written}\n").extenders
    assert extender.managed_resources == {"a/b", "c"}


def test_a_task_is_managed_when_it_names_a_resource_even_none_of_it() -> None:
    [extender] = parsed(f"{URL}extender.managedResources: gpu\n").extenders
    assert extender.manages({"gpu": 0.0})
    assert not extender.manages({"cpu": 4.0})
    assert parsed(URL).extenders[0].manages({})


def test_queues_have_capacity_weight_aging_and_whether_they_give_back() -> None:
    config = parsed(
        "queues:\n"
        "  research: {capacity: 4, weight: 2, reclaimable: false}\n"
        "  batch: {capacity: {nvidia.com/gpu: 16, memory: 1Gi}}\n"
        "  rest: {aging: 1m30s}\n"
        "  strict: {aging: never}\n"
    )
    assert config.extenders == ()
    assert config.queues == {
        "research": QueueSettings({"agents": 4.0}, 2, False),
        "batch": QueueSettings({"nvidia.com/gpu": 16.0, "memory": 2.0**30}),
        "rest": QueueSettings(aging=90.0),
        "strict": QueueSettings(aging=None),
    }


@pytest.mark.parametrize("text", ["tiers:", "tiers: [{plugins: }]", "queues:", "actions:"])
def test_a_name_without_a_value_says_nothing(text: str) -> None:
    assert parsed(text) == SchedulingConfig()


def test_an_empty_verb_is_a_hook_that_is_off() -> None:
    assert parsed(URL + 'extender.predicateVerb: ""\n').extenders[0].verbs == {}


def test_files_are_meant_from_beside_the_extender_file() -> None:
    [extender] = parsed(URL + "extender.tokenFile: t\nextender.caFile: /etc/ca\n").extenders
    assert extender.token_file == Path("conf/t")
    assert extender.ca_file == Path("/etc/ca")


@pytest.mark.parametrize(
    "text, line, words, hint",
    [
        (
            URL + "extender.predicatVerb: x",
            2,
            "predicatVerb",
            "Did you mean extender.predicateVerb",
        ),
        (URL + "extender.predicateverb: x", 2, "predicateverb", "extender.predicateVerb?"),
        (URL + "extender.httpTimeout: 5", 2, "no unit: 5", "100ms"),
        ("extender.urlPrefix: http://me:pw@host", 1, "a user name or a password", "tokenFile"),
        (URL + "extender.httpTimeout: 1 s", 2, "unit ' s'", "1m30s"),
        (URL + "extender.httpTimeout: 0s", 2, "1ms to 10m", "100ms"),
        (URL + "extender.httpTimeout: -1s", 2, "1ms to 10m", "100ms"),
        (URL + "extender.ignorable: maybe", 2, "true or false", "ignorable: true"),
        (URL + "extender.managedResources: [1]", 2, "list of names", "nvidia.com/gpu"),
        (URL + "extender.predicateVerb: /x", 2, "path below the URL", "without a slash"),
        (URL + "extender.predicateVerb: 7", 2, "is a text, not 7", "predicate"),
        ("extender.predicateVerb: x", None, "extender.urlPrefix is missing", "http://127"),
        ("extender.urlPrefix: gpu:8080", 1, "neither http", "http://127"),
        ("extender.urlPrefix: http://a\nextender.tokenFile: t", 2, "unencrypted", "https://"),
        (URL + "tiers: []", 2, "described here and under 'tiers'", "Keep one"),
        ("tiers:\n- plugin: []\nteirs: 1", 3, "'teirs' has no meaning", "tiers"),
        ("- name: extender\n  argument: {}", 2, "'argument' has no meaning", "arguments"),
        ("- name: extender\n  enablePredicate: false", 2, "cannot turn a hook off", "verb"),
        ("- arguments: {}", 1, "no name", "- name: extender"),
        ("- name: extender\n  arguments:\n    extender.urlPrefix: x", 3, "neither http", ""),
        ("- 3", 1, "a plugin holds names and values", ""),
        ("tiers: 3", 1, "tiers is a list", "dash"),
        ("actions: alocate", 1, "no action 'alocate'", "allocate?"),
        ("actions: allocate, allocate", 1, "stands twice", ""),
        ("actions: {}", 1, "actions are names", ""),
        ("actions: ''", 1, "no job ever starts", "allocate"),
        ("actions: enqueue, preempt, reclaim", 1, "no job ever starts", "allocate"),
        ("tiers: {}", 1, "tiers is a list", "dash"),
        ("tiers: [{plugins: ''}]", 1, "plugins is a list", "dash"),
        ("queues: []", 1, "holds names and values", ""),
        ("queues: {a: []}", 1, "the queue 'a' holds names and values", ""),
        ("- {name: extender, arguments: ''}", 1, "arguments holds names and values", ""),
        ("queues: {a: {capacity: -1}}", 1, "no amount", "capacity: 4"),
        ("queues: {a: {weight: 0}}", 1, "from 1 on", "weight: 2"),
        ("queues: {a: {weight: true}}", 1, "from 1 on", "weight: 2"),
        ("queues: {a: {reclaimable: no}}", 1, "true or false", ""),
        ("queues: {a: {aging: 10}}", 1, "aging is a time", "aging: 10m"),
        ("queues: {a: {aging: 10 min}}", 1, "aging:", "aging: never"),
        ("queues: {a: {aging: 0s}}", 1, "longer than nothing", "aging: 10m"),
        ("queues: {a: {wieght: 1}}", 1, "'wieght'", "weight?"),
        ("queues: 3", 1, "holds names and values", ""),
        ("", None, "it is empty", "urlPrefix"),
        ("3", None, "it is 3", "urlPrefix"),
        ("a: [", 1, "not valid YAML", ""),
        (URL + URL, 2, "stands twice", "Keep one"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    text: str, line: int | None, words: str, hint: str
) -> None:
    error = refusal(text)
    place = "conf/extender.yaml" if line is None else f"conf/extender.yaml:{line}"
    assert error.message.startswith(f"{place}: ")
    assert words in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize("content, words", [(None, "cannot be read"), (b"\xff", "not UTF-8")])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "extender.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_extender_file(path)


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_extender_file(Path("/dev/zero"))


def test_options_alone_ask_for_everything() -> None:
    extender = from_options("http://127.0.0.1:1", timeout="2s", managed_resources="a,b")
    assert set(extender.verbs) == set(Verb)
    assert (extender.http_timeout, extender.managed_resources) == (2.0, {"a", "b"})


def test_options_choose_verbs_and_their_paths() -> None:
    extender = from_options("http://h", verbs="predicate, prioritize=score")
    assert extender.verbs == {Verb.PREDICATE: "predicate", Verb.PRIORITIZE: "score"}


@pytest.mark.parametrize(
    "options, words",
    [
        ({"url": "x"}, "--extender_url: the URL begins"),
        ({"url": ""}, "--extender_url is missing"),
        ({"url": "http://x", "timeout": "5"}, "--extender_timeout: '5' has no unit"),
        ({"url": "http://x", "verbs": "predcate"}, "--extender_verbs: there is no verb"),
        ({"url": "http://x", "verbs": "predicate=/a"}, "--extender_verbs takes a path"),
    ],
)
def test_what_is_wrong_with_an_option_names_the_option(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_options(**options)
    assert caught.value.message.startswith(words)
    assert "extender." not in f"{caught.value.message} {caught.value.hint}"
