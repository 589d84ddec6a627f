"""Reading the latest sample of every agent of a run, as far as one can be understood."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState
from dlrover_cli.telemetry.sample_files import LIVE_FILE


def latest_samples(run_directory: Path) -> dict[str, NodeSample]:
    """The latest sample of every agent of the run that has left one, by the agent's name."""
    found = {}
    for path in sorted(run_directory.glob(f"nodes/*/{LIVE_FILE}")):
        sample = read_sample(path)
        if sample is not None:
            found[path.parent.name] = sample
    return found


def read_sample(path: Path) -> NodeSample | None:
    """The sample in a file; None if there is none, or none that we understand."""
    try:
        document = json.loads(path.read_bytes())
        ranks = tuple(_rank(rank) for rank in document.pop("ranks"))
        return NodeSample(**_known(document, NodeSample), ranks=ranks)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _rank(document: dict[str, Any]) -> RankSample:
    known = _known(document, RankSample)
    known["state"], known["phase"] = RankState(known["state"]), WorkerPhase(known["phase"])
    return RankSample(**known)


def _known(document: dict[str, Any], kind: type[NodeSample | RankSample]) -> dict[str, Any]:
    """Without what a later version may have added."""
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in document.items() if key in names}
