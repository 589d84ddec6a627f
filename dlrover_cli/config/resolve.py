"""One value for every setting: flag, then environment, then config file, then default."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrover_cli.config.auto import with_what_follows
from dlrover_cli.config.declaring import Setting
from dlrover_cli.config.files import FileSettings, read_config_file
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.config.sources import DEFAULT, Source, SourceKind
from dlrover_cli.config.values import read_text


def resolve_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], directory: Path
) -> LaunchSettings:
    """The settings of a run.

    `flags` holds what stood on the command line by field name, as text or already in its type; what
    is missing or None was not given. A weaker source is not looked at where a stronger one has
    spoken, except that a config file is checked as a whole.
    """
    file = read_config_file(directory)
    values: dict[str, Any] = {}
    sources: dict[str, Source] = dict(file.sources)
    for setting in SETTINGS:
        values[setting.name], sources[setting.name] = _resolved(setting, flags, environ, file)
    settings = LaunchSettings(
        **values,
        training_script=str(flags["training_script"]),
        training_script_args=_texts(flags.get("training_script_args")),
        failover_table=file.failover_table,
        sources=sources,
    )
    return with_what_follows(settings, environ)


def _resolved(
    setting: Setting, flags: Mapping[str, object], environ: Mapping[str, str], file: FileSettings
) -> tuple[object, Source]:
    given = flags.get(setting.name)
    if given is not None:
        source = Source(SourceKind.FLAG, setting.option)
        return _flag_value(setting, given, source), source
    for variable in setting.env:
        if variable in environ:
            source = Source(SourceKind.ENV, variable)
            return read_text(setting, environ[variable], source), source
    if setting.name in file.values:
        return file.values[setting.name], file.sources[setting.name]
    return setting.default, DEFAULT


def _flag_value(setting: Setting, given: object, source: Source) -> object:
    if isinstance(given, str):
        return read_text(setting, given, source)
    if isinstance(given, list | tuple):
        # A repeatable option: every occurrence may hold several, separated by commas.
        parts = [read_text(setting, str(each), source) for each in given]
        return tuple(item for part in parts if isinstance(part, tuple) for item in part)
    return given


def _texts(given: object) -> tuple[str, ...]:
    return tuple(str(each) for each in given) if isinstance(given, list | tuple) else ()
