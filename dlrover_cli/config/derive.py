"""What torchrun's texts stand for: `"1:4"` is two numbers, `"0:1,10:3"` is streams by rank.

Pure functions. Each takes the text and where it came from, and complains in a `ConfigError` that
says so.
"""

import re
import signal
from collections.abc import Iterable
from difflib import get_close_matches
from math import isfinite
from string import Template

from dlrover_cli.config.settings import SETTING, LaunchSettings
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError


def check_settings(settings: LaunchSettings) -> None:
    """Complain about anything that can be seen to be wrong before something is started."""
    parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
    parse_rdzv_conf(settings.rdzv_conf, settings.origin("rdzv_conf"))
    parse_std(settings.redirects, settings.origin("redirects"))
    parse_std(settings.tee, settings.origin("tee"))
    parse_local_ranks_filter(settings.local_ranks_filter, settings.origin("local_ranks_filter"))
    parse_ranks_filter(settings.ranks_filter, settings.origin("ranks_filter"))
    check_log_prefix(settings.log_prefix, settings.origin("log_prefix"))
    parse_signals(settings.signals_to_handle, settings.origin("signals_to_handle"))
    parse_key_values(settings.metrics_cfg, settings.origin("metrics_cfg"))
    _check_numbers(settings)
    _check_combinations(settings)


def parse_nnodes(text: str, origin: Source | None = None) -> tuple[int, int]:
    """`"4"` → (4, 4) and `"1:4"` → (1, 4)."""
    origin = origin or _option("nnodes")
    hint = f"Write {origin.example('2')} or, for an elastic job, {origin.example('1:4')}"
    try:
        bounds = [int(part) for part in text.split(":")]
    except ValueError:
        bounds = []
    if len(bounds) not in (1, 2):
        raise _wrong("nnodes", origin, f"takes a number or MIN:MAX, not {text!r}", hint)
    least, most = bounds[0], bounds[-1]
    if least < 1:
        raise _wrong("nnodes", origin, f"needs at least one node, not {least}", hint)
    if least > most:
        raise _wrong("nnodes", origin, f"has its minimum, {least}, above its maximum, {most}", hint)
    return least, most


def parse_nproc_per_node(text: str, origin: Source | None = None) -> int | str:
    """`"4"` → 4; a word such as `"gpu"` stays, since only torch can count devices."""
    origin = origin or _option("nproc_per_node")
    hint = f"Write {origin.example('2')}, or {origin.example('auto')} for one worker per device"
    try:
        count = int(text)
    except ValueError:
        if text.isidentifier():
            return text
        message = f"takes a number or a kind of device, not {text!r}"
        raise _wrong("nproc_per_node", origin, message, hint) from None
    if count < 1:
        raise _wrong("nproc_per_node", origin, f"needs at least one worker, not {count}", hint)
    return count


def parse_std(text: str, origin: Source | None = None) -> int | dict[int, int]:
    """`"3"` → 3 and `"0:1,10:3"` → {0: 1, 10: 3}: 1 is stdout, 2 is stderr, 3 is both."""
    origin = origin or _option("redirects")
    if re.fullmatch("[0-3]", text):
        return int(text)
    if re.fullmatch("([0-9]+:[0-3],)*[0-9]+:[0-3]", text):
        pairs = [pair.split(":") for pair in text.split(",")]
        return {int(rank): int(streams) for rank, streams in pairs}
    raise _wrong(
        "redirects",
        origin,
        f"takes 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:0-3,..., not {text!r}",
        f"Write {origin.example('3')} or, by local rank, {origin.example('0:1,1:2')}",
    )


def parse_rdzv_conf(text: str, origin: Source | None = None) -> dict[str, str]:
    """`"timeout=30, read_timeout=60"` → a dict of texts."""
    return _key_values("rdzv_conf", text, origin or _option("rdzv_conf"))


def parse_key_values(text: str, origin: Source | None = None) -> dict[str, str]:
    """The same for the settings of metrics handlers."""
    return _key_values("metrics_cfg", text, origin or _option("metrics_cfg"))


def parse_local_ranks_filter(text: str, origin: Source | None = None) -> frozenset[int] | None:
    """`"0,2"` → {0, 2}; nothing means all ranks, which is None."""
    origin = origin or _option("local_ranks_filter")
    if not text:
        return None
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        message = f"takes numbers with commas between, not {text!r}"
        hint = f"Write {origin.example('0,1,2')}"
        raise _wrong("local_ranks_filter", origin, message, hint) from None


