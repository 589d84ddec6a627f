"""Submits a job and outlives its launcher: if that is killed, the job is cancelled.

A shell in a session of its own holds a pipe. What the launcher says last decides: nothing at all
means that it was killed. The guard submits by itself, so there is no moment in which a job is there
and nobody watches over it.
"""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dlrover_cli.platforms.slurm.commands import SlurmError

_SECONDS = 60.0
_GUARD = """\
trap '' INT TERM HUP QUIT
id=$(timeout 60 sbatch --parsable "$1") || exit 1
id=${id%%;*}
echo "$id"
exec >/dev/null 2>&1
read -r word && [ "$word" = done ] && exit 0
for pause in 1 1 2 5 10 30 60 120; do
  scancel "$id" && exit 0
  sleep $pause
done
"""


class Guard:
    """One per followed job."""

    def __init__(self, process: "subprocess.Popen[str]", job_id: str) -> None:
        self._process = process
        self.job_id = job_id

    @classmethod
    def submit(cls, script: Path, environ: Mapping[str, str]) -> "Guard":
        """Hand the script to sbatch. Raises SlurmError with what sbatch says."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "dlrover-guard", str(script)],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        job_id = process.stdout.readline().strip()
        if job_id.isdecimal():
            return cls(process, job_id)
        words = " ".join(process.stderr.read().replace("sbatch: error: ", "").split())
        process.wait(_SECONDS)
        raise SlurmError(
            f"Slurm did not take the job: {words or 'sbatch said nothing'}",
            hint="--dry-run shows the script; what --slurm-arg says is in it as it is",
        )

    def release(self) -> None:
        """The job is over, or cancelled: nothing has to be done when this process ends."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write("done\n")
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
