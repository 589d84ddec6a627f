"""Recorded failures asked about again, offline: who would decide what, and how long it takes."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.errors import UsageError
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.chain import Chain

# A run's directory, one node's in it, and the folder itself.
_PLACES = ("nodes/*/failures/*.json", "failures/*.json", "*.json")
_DOCUMENTS_OF_A_RUN = frozenset({"job.json", "handler.json", "result.json"})


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """One failure and the file that it was read from."""

    path: Path
    info: AgentFailureInfo


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was decided about one of them."""

    failure: RecordedFailure
    verdict: Verdict
    seconds: float


def read_failures(paths: Iterable[Path]) -> list[RecordedFailure]:
    """The failures in these files, and in these run directories in the order of their attempts.

    Raises UsageError for the first that cannot be read.
    """
    found: list[RecordedFailure] = []
    for path in paths:
        found += _of_directory(path) if path.is_dir() else [_of_file(path)]
    return found


def replay(failures: Sequence[RecordedFailure], chain: Chain) -> Iterator[Replayed]:
    """Ask about each failure in turn, with those before it as its history."""
    earlier: list[AgentFailureInfo] = []
    for failure in failures:
        started = time.monotonic()
        verdict = chain.ask(failure.info, History(tuple(earlier)))
        yield Replayed(failure, verdict, time.monotonic() - started)
        earlier.append(failure.info)


def _of_file(path: Path) -> RecordedFailure:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}",
            hint="name a file with a failure, or the directory of a run",
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not a JSON document: {error}",
            hint='the shortest failure is {"kind": "exit", "workers": []}',
        ) from error
    try:
        return RecordedFailure(path, AgentFailureInfo.from_json(document))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error


def _of_directory(directory: Path) -> list[RecordedFailure]:
    for place in _PLACES:
        files = [path for path in directory.glob(place) if path.name not in _DOCUMENTS_OF_A_RUN]
        if files:
            # The attempt is the same number on every node, unlike the time.
            return sorted(map(_of_file, files), key=_order)
    raise UsageError(
        f"{directory} holds no failures; looked for {', '.join(_PLACES)}",
        hint="name the directory of a run that failed, or files",
    )


def _order(failure: RecordedFailure) -> tuple[int, str, int, str]:
    path = failure.path
    number = int(path.stem) if path.stem.isdecimal() else 0
    return failure.info.attempt, str(path.parent), number, path.name