def parse_ranks_filter(text: str, origin: Source | None = None) -> frozenset[int] | None:
    """`"0,8-10"` → {0, 8, 9, 10}; nothing means all ranks, which is None."""
    origin = origin or _option("ranks_filter")
    if not text:
        return None
    try:
        return ranks_in(text)
    except ValueError:
        message = f"takes numbers and ranges with commas between, not {text!r}"
        hint = f"Write {origin.example('0,8-15')}"
        raise _wrong("ranks_filter", origin, message, hint) from None


def ranks_in(text: str) -> frozenset[int]:
    """`"0,8-10"` → {0, 8, 9, 10}. Raises ValueError."""
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        last = -1 if found is None else int(found[2] or found[1])
        if found is None or last < int(found[1]) or last - int(found[1]) > _MOST_RANKS:
            raise ValueError(part)
        ranks.update(range(int(found[1]), last + 1))
    return frozenset(ranks)


def check_log_prefix(text: str | None, origin: Source | None = None) -> None:
    """Complain about a name that no prefix has, which would stand in every line as it is."""
    if text is None:
        return
    origin = origin or _option("log_prefix")
    hint = f"There are: {', '.join(f'${{{name}}}' for name in LOG_PREFIX_NAMES)}; $$ is a $."
    template = Template(text)
    if not template.is_valid():
        raise _wrong("log_prefix", origin, f"has a $ that names nothing: {text!r}", hint)
    for name in template.get_identifiers():
        if name not in LOG_PREFIX_NAMES:
            raise _wrong("log_prefix", origin, f"has no ${{{name}}}", hint)


def parse_signals(text: str, origin: Source | None = None) -> tuple[signal.Signals, ...]:
    """`"SIGTERM,SIGUSR1"` → the signals."""
    origin = origin or _option("signals_to_handle")
    names = [name.strip() for name in text.split(",")]
    return tuple(_signal(name, origin) for name in names if name)


def _signal(name: str, origin: Source) -> signal.Signals:
    known = signal.Signals.__members__
    if name in ("SIGKILL", "SIGSTOP"):
        message = f"cannot have {name}, which no process can handle"
        raise _wrong("signals_to_handle", origin, message, f"Leave {name} out.")
    if name in known:
        return known[name]
    near = get_close_matches(name.upper(), known, n=1) or ["SIGTERM"]
    raise _wrong(
        "signals_to_handle",
        origin,
        f"names {name!r}, which is not a signal here",
        f"Did you mean {near[0]}?",
    )


def _key_values(name: str, text: str, origin: Source) -> dict[str, str]:
    found: dict[str, str] = {}
    hint = f"Write {origin.example('key=value,other=value')}"
    for pair in text.split(",") if text.strip() else ():
        key, _, value = (part.strip() for part in pair.partition("="))
        if not key:
            raise _wrong(name, origin, f"has no name before {pair.strip()!r}", hint)
        if not value:
            raise _wrong(name, origin, f"has no value for {key!r}", hint)
        found[key] = value
    return found


def _check_numbers(settings: LaunchSettings) -> None:
    for name, least, most in _RANGES:
        value = getattr(settings, name)
        if value is None or (least <= value <= most and isfinite(value)):
            continue
        origin = settings.origin(name)
        wanted = f"takes {least} or more" if most == _ANY else f"takes {least} to {most}"
        raise _wrong(name, origin, f"{wanted}, not {value}", f"Write {origin.example('10')}")


def _check_combinations(settings: LaunchSettings) -> None:
    if settings.no_python and settings.module and not settings.run_path:
        raise ConfigError(
            f"{settings.origin('no_python').subject} and {settings.origin('module').subject} "
            "contradict each other: a module is run by Python.",
            setting="no_python",
            hint="Leave one of them out.",
        )
    _check_extender(settings)
    _check_node_unit(settings)
    _check_debugging(settings)
    if settings.source_of("json_output").kind is SourceKind.FLAG and not settings.dry_run:
        raise ConfigError(
            "--json has nothing to print without --dry-run.",
            setting="json_output",
            hint="Add --dry-run, or use --result-file to have the outcome of a run as JSON.",
        )


def _check_node_unit(settings: LaunchSettings) -> None:
    """Only our own rendezvous counts in units; of a fixed number of nodes there is nothing to."""
    least, most = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    unit, origin = settings.node_unit, settings.origin("node_unit")
    if most == 1:
        return
    if most // unit * unit < least:
        raise _wrong(
            "node_unit",
            origin,
            f"is {unit}, and no multiple of it lies within --nnodes={settings.nnodes}",
            f"Write --nnodes={max(1, most // unit) * unit}, or a range with a multiple of {unit}",
        )
    ours = settings.rdzv_backend == "dlrover" and settings.rdzv_handler is None
    if unit == 1 or least == most or ours or settings.platform in ("ray", "slurm"):
        return
    raise _wrong(
        "node_unit",
        origin,
        f"cannot be kept to by --rdzv-backend={settings.rdzv_backend}, which may start with any "
        f"number of nodes from {least} to {most}",
        "Add --rdzv-backend=dlrover, or give a fixed number of nodes",
    )


