"""examples/extender: a service that answers every verb, to us and to Volcano alike."""

import http.client
import json
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.scheduling.model import QueueView
from dlrover_cli.scheduling.plugin import HookFailed, Victims, Vote
from dlrover_cli.scheduling.reading import parse_extender_file
from dlrover_cli.scheduling.remote import RemoteExtender
from tests.harness.launcher import Running
from tests.scheduling.samples import JOB, NODES, PLACED, QUEUE, RUNNING, SESSION, TASK

EXAMPLE = Path(__file__).parents[2] / "examples" / "extender"


@dataclass(frozen=True, slots=True)
class Service:
    folder: Path
    port: int

    @property
    def file(self) -> str:
        return (EXAMPLE / "extender.yaml").read_text().replace("8080", str(self.port))

    def cordon(self, node: str) -> None:
        (self.folder / "cordoned.txt").write_text(f"{node} it smells of smoke\n")

    def post(self, verb: str, body: Any) -> tuple[int, str]:
        """As somebody else would ask."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("POST", f"/{verb}", json.dumps(body))
        response = connection.getresponse()
        answer = response.status, response.read().decode()
        connection.close()
        return answer


@pytest.fixture
def service(start: Callable[..., Running], tmp_path: Path) -> Iterator[Service]:
    folder = tmp_path / "extender"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    # It ends by itself, should nobody end it.
    program = ["60", sys.executable, folder / "service.py", "0"]
    running = start(program, command=["timeout"], cwd=folder)
    running.wait_for("deciding on port")
    [port] = re.findall(r"deciding on port (\d+)", running.stdout)
    yield Service(folder, int(port))
    running.signal(signal.SIGTERM)
    assert "Traceback" not in running.finish().stderr


@pytest.fixture
def extender(service: Service) -> Iterator[RemoteExtender]:
    [settings] = parse_extender_file(service.file, Path("extender.yaml")).extenders
    with RemoteExtender(settings) as remote:
        yield remote


def test_every_verb_is_answered_as_the_policy_says(
    service: Service, extender: RemoteExtender
) -> None:
    assert set(extender.settings.verbs) == set(Verb)
    extender.session_open(SESSION)
    assert extender.job_enqueueable(JOB) is Vote.ABSTAIN
    greedy = replace(TASK, resources={"nvidia.com/gpu": 9.0})
    assert extender.job_enqueueable(replace(JOB, tasks=(greedy,))) is Vote.REJECT
    extender.job_enqueued(JOB)
    assert not extender.queue_overused(QUEUE)
    assert extender.queue_overused(QueueView("q", 1, {"cpu": 0.5}, True, {"cpu": 0.6}))
    assert extender.predicate(TASK, NODES[0]) is None
    assert extender.prioritize(TASK, NODES) == {"node-1": 5.0, "node-2": 0.0}
    everybody = Victims(frozenset(task.uid for task in RUNNING))
    assert extender.preemptable(TASK, RUNNING) == everybody
    assert extender.reclaimable(replace(TASK, priority=0), RUNNING) == Victims()
    assert extender.allocated(PLACED) is None
    assert extender.job_ready(replace(JOB, tasks=(PLACED,)))
    assert not extender.job_ready(JOB)
    extender.deallocated(PLACED)
    extender.session_close(SESSION)

    service.cordon("node-1")
    refusal = extender.predicate(TASK, NODES[0])
    assert refusal is not None
    assert refusal.reason == "node-1 is cordoned: it smells of smoke"
    assert refusal.is_final
    assert extender.predicate(TASK, NODES[1]) is None
    refusal = extender.allocated(PLACED)
    assert refusal is not None
    assert "smells of smoke" in refusal.reason


def test_volcano_s_own_bodies_are_understood(service: Service) -> None:
    go = {"MilliCPU": 8000, "Memory": 1, "ScalarResources": {"nvidia.com/gpu": 4000}}
    node = {"Name": "gpu-07", "Idle": go, "Allocatable": go}
    task = {"UID": "u", "Name": "t", "Namespace": "n", "Resreq": go, "Priority": 3}
    status, text = service.post("predicate", {"task": task, "node": node})
    # Volcano reads the message from `status`.
    assert (status, json.loads(text)["code"]) == (200, 3)
    assert json.loads(text)["status"] == "gpu-07 is cordoned: GPU 3 has uncorrectable errors"
    _, text = service.post("prioritize", {"task": task, "nodes": [node]})
    assert json.loads(text)["nodeScore"] == {"gpu-07": 4.0}
    evictees = [{"UID": "v", "Name": "v", "Namespace": "n", "Priority": 1}]
    _, text = service.post("preemptable", {"evictor": task, "evictees": evictees})
    assert json.loads(text) == {
        "status": 1,
        "victims": [{"UID": "v", "namespace": "n", "name": "v"}],
    }


def test_what_it_does_not_understand_is_refused_with_a_sentence(
    service: Service, extender: RemoteExtender
) -> None:
    assert service.post("nonsense", {}) == (404, "there is no verb 'nonsense'")
    status, text = service.post("predicate", {"task": 3})
    assert status == 400
    assert text.startswith("predicate: ")
    wrong = replace(extender.settings, verbs={Verb.PREDICATE: "nonsense"})
    with RemoteExtender(wrong) as other, pytest.raises(HookFailed, match="there is no verb"):
        other.predicate(TASK, NODES[0])


def test_an_event_that_comes_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dlrover_cli.contracts.extender import EventRequest

    monkeypatch.syspath_prepend(str(EXAMPLE))
    from policy import Policy  # type: ignore[import-not-found]

    policy = Policy(tmp_path / "none")
    event = EventRequest.model_validate({"task": {"NodeName": "n"}, "eventId": "1"})
    for _ in range(3):
        policy.allocate(event)
    assert policy.holding == {"n": 1}
    policy.deallocate(EventRequest.model_validate({"task": {"NodeName": "n"}, "eventId": "2"}))
    assert policy.holding == {"n": 0}


def test_the_check_is_content_with_it(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text(service.file)
    assert main(["extender", "check", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["ok", verb.value]
        for verb in (
            Verb.SESSION_OPEN,
            Verb.JOB_ENQUEUEABLE,
            Verb.JOB_ENQUEUED,
            Verb.QUEUE_OVERUSED,
            Verb.PREDICATE,
            Verb.PRIORITIZE,
            Verb.PREEMPTABLE,
            Verb.RECLAIMABLE,
            Verb.ALLOCATE,
            Verb.JOB_READY,
            Verb.DEALLOCATE,
            Verb.SESSION_CLOSE,
        )
    ]
