"""The batch script of a job: what sbatch is asked for, and the manager that runs in it. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from dlrover_cli.config.derive import parse_key_values, parse_nnodes, parse_nproc_per_node
from dlrover_cli.config.properties import options_of
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import Source
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.script import name_of_script

WARNING_SIGNAL = "USR1"
"""What Slurm sends to the manager when the time limit is near."""
SPARES = "spares"
_LEAD_SECONDS = 60
_MARGIN_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Batch:
    """One sbatch: its options in order, and its command."""

    options: Mapping[str, str | None]
    environ: Mapping[str, str]
    command: Sequence[str]

    def script(self) -> str:
        """The whole script."""
        lines = ["#!/bin/sh"]
        for name, value in self.options.items():
            # Directives are read by sbatch itself, which knows quotes but no variables.
            lines.append(f"#SBATCH --{name}" + ("" if value is None else f"={_quoted(value)}"))
        lines += ["", "# The manager of the job; it starts one agent on each node."]
        lines.append(f"trap '' {WARNING_SIGNAL}  # until it can take it")
        lines += [f"export {name}={shlex.quote(text)}" for name, text in self.environ.items()]
        lines.append("exec " + shlex.join(self.command))
        return "\n".join(lines) + "\n"


def make_batch(
    settings: LaunchSettings,
    *,
    directory: str,
    log_directory: str,
    launcher: Sequence[str],
    environ: Mapping[str, str],
) -> Batch:
    """The sbatch that these settings mean. Raises ConfigError."""
    least, most = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    given = parse_slurm_args(settings.slurm_arg, settings.origin("slurm_arg"))
    spares = _spares(given.pop(SPARES, "0"), settings.origin("slurm_arg"))
    wanted = str(most + spares) if least == most else f"{least}-{most + spares}"
    options: dict[str, str | None] = {
        "job-name": name_of_script(settings.training_script),
        "nodes": wanted,
        **_needs(settings, given),
        "chdir": directory,
        "output": f"{log_directory}/stdout.log",
        "error": f"{log_directory}/stderr.log",
        "open-mode": "append",
        "no-kill": None,
        "requeue": None,
        "signal": f"B:{WARNING_SIGNAL}@{lead_seconds(settings)}",
        **given,
    }
    if "no-requeue" in given:
        del options["requeue"]
    return Batch(options, environ, [*launcher, *_arguments(settings)])


def node_request(settings: LaunchSettings) -> dict[str, str | None]:
    """What sbatch is asked for when one more node is wanted, in an order of its own."""
    given = parse_slurm_args(settings.slurm_arg, settings.origin("slurm_arg"))
    for name in (SPARES, *_OF_THE_WHOLE_JOB):
        given.pop(name, None)
    return {
        "job-name": f"{name_of_script(settings.training_script)}-node",
        "nodes": "1",
        **_needs(settings, given),
        "output": "/dev/null",
        "requeue": None,
        **given,
    }


def parse_slurm_args(texts: Sequence[str], origin: Source) -> dict[str, str | None]:
    """`["partition=gpu", "exclusive"]` → options of sbatch, each known and none of ours."""
    found: dict[str, str | None] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        key = key.strip().lstrip("-").replace("_", "-")
        key = _SHORT.get(key, key)
        _check_key(key, text, origin)
        if sign and not value.strip():
            raise _wrong(f"has no value for {key!r}", f"Write {origin.example(f'{key}=…')}", origin)
        if not sign and key not in _FLAGS:
            raise _wrong(
                f"has no value for {key!r}", f"Write {origin.example(f'{key}=VALUE')}", origin
            )
        if key in found:
            raise _wrong(f"names {key!r} twice", "Keep one of them.", origin)
        if "\n" in text or "\0" in text:
            raise _wrong(f"has a line break in {key!r}", "Write it in one line.", origin)
        found[key] = value.strip() if sign else None
    return found


def without_overrides(environ: Mapping[str, str], options: Mapping[str, object]) -> dict[str, str]:
    """The environment for sbatch: its SBATCH_… variables would win over what the script says."""
    ours = {"SBATCH_" + name.upper().replace("-", "_") for name in options} | {"SBATCH_NO_REQUEUE"}
    return {name: text for name, text in environ.items() if name not in ours}


def _check_key(key: str, text: str, origin: Source) -> None:
    if key in _OURS:
        raise _wrong(f"cannot set {key!r}: {_OURS[key]}", "Leave it out.", origin)
    if key in _KNOWN or key in _FLAGS or key == SPARES:
        return
    near = get_close_matches(key, [*_KNOWN, *_FLAGS, SPARES], n=1)
    hint = f"Did you mean {near[0]}?" if near else "All options: man sbatch"
    raise _wrong(f"names {key or text!r}, which is not an option of sbatch", hint, origin)


def _needs(settings: LaunchSettings, given: Mapping[str, object]) -> dict[str, str | None]:
    """What each node has to offer, in Slurm's words; what --slurm-arg says goes before."""
    named = parse_key_values(settings.resources, settings.origin("resources"))
    found: dict[str, str | None] = {}
    for name, amount in named.items():
        match name:
            case "cpu":
                found["cpus-per-task"] = amount
            case "memory":
                found["mem"] = amount.removesuffix("i").removesuffix("B").removesuffix("i")
            case _:
                kind = "gpu" if name.rpartition("/")[2] == "gpu" else name
                found["gres"] = ",".join(filter(None, (found.get("gres"), f"{kind}:{amount}")))
    for key in found:
        if key in given:
            source = settings.origin("resources")
            raise ConfigError(
                f"{source.subject} and --slurm-arg both say what --{key} is.",
                setting="resources",
                hint="Keep one of them.",
            )
    workers = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
    if isinstance(workers, int) and not {"cpus-per-task", "exclusive"} & {*found, *given}:
        found["cpus-per-task"] = str(workers)
    return found


