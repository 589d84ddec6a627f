"""Job files: what is read from them, and one sentence with file and line for what cannot be."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.contracts.jobs import ExecutionMode
from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.job_file import JobFile, project_of, read_job_file

PAIR = """\
prepare: {platform: local, engine: cmd_line, properties: {command: [python, prepare.py, --out, data]}}
train:   {platform: local, engine: torch, after: [prepare], properties: {script: train.py, args: [--epochs, "3"], nproc_per_node: 2, max_restarts: 3}}
"""  # noqa: E501

PAIR_IN_TOML = """\
[prepare]
engine = "cmd_line"
properties.command = ["python", "prepare.py", "--out", "data"]

[train]
engine = "torch"
after = ["prepare"]

[train.properties]
script = "train.py"
args = ["--epochs", "3"]
nproc_per_node = 2
max_restarts = 3
"""


def read(directory: Path, text: str, name: str = "train.yaml") -> JobFile:
    path = directory / name
    path.write_text(text)
    return read_job_file(path)


def refused(directory: Path, content: str | bytes, name: str = "train.yaml") -> UsageError:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UsageError) as caught:
        read_job_file(path)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "name, text", [("a.yaml", PAIR), ("a.yml", PAIR), ("a.toml", PAIR_IN_TOML)]
)
def test_the_same_jobs_in_either_language(tmp_path: Path, name: str, text: str) -> None:
    prepare, train = read(tmp_path, text, name).jobs
    assert (prepare.name, prepare.platform, prepare.engine) == ("prepare", "local", "cmd_line")
    assert prepare.values["properties"] == {"command": ["python", "prepare.py", "--out", "data"]}
    assert (train.engine, train.after, train.plugin) == ("torch", ("prepare",), None)
    assert train.values["properties"] == {
        "script": "train.py",
        "args": ["--epochs", "3"],
        "nproc_per_node": 2,
        "max_restarts": 3,
    }


def test_every_key_of_a_job(tmp_path: Path) -> None:
    text = """\
    other: {engine: python}
    train:
      job_name: train
      platform: kubernetes
      engine: torch
      plugin: my.plugin::Plugin
      after: other
      periodic_config: {cron: 30 6 * * MON-FRI, start_date: 2030-01-31}
      exec_mode: stream
      properties: {}
      resources: {cpu: 0.5, memory: 8Gi, nvidia.com/gpu: 2, ephemeral-storage: 1e9, threads: 500m}
      queue: night
      priority: -3
    """
    train = read(tmp_path, text).jobs[1]
    assert train.plugin == "my.plugin::Plugin"
    assert train.after == ("other",)
    assert train.values["periodic_config"].cron == "30 6 * * MON-FRI"
    assert train.values["periodic_config"].start_date == "2030-01-31"
    assert train.values["exec_mode"] is ExecutionMode.STREAM
    assert train.values["resources"]["memory"] == "8Gi"
    assert (train.values["queue"], train.values["priority"]) == ("night", -3)
    assert train.where("resources", "memory").endswith("train.yaml:11")


def test_a_key_with_nothing_after_it_is_not_named(tmp_path: Path) -> None:
    [train] = read(tmp_path, "train: {engine: torch, after: , queue: null, properties: ~}").jobs
    assert train.values == {"engine": "torch"}


def test_a_date_is_a_text_in_both_languages(tmp_path: Path) -> None:
    toml = 'a.engine = "x"\na.periodic_config = {interval = 60, start_date = 2030-01-31T06:00:00Z}'
    [job] = read(tmp_path, toml, "a.toml").jobs
    assert job.values["periodic_config"].start_date == "2030-01-31T06:00:00+00:00"


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert [job.name for job in read(tmp_path, "\ufefftrain: {engine: torch}").jobs] == ["train"]


def test_each_job_comes_after_those_that_it_waits_for(tmp_path: Path) -> None:
    text = (
        "last: {engine: e, after: [left, right]}\nleft: {engine: e, after: [first]}\n"
        "alone: {engine: e}\nright: {engine: e, after: [first]}\nfirst: {engine: e}\n"
    )
    assert [job.name for job in read(tmp_path, text).jobs] == [
        *("first", "left", "right", "last", "alone")
    ]


@given(st.data())
def test_any_graph_without_a_circle_gets_an_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    names = [f"job{number}" for number in range(data.draw(st.integers(1, 12)))]
    waits_for = {
        name: data.draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
        for index, name in enumerate(names)
    }
    shuffled = data.draw(st.permutations(names))
    text = "".join(f"{name}: {{engine: e, after: {waits_for[name]}}}\n" for name in shuffled)
    ordered = [job.name for job in read(tmp_path_factory.mktemp("graph"), text).jobs]
    assert sorted(ordered) == sorted(names)
    for name in names:
        assert all(ordered.index(each) < ordered.index(name) for each in waits_for[name])


def test_a_chain_may_be_longer_than_calls_go_deep(tmp_path: Path) -> None:
    text = "".join(f"job{n}: {{engine: e, after: [job{n + 1}]}}\n" for n in range(3000))
    jobs = read(tmp_path, text + "job3000: {engine: e}\n").jobs
    assert [jobs[0].name, jobs[-1].name] == ["job3000", "job0"]


def test_a_project_is_the_directory_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tmp_path, PAIR)
    monkeypatch.chdir(tmp_path)
    project = project_of(read_job_file(Path("train.yaml")))
    assert (project.project_name, project.project_path) == ("train", str(tmp_path))


BAD_JOBS = [
    # what is in the file, the line, words of the sentence, words of the hint
    ("", None, "there is no job in it", "engine: torch"),
    ("# nothing\n{}\n", None, "there is no job in it", "engine: torch"),
    ("- train\n- test\n", 1, "a job file is a mapping of jobs, and this is a list", "train"),
    ("just words\n", 1, "this is the text 'just words'", "train"),
    ("\ntrain:\n", 2, "job 'train' takes a mapping, and is empty", "engine: torch"),
    ("train: torch\n", 1, "job 'train' takes a mapping, and is the text 'torch'", "below it"),
    ("engine: torch\nproperties: {}\n", 1, "job 'engine' takes a mapping", "below a name"),
    ("a: {engine: e}\n../b: {engine: e}\n", 2, "a job cannot be called '../b'", "letters"),
    ("a: {engine: e}\n.b: {engine: e}\n", 2, "a job cannot be called '.b'", "letters"),
    ("a/b: {engine: e}\n", 1, "a job cannot be called 'a/b'", "letters"),
    ("-a: {engine: e}\n", 1, "a job cannot be called '-a'", "letters"),
    ('"a\\n": {engine: e}\n', 1, r"a job cannot be called 'a\n'", "letters"),
    ("tr\u0430in: {engine: e}\n", 1, "'\u0430' is CYRILLIC SMALL LETTER A", "letters"),
    ("train:\n  \u0435ngine: torch\n", 2, "has no engine", "is CYRILLIC SMALL LETTER IE?"),
    ('"": {engine: e}\n', 1, "a job cannot be called ''", "letters"),
    (f"{'x' * 65}: {{engine: e}}\n", 1, "a job cannot be called 'xxx", "64 characters"),
    ("5: {engine: e}\n", 1, "the key '5' is not a text", "in quotes"),
    ("train:\n  platform: local\n", 1, "job 'train' has no engine", "Add engine: torch"),
    ("train:\n  engine:\n", 1, "job 'train' has no engine", "Add engine: torch"),
    ("train:\n  queue: q\n  enigne: torch\n", 3, "'train' has no engine", "it says 'enigne'"),
    ("train:\n  engine: 5\n", 2, "engine takes a name, not the number 5", "in quotes"),
    ("train:\n  engine: e\n  platform: [a]\n", 3, "platform takes a name, not a list", "quotes"),
    ("train:\n  engine: ' e'\n", 2, "engine takes a name, not ' e'", "without spaces"),
    ("train:\n  engine: e\n  job_name: test\n", 3, "job_name is 'test'", "Leave it out"),
    ("train:\n  engine: e\n  plugin: my.plugin\n", 3, "must be joined by '::'", "my::plugin"),
    ("a: {engine: e}\nb:\n  engine: e\n  after:\n  - a\n  - b\n", 6, "after itself", "out"),
    (
        "prepare: {engine: e}\nb:\n  engine: e\n  after: [prepar]\n",
        4,
        "no job 'prepar'",
        "'prepare'",
    ),
    ("train: {engine: e, after: prepare}\n", 1, "there is no job 'prepare'", "no other job"),
    ("a: {engine: e}\nb:\n  engine: e\n  after: [a, a]\n", 4, "after names 'a' twice", "one"),
    ("a:\n  engine: e\n  after: {b: 1}\n", 3, "after takes a list of jobs, not a mapping", "[prep"),
    (
        "a:\n  engine: e\n  after:\n    - 5\n",
        4,
        "after takes names of jobs, not the number",
        "quotes",
    ),
    (
        "a: {engine: e, after: b}\nb: {engine: e, after: c}\nc:\n  engine: e\n  after: [a]\n",
        5,
        "so none could start: a → b → c → a",
        "'a'",
    ),
    (
        "x: {engine: e, after: a}\na: {engine: e, after: b}\nb: {engine: e, after: a}\n",
        3,
        "so none could start: a → b → a",
        "'a'",
    ),
    ("a:\n  engine: e\n  exec_mode: BATCHED\n", 3, "takes BATCH or STREAM", "exec_mode: BATCH"),
    ("a:\n  engine: e\n  exec_mode: true\n", 3, "takes BATCH or STREAM, not true", "BATCH"),
    ("a:\n  engine: e\n  priority: high\n", 3, "priority takes a whole number", "priority: 10"),
    ("a:\n  engine: e\n  priority: true\n", 3, "a whole number, not true", "priority: 10"),
    ("a:\n  engine: e\n  priority: 9999999999\n", 3, "priority takes -1,000", "priority: 10"),
    ("a:\n  engine: e\n  queue: 7\n", 3, "queue takes a name, not the number 7", "quotes"),
    ("a:\n  engine: e\n  properties: [x]\n", 3, "properties takes a mapping", "{script: train.py}"),
    ("a:\n  engine: e\n  resources: 4\n", 3, "resources takes a mapping", "{cpu: 4"),
    ("a:\n  engine: e\n  resources:\n    cpu: -1\n", 4, "of cpu, not the number -1", "negative"),
    ("a:\n  engine: e\n  resources:\n    cpu: 4\n    memory: 8GiB\n", 5, "'8GiB'", "8Gi"),
    ("a:\n  engine: e\n  resources: {cpu: yes}\n", 3, "of cpu, not the text 'yes'", "500m"),
    ("a:\n  engine: e\n  resources: {cpu: true}\n", 3, "of cpu, not true", "500m"),
    ("a:\n  engine: e\n  resources: {cpu: -2Gi}\n", 3, "of cpu, not the text '-2Gi'", "500m"),
    ("a:\n  engine: e\n  resources: {cpu: }\n", 3, "of cpu, not nothing", "500m"),
    ("a:\n  engine: e\n  resources: {a b: 1}\n", 3, "not the name of a resource", "nvidia.com"),
    ("a:\n  engine: e\n  periodic_config: 1h\n", 3, "periodic_config takes a mapping", "interval"),
    ("a:\n  engine: e\n  periodic_config: {}\n", 3, "neither interval nor cron", "interval"),
    (
        "a:\n  engine: e\n  periodic_config:\n    interval: 1h\n    cron: 0 * * * *\n",
        3,
        "has both interval and cron",
        "Leave one",
    ),
    (
        "a:\n  engine: e\n  periodic_config:\n    every: 1h\n",
        4,
        "periodic_config has no key 'every'",
        "interval, cron, start_date",
    ),
    ("a:\n  engine: e\n  periodic_config:\n    interval: 0\n", 4, "interval takes 0.1 s", "90s"),
    ("a:\n  engine: e\n  periodic_config:\n    interval: soon\n", 4, "not 'soon'", "1h30m"),
    (
        "a:\n  engine: e\n  periodic_config:\n    cron: 61 * * * *\n",
        4,
        "bad minute",
        "minute, hour",
    ),
    (
        "a:\n  engine: e\n  periodic_config:\n    cron: 0 * * * *\n    start_date: May\n",
        5,
        "start_date takes a date",
        "2030",
    ),
    (
        "a:\n  engine: e\nb:\n  engine: e\na:\n  engine: e\n",
        5,
        "'a' stands twice, first on line 1",
        "one",
    ),
    ("a:\n  engine: e\n  engine: f\n", 3, "'engine' stands twice, first on line 2", "one"),
    ("a:\n  engine: e\n  properties: {x: .nan}\n", 3, "nan is not a number that a job", "quotes"),
    ("a:\n  engine: !!python/name:os.system\n", 2, "the tag !!python/name:os.system", "tag out"),
    ("a:\n  engine: e\n\tqueue: q\n", 3, "not valid YAML", "spaces"),
    ("a:\n  engine: e: f\n", 2, "not valid YAML", "quote"),
    ("a: {engine: e\n", 1, "not valid YAML", "quote"),
    ("a: {engine: e}\n---\nb: {engine: e}\n", 2, "a second document", "spaces"),
    ("a: {engine: *e}\n", 1, "undefined alias 'e'", "spaces"),
    ("a: &a\n  engine: e\n  properties: {x: *a}\n", 1, "an alias stands within", "Leave it"),
    ("a: {engine: e, queue: \x01}\n", 1, r"the character '\x01'", "escape"),
]


@pytest.mark.parametrize("text, line, sentence, hint", BAD_JOBS)
def test_a_bad_yaml_file_gets_one_sentence_with_its_line(
    tmp_path: Path, text: str, line: int | None, sentence: str, hint: str
) -> None:
    error = refused(tmp_path, text)
    place = f"{tmp_path}/train.yaml" + ("" if line is None else f":{line}")
    assert error.message.startswith(f"{place}: ")
    assert "\n" not in error.message
    assert sentence in error.message
    assert hint in (error.hint or "")
    assert error.exit_code == 2


@pytest.mark.parametrize(
    "text, line, sentence, hint",
    [
        ("", None, "there is no job in it", 'engine = "torch"'),
        ('engine = "torch"\n', 1, "job 'engine' takes a mapping", "below a name"),
        ('[train]\nqueue = "q"\n', 1, "job 'train' has no engine", 'Add engine = "torch"'),
        ('[train]\nengine = "e"\nafter = 5\n', 3, "a list of jobs", 'after = ["prepare"]'),
        ('[train]\nengine = "e"\nperiodic_config = 1\n', 3, "a map", '{interval = "1h30m"}'),
        ('[train]\nengine = "e"\n\npriority = 1.5\n', 4, "a whole number", "priority = 10"),
        ('[train]\nengine = "e"\nafter = [\n "b",\n]\n', 4, "there is no job 'b'", "no other"),
        ('[train]\nengine = "e"\n[train.resources]\ncpu = "x"\n', 4, "amount of cpu", "500m"),
        ('["a b"]\nengine = "e"\n', 1, "a job cannot be called 'a b'", "letters"),
        ('[train]\nengine = "e"\nengine = "f"\n', 3, "not valid TOML: Cannot overwrite", "[train]"),
        ("[train]\nengine = e\n", 2, "not valid TOML: Invalid value", "[train]"),
        ('[train]\nengine = "e', 2, "not valid TOML", "[train]"),
        ('[train]\nengine = "e"\nproperties.x = inf\n', 3, "inf is not a number", "quotes"),
        (f"[train]\nx = {'9' * 5000}", 2, "not valid TOML", "[train]"),
        ("x = " + "[" * 5000, None, "nested too deeply", "flat"),
    ],
)
def test_a_bad_toml_file_too(
    tmp_path: Path, text: str, line: int | None, sentence: str, hint: str
) -> None:
    error = refused(tmp_path, text, "train.toml")
    place = f"{tmp_path}/train.toml" + ("" if line is None else f":{line}")
    assert error.message.startswith(f"{place}: ")
    assert sentence in error.message
    assert hint in (error.hint or "")


def test_a_file_that_is_not_utf_8_has_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, b"a:\n  engine: e\n  queue: caf\xe9\n")
    assert error.message == f"{tmp_path}/train.yaml:3: byte 27 is not UTF-8"


@pytest.mark.parametrize("name", ["train", "train.json", "train.py", ".yaml"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    error = refused(tmp_path, PAIR, name)
    assert "ends in .yaml, .yml or .toml" in error.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.yaml cannot be read: No such file"):
        read_job_file(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("trian.yaml", "train.yaml"),
        ("train.yml", "train.yaml"),
        ("train", "train.yaml"),
        ("eval.yaml", "eval.toml"),
        ("nothing-like-it.yaml", None),
        ("no-such-directory/train.yaml", None),
    ],
)
def test_a_file_that_is_called_nearly_so_is_suggested(
    tmp_path: Path, typed: str, meant: str | None
) -> None:
    for name in ("train.yaml", "eval.toml", "nothing-like-it.txt", "train.py"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="cannot be read: No such file") as refused:
        read_job_file(tmp_path / typed)
    assert refused.value.hint == (
        f"Did you mean {tmp_path / meant}?" if meant else "Name a job file that is there."
    )


def test_a_directory_is_no_job_file(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").mkdir()
    with pytest.raises(UsageError, match=r"jobs\.yaml is a directory"):
        read_job_file(tmp_path / "jobs.yaml")


def test_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="is not a regular file"):
        read_job_file(tmp_path / "zero.yaml")


def test_a_file_larger_than_any_job_file_is_not_read(tmp_path: Path) -> None:
    assert "larger than 1 MiB" in refused(tmp_path, "a" * (1 << 20) + "bc").message


@given(st.text(max_size=80))
def test_any_text_is_a_job_file_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    directory = tmp_path_factory.mktemp("any")
    for name in ("a.yaml", "a.toml"):
        path = directory / name
        path.write_text(text)
        problem = complaint(path)
        assert problem is None or problem.startswith(str(path))


def complaint(path: Path) -> str | None:
    try:
        assert read_job_file(path).jobs
    except UsageError as error:
        return error.message
    return None