def _check_extender(settings: LaunchSettings) -> None:
    names = [name for name in ("extender", "extender_url") if getattr(settings, name)]
    if len(names) == 2:
        both = " and ".join(settings.origin(name).subject for name in names)
        raise ConfigError(
            f"{both} both name a service.",
            setting="extender_url",
            hint="Keep one of them; a file may name several services.",
        )
    is_free = settings.platform == "slurm" and names_nodes(settings.slurm_arg)
    if names and settings.platform in _PLACE_BY_THEMSELVES and not is_free:
        engine, hint = _PLACE_BY_THEMSELVES[settings.platform]
        raise ConfigError(
            f"{settings.origin(names[0]).subject} is asked where agents run, and "
            f"{engine} places them by itself.",
            setting=names[0],
            hint=hint,
        )
    for name in _OF_EXTENDER_URL:
        if settings.source_of(name).kind is SourceKind.FLAG and not settings.extender_url:
            origin = settings.origin(name)
            hint = "Add --extender_url, or write it into the file of --extender."
            raise _wrong(
                name, origin, "says something about --extender_url, which is not there", hint
            )


def names_nodes(slurm_args: Iterable[str]) -> bool:
    """Whether Slurm is told which nodes to give, so that the job may choose among them."""
    keys = (text.partition("=")[0].strip().lstrip("-") for text in slurm_args)
    return any(key in ("nodelist", "w") for key in keys)


def _check_debugging(settings: LaunchSettings) -> None:
    name = "pdb" if settings.pdb else "debug_rank"
    if settings.debug_rank is None and not settings.pdb:
        if settings.debugger != "pdb":
            origin = settings.origin("debugger")
            hint = "Add --debug-rank with the rank to look into."
            raise _wrong("debugger", origin, "says nothing without --debug-rank", hint)
        return
    origin = settings.origin(name)
    if settings.no_python or settings.run_path:
        other = settings.origin("run_path" if settings.run_path else "no_python").subject
        message = f"looks into Python scripts that we start ourselves, which {other} rules out"
        raise _wrong(name, origin, message, "Leave one of them out.")
    if settings.platform != "local":
        message = f"needs a worker at this terminal, and those of {settings.platform} are elsewhere"
        raise _wrong(name, origin, message, "Run it with --platform=local to look into it.")
    _check_rank(settings)


def _check_rank(settings: LaunchSettings) -> None:
    least, most = parse_nnodes(settings.nnodes)
    workers = parse_nproc_per_node(settings.nproc_per_node)
    if settings.debug_rank is None or not isinstance(workers, int) or least != most:
        return
    if settings.debug_rank >= most * workers:
        message = f"is {settings.debug_rank}, and the ranks go from 0 to {most * workers - 1}"
        hint = "Ranks are counted over all nodes, from 0."
        raise _wrong("debug_rank", settings.origin("debug_rank"), message, hint)


def _option(name: str) -> Source:
    return Source(SourceKind.FLAG, SETTING[name].option)


def _wrong(name: str, origin: Source, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{origin.subject} {what}.", setting=name, hint=hint)


_PLACE_BY_THEMSELVES = {
    "kubernetes": (
        "Kubernetes",
        "Leave it out, and let the scheduler of the cluster ask the service.",
    ),
    "slurm": (
        "Slurm",
        "Leave it out, or name nodes with --slurm-arg=nodelist=… for the service to choose from.",
    ),
}
_OF_EXTENDER_URL = (
    *("extender_timeout", "extender_verbs", "extender_ignorable"),
    *("extender_managed_resources", "extender_token_file", "extender_ca_file"),
)
LOG_PREFIX_NAMES = (
    *("host", "node_rank", "rank", "global_rank", "local_rank", "role_name", "attempt"),
)
_MOST_RANKS = 1_000_000
_ANY = float("inf")
_RANGES = (
    ("max_restarts", 0, _ANY),
    ("monitor_interval", 0, _ANY),
    ("shutdown_timeout", 0, _ANY),
    ("exit_barrier_timeout", 0, _ANY),
    ("failover_timeout", 0, _ANY),
    ("max_node_relaunches", 0, _ANY),
    ("max_job_restarts", 0, _ANY),
    ("hang_timeout", 0, _ANY),
    ("hang_start_grace", 0, _ANY),
    ("node_rank", 0, _ANY),
    ("node_unit", 1, _ANY),
    ("precheck_timeout", 1, _ANY),
    ("debug_rank", 0, _ANY),
    ("master_port", 0, 65535),
)
