"""Every setting of `dlrover-run`, declared once: type, default, help, and where it may come from.

The command line, the environment, the config file, the help page and the plan are all made from
`LaunchSettings`. Field names are torchrun's own, and so are the values: `nnodes` stays `"1:4"`;
`config.derive` turns such texts into numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlrover_cli.config.declaring import Action, Option, Panel, Setting, declared, setting
from dlrover_cli.config.sources import DEFAULT, Source, SourceKind


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

    numa_affinity: bool = setting(
        False,
        panel=Panel.WORKERS,
        about="DLRover's word for --numa-binding=node; no effect where there are no GPUs.",
        torchrun=False,
    )
    auto_config: bool = setting(
        False,
        panel=Panel.WORKERS,
        about="Nodes from NODE_NUM, a worker per GPU, and a check from four nodes on.",
        torchrun=False,
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
    node_unit: int = setting(
        1,
        panel=Panel.RENDEZVOUS,
        about="Nodes take part in multiples of so many; others wait as spares.",
        metavar="N",
        torchrun=False,
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

    # Check of the nodes
    precheck: str = setting(
        "0",
        panel=Panel.CHECK,
        about="Check the nodes before training: 1 for a short check, 2 for a longer one.",
        metavar="LEVEL",
        choices=("0", "1", "2"),
        numeric=True,
        torchrun=False,
    )
    network_check: bool = setting(
        False,
        panel=Panel.CHECK,
        about="Check the nodes before every start of workers, restarts too.",
        torchrun=False,
    )
    comm_perf_test: bool = setting(
        False,
        panel=Panel.CHECK,
        about="Check the nodes, and print the bandwidth of an all-reduce of them all.",
        torchrun=False,
    )
    exclude_straggler: bool = setting(
        False,
        panel=Panel.CHECK,
        about="Train without nodes that the check finds slow, if enough are left.",
        torchrun=False,
    )
    precheck_timeout: float = setting(
        120.0,
        panel=Panel.CHECK,
        about="What each stage of the check may take; who takes longer is faulty.",
        metavar="SECONDS",
        torchrun=False,
        env=("DLROVER_PRECHECK_TIMEOUT", "NETWORK_CHECK_TIMEOUT"),
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
    ranks_filter: str = setting(
        "",
        panel=Panel.LOGS,
        about="Show only these global ranks on the console, such as 0,8-15.",
        metavar="RANK,...",
        default_text="all",
        torchrun=False,
        numeric=True,
    )
    log_prefix: str | None = setting(
        None,
        panel=Panel.LOGS,
        about="What stands before each line on the console, such as '${host}.${rank}: '.",
        metavar="TEMPLATE",
        default_text="nothing; before teed lines as torchrun has it",
        torchrun=False,
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
        about="Where metrics go: console, jsonl, prometheus, otel, or a handler of yours.",
        metavar="NAME|MODULE::CLASS",
        suggestions=("console", "jsonl", "otel", "prometheus"),
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
    debug_rank: int | None = setting(
        None,
        panel=Panel.INSPECT,
        about="Give this global rank the terminal: its breakpoint() opens a debugger.",
        metavar="RANK",
        default_text="none",
        torchrun=False,
    )
    debugger: str = setting(
        "pdb",
        panel=Panel.INSPECT,
        about="For --debug-rank: pdb in the terminal, or debugpy for an IDE.",
        metavar="NAME",
        choices=("pdb", "debugpy"),
        torchrun=False,
    )
    pdb: bool = setting(
        False,
        panel=Panel.INSPECT,
        about="Open pdb in the rank that fails first, before anything is stopped.",
        torchrun=False,
    )
    quiet: bool = setting(
        False,
        panel=Panel.INSPECT,
        about="No narration and no status line: of the launcher, errors and the verdict alone.",
        torchrun=False,
    )
    notify: tuple[str, ...] = setting(
        (),
        panel=Panel.INSPECT,
        about="Send events of the run to this address; @FILE holds one that is secret.",
        metavar="URL|@FILE",
        torchrun=False,
        repeatable=True,
        whole=True,
    )
    notify_on: str = setting(
        "",
        panel=Panel.INSPECT,
        about="Which events --notify sends, such as failure,run_finished; or all.",
        metavar="KIND,...",
        default_text="failures, decisions, lost nodes, start and end",
        torchrun=False,
    )
    notify_secret_file: str = setting(
        "",
        panel=Panel.INSPECT,
        about="The key that --notify signs with.",
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


ACTIONS = (
    Action(option="--help", short="-h", torchrun=True, about="Show this page."),
    Action(option="--version", about="Show the version."),
    Action(option="--install-completion", about="Install completion for the current shell."),
    Action(option="--show-completion", about="Print the completion script instead."),
)
SETTINGS: tuple[Setting, ...] = declared(LaunchSettings)
SETTING: Mapping[str, Setting] = {each.name: each for each in SETTINGS}
OPTIONS: tuple[Option, ...] = (*SETTINGS, *ACTIONS)