def lead_seconds(settings: LaunchSettings) -> int:
    """How long before the time limit the job is told: its workers need time to end."""
    grace = 30 if settings.shutdown_timeout is None else settings.shutdown_timeout
    return max(_LEAD_SECONDS, grace + _MARGIN_SECONDS)


def _arguments(settings: LaunchSettings) -> list[str]:
    options = [
        option
        for setting in SETTINGS
        if setting.name not in _NOT_FOR_THE_MANAGER
        and (value := getattr(settings, setting.name)) != setting.default
        and value is not None
        for option in options_of(setting, value)
    ]
    return [*options, "--", settings.training_script, *settings.training_script_args]


def _spares(text: str | None, origin: Source) -> int:
    if text is not None and text.isdecimal():
        return int(text)
    raise _wrong("takes a number for 'spares'", f"Write {origin.example('spares=1')}", origin)


def _quoted(text: str) -> str:
    return text if text and not set(text) & set(" \t\"'\\#") else shlex.quote(text)


def _wrong(what: str, hint: str, origin: Source) -> ConfigError:
    return ConfigError(f"{origin.subject} {what}.", setting="slurm_arg", hint=hint)


_NOT_FOR_THE_MANAGER = frozenset({"dry_run", "json_output", "result_file", "standalone"})
_OF_THE_WHOLE_JOB = (
    *("job-name", "nodelist", "nodefile", "dependency", "begin", "hold", "no-requeue"),
    *("mail-type", "mail-user", "contiguous", "switches"),
)
_SHORT = {
    "p": "partition",
    "A": "account",
    "t": "time",
    "q": "qos",
    "w": "nodelist",
    "x": "exclude",
}
_NODES = "--nnodes says how many nodes, and 'spares' how many more"
_OUTPUT = "the output of the job is kept in its run directory"
_OURS = {
    "nodes": _NODES,
    "N": _NODES,
    "ntasks": "each node gets one agent, which starts --nproc-per-node workers",
    "n": "each node gets one agent, which starts --nproc-per-node workers",
    "ntasks-per-node": "each node gets one agent, which starts --nproc-per-node workers",
    "output": _OUTPUT,
    "error": _OUTPUT,
    "open-mode": _OUTPUT,
    "chdir": "the job runs in the current directory",
    "no-kill": "the job decides by itself what the loss of a node means",
    "signal": "it tells the job that the time limit is near",
    "requeue": "a job that lost its manager goes on when Slurm starts it again",
    "wrap": "the script is the manager of the job",
    "parsable": "the script is the manager of the job",
    "wait": "dlrover-run waits by itself",
    "array": "a job is one training",
    "export": "agents get the environment of dlrover-run",
    "test-only": "--dry-run shows what would be submitted",
}
_FLAGS = frozenset(
    {"exclusive", "contiguous", "oversubscribe", "overcommit", "no-requeue", "reboot", "hold"}
)
_KNOWN = frozenset(
    {
        *("account", "acctg-freq", "batch", "bb", "bbf", "begin", "cluster-constraint", "clusters"),
        *("comment", "constraint", "container", "core-spec", "cores-per-socket", "cpu-freq"),
        *("cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution"),
        *("exclude", "exclusive", "extra", "extra-node-info", "gid", "gpu-bind", "gpu-freq"),
        *("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags"),
        *("hint", "job-name", "kill-on-invalid-dep", "licenses", "mail-type", "mail-user"),
        *("mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network"),
        *("nice", "nodefile", "nodelist", "oversubscribe", "partition", "power", "prefer"),
        *("priority", "profile", "propagate", "qos", "reservation", "sockets-per-node"),
        *("spread-job", "switches", "thread-spec", "threads-per-core", "time", "time-min"),
        *("tmp", "tres-bind", "tres-per-task", "uid", "use-min-nodes", "wckey"),
    }
)
