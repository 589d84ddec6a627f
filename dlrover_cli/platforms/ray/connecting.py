"""Ray in this process: imported on use, connected to a cluster; a sentence if that fails."""

import logging
import os
from collections.abc import Mapping
from types import ModuleType

from dlrover_cli.errors import ConfigError, LaunchError

LOCAL = "local"
INSTALL_HINT = "pip install -c constraints.txt 'dlrover-cli[ray]'"


def import_ray() -> ModuleType:
    """Raises LaunchError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise LaunchError(
            f"--platform=ray needs Ray, and it cannot be imported: {error}", hint=INSTALL_HINT
        ) from error
    module: ModuleType = ray
    return module


def address_of(asked: str, environ: Mapping[str, str]) -> str:
    """What was asked for, else RAY_ADDRESS, else `auto`. Raises ConfigError."""
    address = asked or environ.get("RAY_ADDRESS", "") or "auto"
    if "://" in address:
        raise ConfigError(
            f"the Ray address {address!r} is one of a client, whose nodes could not reach this "
            "process",
            setting="ray_address",
            hint="run it on a node of the cluster with --ray_address=auto, or hand it over to the "
            "cluster with dlrover-job submit and platform: ray",
        )
    return address


def connect(address: str) -> ModuleType:
    """Become a driver of the cluster; `local` starts one that ends with us. Raises LaunchError."""
    ray = import_ray()
    options = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **options,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _not_connected(address, error) from error
    return ray


def _not_connected(address: str, error: Exception) -> LaunchError:
    why = " ".join(str(error).split())[:300]
    if address == "auto":
        return LaunchError(
            f"there is no Ray cluster at hand: {why}",
            hint="start one with `ray start --head`, name one with --ray_address=HOST:PORT, or "
            "have one started for this job with --ray_address=local",
        )
    if address == LOCAL:
        return LaunchError(
            f"a Ray cluster could not be started here: {why}", hint="see /tmp/ray/session_latest"
        )
    return LaunchError(
        f"the Ray cluster at {address} cannot be used: {why}",
        hint="check the address (`ray status --address=HOST:PORT`), that a node of it runs on this "
        "machine, and that Ray and Python are the same releases there",
    )
