"""Every setting of `dlrover-run`, declared once: type, default, help, and where it may come from.

The command line, the environment, the config file, the help page and the plan are all made from
`LaunchSettings`. Field names are torchrun's own, and so are the values: `nnodes` stays `"1:4"`;
`config.derive` turns such texts into numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from dlrover_cli.config.sources import DEFAULT, Source, SourceKind


class Panel(Enum):
    """The sections of the help page, in reading order."""

    WORKERS = "Workers"
    SCRIPT = "Script"
    RENDEZVOUS = "Rendezvous"
    RESTARTS = "Restarts and shutdown"
    LOGS = "Logs"
    PLATFORM = "Platform"
    SCHEDULING = "Scheduling"
    FAILOVER = "Failover"
    PLUGINS = "Plugins"
    INSPECT = "Inspect"


class Kind(Enum):
    """What a value is; read off the field's type."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    FLAG = "flag"
    TEXTS = "texts"


def setting(default: Any, *, panel: Panel, about: str, **declaration: Any) -> Any:
    """Declare one setting; what else can be said about it are the fields of `Setting`."""
    metadata = {"setting": {"panel": panel, "about": about, **declaration}}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """What a person asked for, in torchrun's terms, and where each part of it came from."""

    # Workers
    nnodes: str = setting(
        "1:1",
        panel=Panel.WORKERS,
        about="Nodes that take part: a number, or a range for an elastic job.",
        metavar="N|MIN:MAX",
        numeric=True,
    )
    nproc_per_node: str = setting(
        "1",
        panel=Panel.WORKERS,
        about="Workers on each node: a number, or auto, cpu, gpu, xpu for one per device.",
        metavar="N|DEVICE",
        suggestions=("auto", "cpu", "gpu", "xpu"),
        numeric=True,
    )
    role: str = setting(
        "default",
        panel=Panel.WORKERS,
        about="Name of this group of workers, as scripts and metrics see it.",
        metavar="NAME",
    )
    start_method: str = setting(
        "spawn",
        panel=Panel.WORKERS,
        about="How Python starts the workers of --run-path; others are not affected.",
        metavar="METHOD",
        choices=("spawn", "fork", "forkserver"),
    )
    worker_start: str = setting(
        "warm",
        panel=Panel.WORKERS,
        about="Fork Python workers from a process that has torch loaded, or start fresh ones.",
        metavar="HOW",
        choices=("warm", "fresh"),
        torchrun=False,
    )
    preload: tuple[str, ...] = setting(
        (),
        panel=Panel.WORKERS,
        about="One more module that warm workers find loaded; 'auto' learns which, 'none': less.",
        metavar="MODULE",
        default_text="what a training with torch needs",
        torchrun=False,
        repeatable=True,
    )
    numa_binding: str | None = setting(
        None,
        panel=Panel.WORKERS,
        about="Bind each worker to the CPUs close to its GPU.",
        metavar="MODE",
        choices=("node", "socket", "exclusive", "core-complex"),
        env=("DLROVER_NUMA_BINDING",),
    )
    virtual_local_rank: bool = setting(
        False,
        panel=Panel.WORKERS,
        about="Let every worker see its own GPU as device 0, with LOCAL_RANK=0.",
    )

    # Script
    module: bool = setting(
        False,
        panel=Panel.SCRIPT,
        about="SCRIPT is the name of a module, as in 'python -m'.",
        short="-m",
    )
    no_python: bool = setting(
        False,
        panel=Panel.SCRIPT,
        about="SCRIPT is a program of its own: run it without Python.",
    )
    run_path: bool = setting(
        False,
        panel=Panel.SCRIPT,
        about="Run SCRIPT, an absolute path, through runpy; wins over --no-python.",
    )

    # Rendezvous
    standalone: bool = setting(
        False,
        panel=Panel.RENDEZVOUS,
        about="Run on this node alone, on a free port; overrides the backend, endpoint and id.",
    )
    rdzv_backend: str = setting(
        "static",
        panel=Panel.RENDEZVOUS,
        about="How the nodes find each other: static, c10d, dlrover, or one that is installed.",
        metavar="NAME",
        suggestions=("static", "c10d", "dlrover"),
    )
    rdzv_endpoint: str = setting(
        "",
        panel=Panel.RENDEZVOUS,
        about="Where the nodes meet.",
        metavar="HOST[:PORT]",
    )
    rdzv_id: str = setting(
        "none",
        panel=Panel.RENDEZVOUS,
        about="Name of the job, the same on every node.",
        metavar="ID",
        numeric=True,
    )
    rdzv_conf: str = setting(
        "",
        panel=Panel.RENDEZVOUS,
        about="More settings for the backend.",
        metavar="KEY=VALUE,...",
    )
    node_rank: int = setting(
        0,
        panel=Panel.RENDEZVOUS,
        about="Number of this node, from 0; static backend only.",
        metavar="N",
    )
    master_addr: str = setting(
        "127.0.0.1",
        panel=Panel.RENDEZVOUS,
        about="Host of node 0; static backend only.",
        metavar="HOST",
        # DLRover's operator sets DLROVER_MASTER_ADDR to its own master, which is something else.
        env=("PET_MASTER_ADDR",),
    )
    master_port: int | None = setting(
        None,
        panel=Panel.RENDEZVOUS,
        about="Port on node 0; static backend only.",
        metavar="PORT",
        default_text="29500; a free port if there is one node",
    )
    local_addr: str | None = setting(
        None,
        panel=Panel.RENDEZVOUS,
        about="Address of this node, where the one looked up would be wrong.",
        metavar="HOST",
    )

    # Restarts and shutdown
    max_restarts: int = setting(
        0,
        panel=Panel.RESTARTS,
        about="How many times failed workers are started again.",
        metavar="N",
    )
    monitor_interval: float = setting(
        0.1,
        panel=Panel.RESTARTS,
        about="Seconds between two looks at the workers and the waiting nodes.",
        metavar="SECONDS",
    )
    signals_to_handle: str = setting(
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        panel=Panel.RESTARTS,
        about="Signals that end the job in good order and reach the workers.",
        metavar="NAME,...",
    )
    shutdown_timeout: int | None = setting(
        None,
        panel=Panel.RESTARTS,
        about="Time that workers get to end before they are killed.",
        metavar="SECONDS",
        default_text="TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30",
    )
    exit_barrier_timeout: float = setting(
        300.0,
        panel=Panel.RESTARTS,
        about="How long a node that is done waits for the others.",
        metavar="SECONDS",
        torchrun=False,
    )

    # Logs
    log_dir: str | None = setting(
        None,
        panel=Panel.LOGS,
        about="Where log files go; every run makes its own folder there.",
        metavar="DIR",
        default_text="the run directory",
    )
    redirects: str = setting(
        "0",
        panel=Panel.LOGS,
        about="Send output to log files: 1 stdout, 2 stderr, 3 both; 0:1,1:2 by local rank.",
        metavar="STREAMS",
        short="-r",
        suggestions=("0", "1", "2", "3"),
        numeric=True,
    )
    tee: str = setting(
        "0",
        panel=Panel.LOGS,
        about="Send output to log files and to the console; written like --redirects.",
        metavar="STREAMS",
        short="-t",
        suggestions=("0", "1", "2", "3"),
        numeric=True,
    )
    local_ranks_filter: str = setting(
        "",
        panel=Panel.LOGS,
        about="Show only these local ranks on the console.",
        metavar="RANK,...",
        default_text="all",
        numeric=True,
    )
    duplicate_stdout_filters: tuple[str, ...] = setting(
        (),
        panel=Panel.LOGS,
        about="Copy stdout lines that contain one of these to a file; ',,' is a comma.",
        metavar="TEXT,...",
    )
    duplicate_stderr_filters: tuple[str, ...] = setting(
        (),
        panel=Panel.LOGS,
        about="The same for stderr.",
        metavar="TEXT,...",
    )
    event_log_handler: str = setting(
        "null",
        panel=Panel.LOGS,
        about="Where torch's own events go: null, console, or a registered handler.",
        metavar="NAME",
        suggestions=("null", "console", "dynamic_rendezvous"),
    )
    logs_specs: str | None = setting(
        None,
        panel=Panel.LOGS,
        about="Entry point in the group torchrun.logs_specs that decides on log files.",
        metavar="NAME",
        env=("DLROVER_LOGS_SPECS",),
    )

    # Plugins
    rdzv_handler: str | None = setting(
        None,
        panel=Panel.PLUGINS,
        about="Your rendezvous handler, or a function that makes one.",
        metavar="MODULE::CLASS",
        torchrun=False,
    )
    metrics_handler: tuple[str, ...] = setting(
        (),
        panel=Panel.PLUGINS,
        about="Your metrics handler; repeat the option for more than one.",
        metavar="MODULE::CLASS",
        torchrun=False,
        repeatable=True,
    )
    metrics_cfg: str = setting(
        "",
        panel=Panel.PLUGINS,
        about="Settings for the metrics handlers.",
        metavar="KEY=VALUE,...",
        torchrun=False,
    )
    dynamic_failover_extension: str | None = setting(
        None,
        panel=Panel.PLUGINS,
        about="Your failover extension: decides what a failure leads to.",
        metavar="MODULE::CLASS",
        torchrun=False,
        env=("DLROVER_DYNAMIC_FAILOVER_EXTENSION", "DLROVER_EXTENSION_DYNAMIC_FAILOVER"),
    )

    # Failover
    failover_rules: str | None = setting(
        None,
        panel=Panel.FAILOVER,
        about="Rules on what a failure leads to, for when the extension has no opinion.",
        metavar="FILE",
        torchrun=False,
    )
    failover_timeout: float = setting(
        30.0,
        panel=Panel.FAILOVER,
        about="How long the extension may take to load, and to answer.",
        metavar="SECONDS",
        torchrun=False,
    )
    failover_on_error: str = setting(
        "normal",
        panel=Panel.FAILOVER,
        about="What follows when the extension fails: restart as usual, or abort.",
        metavar="STRATEGY",
        choices=("normal", "abort"),
        torchrun=False,
    )
    max_node_relaunches: int = setting(
        3,
        panel=Panel.FAILOVER,
        about="How many times a NODE verdict may replace a node.",
        metavar="N",
        torchrun=False,
    )
    max_job_restarts: int = setting(
        3,
        panel=Panel.FAILOVER,
        about="How many times a GLOBAL verdict may start the whole job afresh.",
        metavar="N",
        torchrun=False,
    )
    restart_budget_reset: str = setting(
        "",
        panel=Panel.FAILOVER,
        about="Progress that refills the restart budget, such as '500 steps' or '1h'.",
        metavar="PROGRESS",
        default_text="never",
        torchrun=False,
    )
    hang_timeout: float = setting(
        0.0,
        panel=Panel.FAILOVER,
        about="No step, heartbeat or output on any rank for so long is a failure.",
        metavar="SECONDS",
        default_text="off",
        torchrun=False,
    )
    hang_start_grace: float = setting(
        600.0,
        panel=Panel.FAILOVER,
        about="Time for start-up and compilation before --hang-timeout counts.",
        metavar="SECONDS",
        torchrun=False,
    )
    interactive: bool = setting(
        False,
        panel=Panel.FAILOVER,
        about="Ask on the terminal what to do about each failure.",
        torchrun=False,
    )

    # Platform
    platform: str = setting(
        "local",
        panel=Panel.PLATFORM,
        about="Where the nodes are: this one, or those of an engine, all by one command.",
        metavar="NAME",
        choices=("local", "ray", "slurm", "kubernetes"),
        torchrun=False,
    )
    resources: str = setting(
        "",
        panel=Panel.PLATFORM,
        about="What each node has to offer, such as cpu=4,memory=8Gi,nvidia.com/gpu=8.",
        metavar="NAME=QUANTITY,...",
        default_text="one CPU per worker",
        torchrun=False,
    )
    ray_address: str = setting(
        "",
        panel=Panel.PLATFORM,
        about="The Ray cluster; 'local' starts one on this machine for the job.",
        metavar="ADDRESS",
        default_text="RAY_ADDRESS, else the one at hand",
        torchrun=False,
    )
    slurm_arg: tuple[str, ...] = setting(
        (),
        panel=Panel.PLATFORM,
        about="An option of sbatch, such as partition=gpu; repeat it for more.",
        metavar="KEY=VALUE",
        torchrun=False,
        repeatable=True,
        whole=True,
    )
    k8s_image: str = setting(
        "",
        panel=Panel.PLATFORM,
        about="The container image that has the script and dlrover-run in it.",
        metavar="IMAGE",
        torchrun=False,
    )
    k8s_namespace: str = setting(
        "default",
        panel=Panel.PLATFORM,
        about="Where the objects of the job are made.",
        metavar="NAME",
        torchrun=False,
    )
    k8s_kind: str = setting(
        "job",
        panel=Panel.PLATFORM,
        about="What the job is: a Job of Kubernetes itself, or one of Volcano.",
        metavar="KIND",
        choices=("job", "volcano"),
        torchrun=False,
    )

    # Scheduling
    extender: str = setting(
        "",
        panel=Panel.SCHEDULING,
        about="A file that names services which decide where agents run, as Volcano has it.",
        metavar="FILE",
        torchrun=False,
    )
    extender_url: str = setting(
        "",
        panel=Panel.SCHEDULING,
        about="One such service, without a file.",
        metavar="URL",
        torchrun=False,
    )
    extender_timeout: str = setting(
        "1s",
        panel=Panel.SCHEDULING,
        about="What an answer of --extender-url may take, such as 500ms.",
        metavar="DURATION",
        torchrun=False,
    )
    extender_verbs: str = setting(
        "",
        panel=Panel.SCHEDULING,
        about="What --extender-url is asked, such as predicate,prioritize=score.",
        metavar="VERB[=PATH],...",
        default_text="everything",
        torchrun=False,
    )
    extender_ignorable: bool = setting(
        False,
        panel=Panel.SCHEDULING,
        about="Go on without --extender-url where it fails.",
        torchrun=False,
    )
    extender_managed_resources: str = setting(
        "",
        panel=Panel.SCHEDULING,
        about="Ask --extender-url only about agents that need one of these resources.",
        metavar="NAME,...",
        torchrun=False,
    )
    extender_token_file: str = setting(
        "",
        panel=Panel.SCHEDULING,
        about="The bearer token for --extender-url.",
        metavar="FILE",
        torchrun=False,
    )
    extender_ca_file: str = setting(
        "",
        panel=Panel.SCHEDULING,
        about="The authority that signed the certificate of --extender-url.",
        metavar="FILE",
        torchrun=False,
    )

    # Inspect
    dry_run: bool = setting(
        False,
        panel=Panel.INSPECT,
        about="Show what would run, and where each setting came from; start nothing.",
        torchrun=False,
    )
    json_output: bool = setting(
        False,
        panel=Panel.INSPECT,
        about="With --dry-run: print one JSON document.",
        option="json",
        torchrun=False,
    )
    result_file: str | None = setting(
        None,
        panel=Panel.INSPECT,
        about="Write how the run ended to this JSON file, however it ends.",
        metavar="FILE",
        torchrun=False,
    )
    compat: str = setting(
        "none",
        panel=Panel.INSPECT,
        about="'torchrun' does all as torchrun does, to see which of the two is to blame.",
        metavar="LAUNCHER",
        choices=("none", "torchrun"),
        torchrun=False,
    )

    # Not options
    training_script: str
    training_script_args: tuple[str, ...] = ()
    failover_table: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)

    def source_of(self, name: str) -> Source:
        """Where the value of the field `name` came from."""
        return self.sources.get(name, DEFAULT)

    def origin(self, name: str) -> Source:
        """Like `source_of`, but fit to start a sentence: a default is spoken of as its option."""
        source = self.source_of(name)
        return source if source.where else Source(SourceKind.DEFAULT, SETTING[name].option)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of one setting, as the readers and the help page see it."""

    name: str
    kind: Kind
    default: Any
    panel: Panel
    about: str
    option: str
    """The long option in its shown spelling, `--nproc-per-node`."""
    env: tuple[str, ...]
    """The variables that are read, the strongest first."""
    torchrun: bool = True
    short: str | None = None
    metavar: str = ""
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    """Offered by completion, not enforced."""
    default_text: str = ""
    """Stands for the default on the help page."""
    numeric: bool = False
    """A text that may be a plain number in a config file."""
    repeatable: bool = False
    """Adds up when repeated, where the last one wins otherwise."""
    whole: bool = False
    """A repeatable one that is not split at commas."""

    @property
    def key(self) -> str:
        """The name in a config file, `nproc_per_node`."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All option strings: with dashes first, with underscores, short."""
        return _spellings(self.option, self.short)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An option that answers at once instead of setting something."""

    option: str
    about: str
    short: str | None = None
    torchrun: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        return _spellings(self.option, self.short)


ACTIONS = (
    Action(option="--help", short="-h", torchrun=True, about="Show this page."),
    Action(option="--version", about="Show the version."),
    Action(option="--install-completion", about="Install completion for the current shell."),
    Action(option="--show-completion", about="Print the completion script instead."),
)


def _declared() -> tuple[Setting, ...]:
    declared = []
    for each in fields(LaunchSettings):
        if "setting" not in each.metadata:
            continue
        declaration = dict(each.metadata["setting"])
        key = declaration.pop("option", each.name)
        env = [f"DLROVER_{key.upper()}"]
        if declaration.get("torchrun", True):
            env.append(f"PET_{each.name.upper()}")
        declaration.setdefault("env", tuple(env))
        declared.append(
            Setting(
                name=each.name,
                kind=_KINDS[each.type],
                default=each.default,
                option="--" + key.replace("_", "-"),
                **declaration,
            )
        )
    return tuple(declared)


_KINDS: Mapping[Any, Kind] = {
    str: Kind.TEXT,
    str | None: Kind.TEXT,
    int: Kind.WHOLE,
    int | None: Kind.WHOLE,
    float: Kind.NUMBER,
    bool: Kind.FLAG,
    tuple[str, ...]: Kind.TEXTS,
}


def _spellings(option: str, short: str | None) -> tuple[str, ...]:
    underscored = "--" + option[2:].replace("-", "_")
    return tuple(dict.fromkeys(name for name in (option, underscored, short) if name))


SETTINGS: tuple[Setting, ...] = _declared()
SETTING: Mapping[str, Setting] = {each.name: each for each in SETTINGS}
Option = Setting | Action
OPTIONS: tuple[Option, ...] = (*SETTINGS, *ACTIONS)
