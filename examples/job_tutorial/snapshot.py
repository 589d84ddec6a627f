"""Jobs that run in a copy of their folder, so that it can be edited while they run.

A platform, an engine, a configuration, a job, a handler, and the plugin that brings them together.
"""

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

from dlrover_cli.contracts import (
    AbstractEngine,
    AbstractJobHandler,
    AbstractJobPlugin,
    AbstractPlatform,
    BaseJob,
    BaseJobConfig,
    JobContext,
    JobResult,
    register_engine,
    register_job_plugin,
    register_platform,
)
from dlrover_cli.errors import UsageError
from dlrover_cli.platforms.local.process_tree import stop_tree
from dlrover_cli.telemetry.process_identity import ProcessIdentity


class SnapshotPlatform(AbstractPlatform):
    """A copy of the job file's folder, on this host."""

    @staticmethod
    def platform():
        return "snapshot"


class ScriptEngine(AbstractEngine):
    """A Python script."""

    @staticmethod
    def engine():
        return "script"


class SnapshotConfig(BaseJobConfig):
    """What a job file can say about such a job, besides what it can say about any.

    Properties: `script`, and `args` for it.
    """

    def __init__(self, leave_out=(".git", "__pycache__"), **more):
        super().__init__(**more)
        self.leave_out = list(leave_out)


class SnapshotJob(BaseJob):
    """What has to be known about a job before it starts. It is data: it is kept as JSON."""

    def __init__(self, job_context, job_config):
        super().__init__(job_context, job_config)
        self.source = job_context.project.project_path
        self.script = job_config.properties.get("script", "main.py")
        self.args = job_config.properties.get("args", [])

    # Of this run, and so known only once it has been submitted.

    @property
    def folder(self) -> Path:
        return self.run_directory / "folder"

    @property
    def output(self) -> Path:
        """Where `dlrover-job logs` looks, below the name of a node: by attempt and rank."""
        return self.run_directory / "nodes" / "snapshot" / "logs" / "attempt_0" / "0"


class SnapshotHandler(AbstractJobHandler):
    """What has to be known about a job that was started. It is data, too."""

    def __init__(self, process, exit_code_file):
        super().__init__()
        self.process = process.to_json()
        self.exit_code_file = str(exit_code_file)

    def wait(self, timeout=None):
        with ProcessIdentity.from_json(self.process).opened() as descriptor:
            if descriptor is not None and not select.select([descriptor], [], [], timeout)[0]:
                return None
        try:
            code = int(Path(self.exit_code_file).read_text())
        except (OSError, ValueError):
            return JobResult(1, "it was killed")
        return JobResult(code, f"the script exited with {code}" if code else "")


class SnapshotPlugin(AbstractJobPlugin):
    """How scripts run in a snapshot. Each method may be called in another process."""

    def generate(self, sub_graph, project_desc):
        job = SnapshotJob(JobContext(project_desc), sub_graph.config)
        if not Path(job.source, job.script).is_file():
            raise UsageError(
                f"job {job.name!r}: there is no script {job.script} in {job.source}",
                hint="name one that is in the folder of the job file",
            )
        return job

    def generate_job_resource(self, job):
        ignore = shutil.ignore_patterns(*job.job_config.leave_out)
        shutil.copytree(job.source, job.folder, ignore=ignore)
        job.output.mkdir(parents=True)

    def submit_job(self, job):
        exit_code_file = job.run_directory / "exit_code"
        # Written by the shell and not by us, since we may be gone by then.
        shell = ["/bin/sh", "-c", '"$@"; echo $? > "$0"', exit_code_file]
        with open(job.output / "stdout.log", "wb") as log:
            process = subprocess.Popen(
                [*shell, sys.executable, job.script, *job.args],
                cwd=job.folder,
                # By its run id `stop_tree` finds all that the job starts.
                env=os.environ | {"DLROVER_RUN_ID": job.job_context.run_id},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return SnapshotHandler(ProcessIdentity.of(process.pid), exit_code_file)

    def stop_job(self, job):
        grace = job.job_context.stop_grace
        left = stop_tree(job.job_context.run_id, [], grace=10 if grace is None else grace)
        if left:
            raise RuntimeError(f"could not be ended: {[process.pid for process in left]}")

    def cleanup_job(self, job):
        self.stop_job(job)  # the script has ended; what it has left running has not
        if job.folder.exists():
            shutil.rmtree(job.folder)

    def job_type(self):
        return SnapshotJob

    def job_config_type(self):
        return SnapshotConfig

    def platform(self):
        return SnapshotPlatform

    def engine(self):
        return ScriptEngine


register_platform(SnapshotPlatform)
register_engine(ScriptEngine)
register_job_plugin(SnapshotPlugin)
