"""The job model of AI Flow: a job plugin knows how jobs of one engine run on one platform.

    job file ─► BaseJobConfig, AISubGraph ─► plugin.generate ─► job ─► generate_job_resource
      ─► submit_job ─► handler ─► (stop_job) ─► cleanup_job

Names and signatures are AI Flow's. Jobs and handlers are data here: whatever a plugin has to know
about a job later, it finds in the job and its handler, also in another process and after the one
that submitted it was killed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from dlrover_cli.contracts.jsonable import Jsonable


class ExecutionMode(Enum):
    """Whether a job comes to an end by itself. Carried for the platform."""

    BATCH = "BATCH"
    STREAM = "STREAM"


class BaseNode(Jsonable):
    """Something in the graph of a project."""

    def __init__(
        self,
        instance_id: str | None = None,
        name: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.instance_id = instance_id
        self.name = name
        self.properties: dict[str, Any] = dict(properties or {})


class AbstractPlatform(Jsonable):
    """Where jobs run, such as local or kubernetes."""

    @staticmethod
    def platform() -> str:
        """Its name."""
        raise NotImplementedError("a platform has to give its name in platform()")


class AbstractEngine(Jsonable):
    """What runs a job, such as torch, python or cmd_line."""

    @staticmethod
    def engine() -> str:
        """Its name."""
        raise NotImplementedError("an engine has to give its name in engine()")


class PeriodicConfig(Jsonable):
    """When a job runs again and again: every ``interval``, or whenever ``cron`` says so.

    ``interval`` is a number of seconds, a text such as ``"90s"`` or ``"1h30m"``, or AI Flow's
    ``"days,hours,minutes,seconds"``. ``cron`` has five fields. ``start_date``, in ISO 8601, is the
    earliest start of the first run.
    """

    def __init__(
        self,
        interval: str | float | None = None,
        cron: str | None = None,
        start_date: str | None = None,
    ) -> None:
        super().__init__()
        self.interval = interval
        self.cron = cron
        self.start_date = start_date


class BaseJobConfig(Jsonable):
    """What a job file says about one job.

    A subclass may have more parameters, each with a default: a file may name any of them.
    """

    def __init__(
        self,
        platform: str | None = None,
        engine: str | None = None,
        job_name: str | None = None,
        periodic_config: PeriodicConfig | None = None,
        exec_mode: ExecutionMode | None = ExecutionMode.BATCH,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.platform = platform
        self.engine = engine
        self.job_name = job_name
        self.periodic_config = periodic_config
        self.exec_mode = exec_mode
        self.properties: dict[str, Any] = dict(properties or {})
        self.after: list[str] = []
        """Names of the jobs in the same file that have to succeed first."""
        self.resources: dict[str, Any] = {}
        """What one agent needs, such as ``{"cpu": 4, "nvidia.com/gpu": 8}``."""
        self.queue: str | None = None
        self.priority = 0


AbstractJobConfig = BaseJobConfig


class ProjectDesc(Jsonable):
    """Where a job file comes from."""

    def __init__(
        self,
        project_name: str = "",
        project_path: str = "",
        project_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.project_name = project_name
        self.project_path = project_path
        """The directory of the job file: relative paths in it are meant from here."""
        self.project_config: dict[str, Any] = dict(project_config or {})


class AISubGraph(BaseNode):
    """The part of a project's graph that is one job: its configuration and its operations."""

    def __init__(
        self,
        config: BaseJobConfig,
        nodes: Mapping[str, BaseNode] | None = None,
        edges: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """``edges`` maps a job's name to the names of the jobs that it comes after."""
        super().__init__(name=config.job_name, properties=config.properties)
        self.config = config
        self.nodes: dict[str, BaseNode] = dict(nodes or {})
        self.edges: dict[str, list[str]] = {
            name: list(before) for name, before in (edges or {}).items()
        }


class JobContext(Jsonable):
    """What surrounds a job while it runs; filled in when it is submitted."""

    def __init__(self, project: ProjectDesc | None = None) -> None:
        super().__init__()
        self.project = project or ProjectDesc()
        self.run_id = ""
        self.run_directory = ""
        """A private directory of this run's own; it is there from `generate_job_resource` on."""
        self.occurrence = 0
        """How often it ran before in this run: as a periodic job, or until it made room."""
        self.stop_grace: float | None = None
        """Seconds that `stop_job` gives the job to end by itself; None leaves it to the plugin."""


class BaseJob(BaseNode):
    """A job that can be submitted. Subclasses add what their engine and platform need to know."""

    def __init__(self, job_context: JobContext, job_config: BaseJobConfig) -> None:
        super().__init__(name=job_config.job_name)
        self.job_context = job_context
        self.job_config = job_config
        self._job_handler: AbstractJobHandler | None = None

    @property
    def job_handler(self) -> "AbstractJobHandler | None":
        """What `submit_job` has returned, also in another process; None before that."""
        return getattr(self, "_job_handler", None)

    @job_handler.setter
    def job_handler(self, handler: "AbstractJobHandler | None") -> None:
        self._job_handler = handler

    @property
    def run_directory(self) -> Path:
        return Path(self.job_context.run_directory)


AbstractJob = BaseJob


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended."""

    exit_code: int
    reason: str = ""

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0


class AbstractJobHandler(Jsonable):
    """A job that was submitted. It is data, too, and works in another process."""

    def wait(self, timeout: float | None = None) -> JobResult | None:
        """How the job ended; None if it still runs after ``timeout`` seconds.

        By default there is nothing to wait for: the job was done when `submit_job` returned.
        """
        return JobResult(0)


class AbstractJobGenerator(ABC):
    """Makes jobs from what a file says."""

    @abstractmethod
    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> AbstractJob:
        """The job of this part of the graph. Starts and creates nothing.

        Called when the job is submitted; an exception refuses the submission.
        """

    @abstractmethod
    def generate_job_resource(self, job: AbstractJob) -> None:
        """Make what the job needs before it can run, below its run directory or elsewhere.

        Whatever it makes is taken away again by `cleanup_job`.
        """


class AbstractJobSubmitter(ABC):
    """Runs jobs. Each of these may be called in another process than the one before."""

    @abstractmethod
    def submit_job(self, job: AbstractJob) -> AbstractJobHandler:
        """Start the job and return; what has to be known about it later is in the handler."""

    @abstractmethod
    def stop_job(self, job: AbstractJob) -> None:
        """End the job, however far it has come, and return when it has ended.

        Called with `job.job_handler` set; it is None if whoever submitted the job was killed before
        it had one. A job that has ended already is no error.
        """

    @abstractmethod
    def cleanup_job(self, job: AbstractJob) -> None:
        """Take away what was created for this run. The job has ended.

        Called once, on every path; a second time only if the process that called it was killed on
        the way, so what is gone already is no error.
        """


class AbstractJobPlugin(AbstractJobGenerator, AbstractJobSubmitter):
    """How jobs of one engine run on one platform. Constructed without arguments."""

    honours_periodic_config: ClassVar[bool] = False
    """Whether a job with a `periodic_config` may be submitted; the runner then repeats it."""
    platform_repeats: ClassVar[bool] = False
    """Whether it is the platform that repeats such a job; the runner then submits it once."""
    honours_queue: ClassVar[bool] = False
    """Whether the plugin itself acts on a job's `queue`; else, only an extender does."""
    honours_priority: ClassVar[bool] = False
    """The same of its `priority`."""
    honours_resources: ClassVar[bool] = False
    """The same of its `resources`."""

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def job_type(self) -> type[AbstractJob]:
        """The class of its jobs."""

    @abstractmethod
    def job_config_type(self) -> type[AbstractJobConfig]:
        """The class of its jobs' configurations."""

    @abstractmethod
    def platform(self) -> type[AbstractPlatform]:
        """The class of its platform."""

    @abstractmethod
    def engine(self) -> type[AbstractEngine]:
        """The class of its engine."""
