"""Values of ``--metrics_cfg`` for the built-in handlers: from what was typed to numbers."""

from math import isfinite

from dlrover_cli.errors import ConfigError


def seconds(key: str, text: str, *, least: float = 0.0) -> float:
    """A time, or a sentence about what was typed."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not isfinite(number) or number < least:
        raise wrong(key, f"takes seconds, at least {least:g}, not {text!r}", f"{key}=10")
    return number


def port(key: str, text: str) -> int:
    """A port; 0 is any that is free."""
    if not text.isdecimal() or int(text) > 65535:
        raise wrong(key, f"takes a port from 0 to 65535, not {text!r}", f"{key}=9464")
    return int(text)


def wrong(key: str, what: str, example: str) -> ConfigError:
    """The error about one key."""
    return ConfigError(
        f"--metrics_cfg: {key} {what}", setting="metrics_cfg", hint=f"--metrics_cfg={example}"
    )


def missing_package(handler: str, package: str) -> ConfigError:
    """The error about an extra that is not installed."""
    return ConfigError(
        f"--metrics_handler={handler} needs the package {package}, which is not installed",
        setting="metrics_handler",
        hint=f"pip install 'dlrover-cli[{handler}]'",
    )
