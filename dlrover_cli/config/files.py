"""The current directory's config file: `dlrover.toml`, or `[tool.dlrover]` in `pyproject.toml`.

Only the current directory is looked at. Settings can name code to load, so a file in a parent
directory that others may write to must not have a say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dlrover_cli.config.declaring import Setting
from dlrover_cli.config.settings import SETTINGS
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.config.values import Value, read_toml
from dlrover_cli.errors import ConfigError

OWN_FILE = "dlrover.toml"
SHARED_FILE = "pyproject.toml"
FAILOVER = "failover"


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What the file says: values by setting name, the failover table as it stands, and sources."""

    values: Mapping[str, Value] = field(default_factory=dict)
    failover_table: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)


def read_config_file(directory: Path) -> FileSettings:
    """The settings that stand in a file of `directory`; none if there is no such file."""
    own = _own_document(directory / OWN_FILE)
    shared = _shared_document(directory / SHARED_FILE)
    if own is not None and shared is not None:
        raise ConfigError(
            f"Both {OWN_FILE} and [tool.dlrover] of {SHARED_FILE} hold settings.",
            setting="",
            hint="Keep one of the two.",
        )
    if own is not None:
        return _checked(own, OWN_FILE, ())
    if shared is not None:
        return _checked(shared, SHARED_FILE, ("tool", "dlrover"))
    return FileSettings()


@dataclass(frozen=True, slots=True)
class _Document:
    """The table that holds the settings, and the text it stands in."""

    table: Mapping[str, Any]
    content: bytes


def _own_document(path: Path) -> _Document | None:
    try:
        content = path.read_bytes()
        return _Document(_parsed(path, content), content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"{path.name} cannot be read: {error.strerror}.",
            setting="",
            hint="Make it a readable file, or move it away.",
        ) from error


def _shared_document(path: Path) -> _Document | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if b"dlrover" not in content:
        # Other tools' file: whether it is well-formed is not for us to judge, nor worth the time.
        return None
    tool = _parsed(path, content).get("tool")
    table = tool.get("dlrover") if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(
            f"tool.dlrover in {path.name} must be a table.",
            setting="",
            hint="Start it with a line [tool.dlrover].",
        )
    return _Document(table, content)


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name} is not UTF-8 text: byte {error.start} cannot be read.",
            setting="",
            hint="Save it as UTF-8.",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path.name} is not valid TOML: {error}.",
            setting="",
            hint='A line looks like this: nnodes = "1:4"',
        ) from error


def _checked(document: _Document, file: str, path: tuple[str, ...]) -> FileSettings:
    from dlrover_cli.config.toml_lines import key_lines  # brings tomllib, as `_parsed` does

    lines = key_lines(document.content.decode()) if document.table else {}
    values: dict[str, Value] = {}
    sources: dict[str, Source] = {}
    failover: Mapping[str, object] = {}
    for written, value in document.table.items():
        key = (*path, written)
        source = Source(SourceKind.FILE, f"{file}:{'.'.join(key)}", lines.get(key))
        if written == FAILOVER:
            failover = _failover_table(value, source)
            sources["failover_table"] = source
            continue
        setting = _BY_KEY.get(written.replace("-", "_"))
        if setting is None:
            raise _unknown_key(written, source)
        if setting.name in values:
            raise ConfigError(
                f"{source.subject} is given twice, with a dash and with an underscore.",
                setting=setting.name,
                hint=f"Keep {setting.key}.",
            )
        values[setting.name] = read_toml(setting, value, source)
        sources[setting.name] = source
    return FileSettings(values, failover, sources)


def _failover_table(value: object, source: Source) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    raise ConfigError(
        f"{source.subject} must be a table.",
        setting="failover_table",
        hint=f"Start it with a line [{source.where.partition(':')[2]}].",
    )


def _unknown_key(written: str, source: Source) -> ConfigError:
    near = get_close_matches(written.replace("-", "_"), [*_BY_KEY, FAILOVER], n=1)
    return ConfigError(
        f"{source.subject} is not a setting.",
        setting=written,
        hint=f"Did you mean {near[0]}?" if near else "All settings: dlrover-run --help",
    )


_BY_KEY: Mapping[str, Setting] = {setting.key: setting for setting in SETTINGS}
