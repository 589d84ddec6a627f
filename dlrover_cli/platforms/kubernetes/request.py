"""What is asked of Kubernetes, apart from which run it is for: checked, and plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.config.properties import options_of
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import SourceKind
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.script import name_of_script
from dlrover_cli.platforms.kubernetes.names import is_dns_label, is_image, stem_of
from dlrover_cli.platforms.kubernetes.resources import resources_of

MARGIN_SECONDS = 15
"""That a launcher has for itself after its workers' shutdown timeout."""
_SHUTDOWN_SECONDS = 30
_MOST_NODES = 10_000
_OURS = frozenset(
    {
        *("platform", "resources", "ray_address", "slurm_arg"),
        *("k8s_image", "k8s_namespace", "k8s_kind"),
        *("dry_run", "json_output", "result_file", "standalone", "interactive", "compat"),
        *("nnodes", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf"),
        *("node_rank", "master_addr", "master_port", "local_addr"),
        *("notify", "notify_on", "notify_secret_file"),
    }
)
"""Settings that are not handed on to the launchers in the pods, or that the platform makes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One job, as its objects are made from it."""

    stem: str
    namespace: str
    kind: str
    image: str
    least: int
    most: int
    options: list[str]
    """Of `dlrover-run` in each pod, without those that say where the nodes meet."""
    rdzv_conf: str
    command: list[str]
    """The script and its arguments."""
    resources: dict[str, str]
    relaunches: int
    grace: int
    """Seconds between SIGTERM and SIGKILL of a pod."""
    env: dict[str, str]
    schedule: str | None = None
    """Five fields of cron, in UTC; of a job that Kubernetes repeats."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{each.name: data[each.name] for each in fields(cls)})


def request_of(settings: LaunchSettings, env: Mapping[str, str] | None = None) -> Request:
    """What these settings ask for. Raises ConfigError."""
    _refuse_what_pods_cannot_have(settings)
    least, most = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    if most > _MOST_NODES:
        raise _wrong(settings, "nnodes", f"takes up to {_MOST_NODES} nodes, not {most}", "4")
    seconds = settings.shutdown_timeout
    return Request(
        stem=stem_of(name_of_script(settings.training_script)),
        namespace=_namespace(settings),
        kind=settings.k8s_kind,
        image=_image(settings),
        least=least,
        most=most,
        options=_options(settings),
        rdzv_conf=settings.rdzv_conf,
        command=[settings.training_script, *settings.training_script_args],
        resources=resources_of(settings),
        relaunches=settings.max_node_relaunches,
        grace=(_SHUTDOWN_SECONDS if seconds is None else seconds) + MARGIN_SECONDS,
        env=dict(env or {}),
    )


def _options(settings: LaunchSettings) -> list[str]:
    options = [
        option
        for setting in SETTINGS
        if setting.name not in _OURS
        and (value := getattr(settings, setting.name)) != setting.default
        and value is not None
        for option in options_of(setting, value)
    ]
    if settings.redirects == settings.tee == "0":
        options.append(
            "--tee=3"
        )  # with the rank before each line, which is how logs are told apart
    return options


def _refuse_what_pods_cannot_have(settings: LaunchSettings) -> None:
    for name, (why, hint) in _REFUSED.items():
        if settings.source_of(name).kind is not SourceKind.DEFAULT and _is_set(settings, name):
            raise ConfigError(f"{settings.origin(name).subject} {why}", setting=name, hint=hint)
    if settings.failover_table:
        raise ConfigError(
            "the failover rules of a config file here do not reach the pods",
            setting="failover_rules",
            hint="put them into a file of the image, and name it with --failover-rules",
        )


def _is_set(settings: LaunchSettings, name: str) -> bool:
    value = getattr(settings, name)
    return bool(value) and value not in ("none", "dlrover", "static", "127.0.0.1")


def _image(settings: LaunchSettings) -> str:
    image = settings.k8s_image
    if not image:
        raise ConfigError(
            "--platform=kubernetes needs an image for its pods, with the script and dlrover-run",
            setting="k8s_image",
            hint="name one: --k8s-image=registry.example.com/team/train:1.0",
        )
    if not is_image(image):
        what = f"takes the name of an image, not {image!r}"
        raise _wrong(settings, "k8s_image", what, "registry.example.com/team/train:1.0")
    return image


def _namespace(settings: LaunchSettings) -> str:
    namespace = settings.k8s_namespace
    if not is_dns_label(namespace):
        what = f"takes lower case letters, digits and dashes, not {namespace!r}"
        raise _wrong(settings, "k8s_namespace", what, "training")
    return namespace


def _wrong(settings: LaunchSettings, name: str, what: str, example: str) -> ConfigError:
    origin = settings.origin(name)
    return ConfigError(
        f"{origin.subject} {what}", setting=name, hint=f"Write {origin.example(example)}"
    )


_STORE = "leave it out: on Kubernetes the nodes meet at a store in a pod of its own"
_REFUSED: Mapping[str, tuple[str, str]] = {
    "standalone": ("is for one machine, and pods are several", "leave it out"),
    "interactive": (
        "asks on a terminal, and pods have none",
        "decide with --failover-rules or --dynamic-failover-extension instead",
    ),
    "compat": ("has torchrun do all, which cannot meet at our store", "leave it out"),
    "rdzv_backend": ("cannot be chosen on Kubernetes", _STORE),
    "rdzv_endpoint": ("cannot be chosen on Kubernetes", _STORE),
    "rdzv_handler": ("cannot be chosen on Kubernetes", _STORE),
    "rdzv_id": ("cannot be chosen on Kubernetes: it is the run's own id", "leave it out"),
    "node_rank": ("cannot be chosen on Kubernetes: pods are numbered", "leave it out"),
    "master_addr": ("cannot be chosen on Kubernetes", _STORE),
    "master_port": ("cannot be chosen on Kubernetes", _STORE),
    "local_addr": ("cannot be chosen on Kubernetes: each pod has its own", "leave it out"),
}
