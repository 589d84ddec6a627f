"""What a service was really asked, held against the models and the golden files."""

import json
from pathlib import Path

from dlrover_cli.contracts.extender import EXCHANGES, Verb
from tests.scheduling.recording_service import RecordingService

GOLDEN = Path(__file__).parent / "golden"


def assert_bodies_are_golden(service: RecordingService) -> None:
    """Each has the parts of its golden file, and is just what its model writes."""
    assert service.questions
    for verb, body in service.questions:
        golden = json.loads((GOLDEN / f"{verb}.json").read_text())
        assert body.keys() == golden.keys(), verb
        for part in body.keys() & {"task", "node", "job", "queue"}:
            assert body[part].keys() == golden[part].keys(), f"{part} of {verb}"
        request = EXCHANGES[Verb(verb)].request.model_validate(body)
        assert json.loads(request.model_dump_json(by_alias=True)) == body, verb
