"""`dlrover-job extender`: how a service's answers are understood, and what it is sent."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.errors import UsageError
from tests.cli.conftest import JOB_PROGRAM
from tests.cli.program import run_python
from tests.cli.test_help import loaded
from tests.services.servers import answer, serving

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "extender-schema.json"


def write(folder: Path, url: str, *lines: str) -> str:
    path = folder / "extender.yaml"
    path.write_text("\n".join([f"extender.urlPrefix: {url}", *lines]))
    return str(path)


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["extender", "check", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    "verb, said, understood",
    [
        ("onSessionOpen", {}, "was told"),
        ("jobEnqueueable", {"status": 1}, "permits the job"),
        ("jobEnqueueable", {"status": -1}, "rejects the job"),
        ("queueOverused", {"overused": True}, "the queue is overused, nothing of it starts"),
        ("predicate", {"code": 0}, "dlrover-check-node-1 may be used"),
        (
            "predicate",
            {"code": 2},
            "is refused: it answers code 2, unschedulable; victims may help",
        ),
        ("predicate", {"status": "hot"}, "is refused: hot; no victim could change that"),
        ("prioritize", {"nodeScore": {"dlrover-check-node-2": 7.5}}, "dlrover-check-node-2 7.5"),
        ("prioritize", {"errorMessage": "tired"}, "objects to prioritize: tired"),
        ("preemptable", {"status": 0}, "abstains"),
        ("reclaimable", {"status": 1}, "vetoes"),
        ("jobReady", {}, "the job is not ready"),
        ("allocateFunc", {"errorMessage": "no licence"}, "refuses: no licence"),
        ("deallocateFunc", {"errorMessage": "what?"}, "was told; http://127.0.0.1"),
    ],
)
def test_an_answer_is_shown_as_it_is_understood(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    verb: str,
    said: dict[str, Any],
    understood: str,
) -> None:
    with serving(answer(said)) as server:
        code, out = checked(capsys, write(tmp_path, server.url, f"{Verb(verb).setting}: {verb}"))
    assert code == 0
    [_, line] = out.splitlines()
    assert line.startswith(f"ok      {verb}  ")
    assert understood in line


def test_a_resource_that_the_extender_manages_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = ["extender.managedResources: nvidia.com/gpu", "extender.predicateVerb: p"]
    with serving(answer({})) as server:
        code, out = checked(capsys, write(tmp_path, server.url, *lines))
        [request] = server.requests
    assert code == 0
    assert "for tasks with nvidia.com/gpu" in out
    assert request.json["task"]["resources"]["nvidia.com/gpu"] == 1


def test_an_error_fails_the_check_though_a_session_would_ignore_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    verbs = ["extender.predicateVerb: p", "extender.prioritizeVerb: q", "extender.ignorable: true"]
    with serving(answer("gone", "404 Not Found")) as server:
        code, out = checked(capsys, write(tmp_path, server.url, *verbs))
    assert code == 1
    head, first, second, note = out.splitlines()
    assert "errors are ignored" in head
    assert first.startswith("failed  predicate ")
    assert f"{server.url}/p answered 404 Not Found: gone" in first
    assert second.startswith("failed  prioritize")  # the first failure did not keep it from that
    assert note == "note    errors are ignored in a session, as if the verb were not configured"


def test_silence_about_one_verb_does_not_keep_others_from_being_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def behave(connection: Any, request: Any, server: Any) -> None:
        if request.path == "/slow":
            server.stopping.wait()
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    lines = [
        "extender.predicateVerb: slow",
        "extender.jobReadyVerb: r",
        "extender.httpTimeout: 500ms",
    ]
    with serving(behave) as server:
        code, out = checked(capsys, write(tmp_path, server.url, *lines))
    assert code == 1
    assert "did not answer within 0.5 s" in out
    assert "ok      jobReady" in out


def test_an_extender_without_verbs_is_not_well(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out = checked(capsys, write(tmp_path, "http://127.0.0.1:1"))
    assert code == 1
    assert "no verb is configured" in out


def test_other_plugins_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("tiers: [{plugins: [{name: gang}, {name: drf}]}]")
    assert main(["extender", "check", str(path)]) == 0
    assert capsys.readouterr().err == "skipped: gang, drf\nthe file names no extender\n"


def test_one_document_has_it_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = ["extender.predicateVerb: p", "extender.jobReadyVerb: r", "queues: {a: {capacity: 4}}"]
    with serving(answer({"status": False})) as server:
        file = write(tmp_path, server.url, *lines)
        code, out = checked(capsys, file, "-o", "json")
    document = json.loads(out)
    assert code == 1
    assert document["schema_version"] == 1
    assert document["actions"] == ["allocate", "backfill"]
    assert document["queues"]["a"] == {
        "capacity": {"agents": 4.0},
        "weight": 1,
        "reclaimable": True,
    }
    [extender] = document["extenders"]
    assert (extender["url"], extender["timeout"], extender["ignorable"]) == (server.url, 1.0, False)
    predicate, ready = extender["verbs"]
    assert (predicate["verb"], predicate["path"], predicate["understood"]) == (
        "predicate",
        "p",
        None,
    )
    assert "'status' that cannot be used" in predicate["error"]
    assert (ready["understood"], ready["error"]) == ("the job is not ready", None)
    assert 0 < ready["seconds"] < 2


def test_a_file_that_cannot_be_used_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"extender\.yaml:2: 'extender\.predicatVerb'") as caught:
        main(["extender", "check", write(tmp_path, "http://x", "extender.predicatVerb: p")])
    assert caught.value.exit_code == 2


def test_the_schema_in_the_documentation_is_the_one_of_the_models(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["extender", "schema"]) == 0
    assert capsys.readouterr().out == SCHEMAS.read_text()
    assert set(json.loads(SCHEMAS.read_text())) == set(Verb)


def test_the_schema_of_one_verb_can_be_had(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extender", "schema", "predicate"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"task", "node"} == set(schema["request"]["properties"])
    assert {"code", "errorMessage", "status"} == set(schema["answer"]["properties"])
    with pytest.raises(UsageError, match="there is no verb 'x'"):
        main(["extender", "schema", "x"])


def test_the_help_page_does_not_load_what_only_the_check_needs() -> None:
    found = run_python("-X", "importtime", JOB_PROGRAM, "extender", "check", "--help")
    assert found.returncode == 0
    assert loaded(found.stderr) & {"torch", "pydantic", "yaml", "ssl"} == set()
