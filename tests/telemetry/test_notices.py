"""What a receiver gets of an event, and who sends it."""

import base64
import hashlib
import hmac
import json
import re
from pathlib import Path

import pytest

from dlrover_cli.telemetry.notices import (
    DEFAULT_KINDS,
    KINDS,
    headers_of,
    is_wanted,
    notice_of,
    secret_from,
)
from tests.telemetry.recorded import RUN_ID, Journal

PACKAGE = Path(__file__).parents[2] / "dlrover_cli"


def test_every_kind_that_can_be_asked_for_is_recorded_somewhere() -> None:
    source = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    recorded = set(re.findall(r'record\(\s*"(\w+)"|^\s+"(\w+)",$', source, re.MULTILINE))
    assert {name for pair in recorded for name in pair} >= KINDS


def test_a_notice_holds_the_event_and_a_line_for_a_person() -> None:
    [_, failure, decision, *_] = Journal().failed(6)
    notice = notice_of(failure, "vm.17", "vm")
    assert notice["id"] == f"{RUN_ID}/vm.17/{failure['seq']}"
    what = "rank 1 exited with code 1 (ValueError: no labels)"
    assert notice["text"] == f"{RUN_ID} on vm: {what}"
    assert notice["data"]["failure_kind"] == "exception"
    assert notice_of(failure, "vm.17", "vm") == notice
    assert "decided: restart workers" in notice_of(decision, "vm.17", "vm")["text"]


def test_a_failure_of_several_ranks_is_told_with_their_number() -> None:
    failure = Journal().event(0, "failure", root_rank=1, how="exited with code 7", ranks=[1, 2, 5])
    text = notice_of(failure, "vm.17", "vm")["text"]
    assert text.endswith(": rank 1 exited with code 7; 3 ranks failed in all")


def test_the_command_line_is_not_sent_nor_what_is_huge() -> None:
    started = Journal().event(0, "run_started", argv=["--key", "secret"], pid=1, host="vm")
    assert "secret" not in json.dumps(notice_of(started, "a", "vm"))
    warned = Journal().event(0, "no_progress_warning", minutes=5, stacks={"0": "x" * 100_000})
    notice = notice_of(warned, "a", "vm")
    assert len(json.dumps(notice)) < 1000
    assert notice["data"]["minutes"] == 5


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_there_are_words_for_every_kind(kind: str) -> None:
    text = notice_of(Journal().event(0, kind, reason="so it is"), "a", "vm")["text"]
    assert text.startswith(f"{RUN_ID} on vm: ")
    assert "so it is" in text or kind in ("run_started", "failure", "no_progress_warning")


def test_of_several_agents_one_tells_of_the_run_and_of_each_decision() -> None:
    journal = Journal()
    started = journal.event(0, "run_started")
    assert is_wanted(started, DEFAULT_KINDS, tells_of_run=True)
    assert not is_wanted(started, DEFAULT_KINDS, tells_of_run=False)
    for is_first in (True, False):
        decision = journal.event(1, "decision", node_rank=0, is_first=is_first)
        assert is_wanted(decision, DEFAULT_KINDS, tells_of_run=False) is is_first
    assert not is_wanted(journal.event(2, "worker_exited"), DEFAULT_KINDS, tells_of_run=True)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    key = b"0123456789abcdef"
    secret = secret_from(f"whsec_{base64.b64encode(key).decode()}")
    headers = headers_of({"id": "run/a/1"}, b'{"a": 1}', 1700000000.9, secret)
    digest = hmac.new(key, b'run/a/1.1700000000.{"a": 1}', hashlib.sha256).digest()
    assert headers == {
        "webhook-id": "run/a/1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def test_a_plain_secret_is_taken_as_it_is_and_without_one_nothing_is_signed() -> None:
    assert secret_from("s3cret") == b"s3cret"
    assert "webhook-signature" not in headers_of({"id": "a"}, b"", 0, None)
    with pytest.raises(ValueError, match="not base64"):
        secret_from("whsec_???")
