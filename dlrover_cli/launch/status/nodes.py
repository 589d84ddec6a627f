"""The samples of a job whose agents run elsewhere: read from the run directory, now and then."""

import time
from collections.abc import Sequence
from pathlib import Path

from dlrover_cli.launch.session import Session
from dlrover_cli.launch.status.showing import SampleSource
from dlrover_cli.telemetry.live import NodeSample
from dlrover_cli.telemetry.live_files import latest_samples

_SECONDS = 2.0  # the directory may be on a network file system


def samples_of_run(session: Session) -> SampleSource:
    """Where the latest samples of the run's nodes are to be had."""
    return _RunSamples(session.run_directory.path)


class _RunSamples:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._again_at = 0.0
        self._samples: tuple[NodeSample, ...] = ()

    def __call__(self) -> Sequence[NodeSample]:
        if time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + _SECONDS
            self._samples = tuple(latest_samples(self._directory).values())
        return self._samples
