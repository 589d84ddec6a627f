"""Who is asked about failures in a run: the user's extension, the rules, perhaps a person.

Free of torch: the extension's process is started before torch is imported, so that both load at
the same time.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, cast

from dlrover_cli.contracts import AgentFailureInfo, WorkerFailure
from dlrover_cli.failover.advice import Adviser
from dlrover_cli.failover.budget import parse_budget_reset
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.extension import ExtensionAdviser
from dlrover_cli.failover.interactive import TerminalAdviser, open_terminal
from dlrover_cli.failover.rules import RulesAdviser, RuleSet, load_rules, rules_from_table
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.telemetry.run_dir import RunDirectory


class FailoverSettings(Protocol):
    """What both the command line's settings and the library's configuration say about failures."""

    @property
    def dynamic_failover_extension(self) -> str | None: ...
    @property
    def failover_rules(self) -> str | None: ...
    @property
    def failover_table(self) -> Mapping[str, object]: ...
    @property
    def failover_timeout(self) -> float: ...
    @property
    def failover_on_error(self) -> str: ...
    @property
    def restart_budget_reset(self) -> str: ...
    @property
    def interactive(self) -> bool: ...


class Advisers:
    """The advisers of one run. `ready` before the first question; closed with the chain."""

    def __init__(
        self,
        settings: FailoverSettings,
        roots: Sequence[Path],
        record: Recorder,
        run_directory: RunDirectory | None,
    ) -> None:
        """Reads the rules and starts the extension's process. Raises ConfigError, UsageError."""
        self._run_directory = run_directory
        parse_budget_reset(settings.restart_budget_reset)
        rules = _rules(settings)
        terminal = open_terminal() if settings.interactive else None
        self.extension = _extension(settings, roots, record, run_directory)
        asked: list[Adviser] = [] if self.extension is None else [self.extension]
        self.chain = Chain([*asked, RulesAdviser(rules)])
        if terminal is not None:
            person = TerminalAdviser(self.chain, terminal, self._log_of, self._frames_of)
            self.chain = Chain([person])

    def ready(self) -> None:
        """Wait until the extension is constructed. Raises PluginError."""
        if self.extension is not None:
            self.extension.ready()

    def _log_of(self, info: AgentFailureInfo) -> Path | None:
        root = info.root_cause
        directory = None if root is None else self._directory_of(info, root)
        return None if directory is None else directory / "stderr.log"

    def _frames_of(self, info: AgentFailureInfo, worker: WorkerFailure) -> str:
        from dlrover_cli.agent.facts import read_exception  # torch is loaded by now

        directory = self._directory_of(info, worker)
        recorded = None if directory is None else read_exception(directory)
        if recorded is None:
            return ""
        return "\n".join(
            line
            for frame in recorded.frames
            for line in (
                f"{frame.get('file')}:{frame.get('line')} in {frame.get('function')}",
                *(f"    {name} = {value}" for name, value in frame.get("locals", {}).items()),
            )
        )

    def _directory_of(self, info: AgentFailureInfo, worker: WorkerFailure) -> Path | None:
        if self._run_directory is None:
            return None
        return self._run_directory.logs / f"attempt_{info.attempt}" / str(worker.global_rank)


def _rules(settings: FailoverSettings) -> RuleSet:
    rules = RuleSet()
    if settings.failover_rules is not None:
        rules = load_rules(Path(settings.failover_rules))
    if settings.failover_table:
        rules = rules.followed_by(rules_from_table(settings.failover_table, _table_name()))
    return rules


def _table_name() -> str:
    own = Path("dlrover.toml").exists()
    return "dlrover.toml:failover" if own else "pyproject.toml:tool.dlrover.failover"


def _extension(
    settings: FailoverSettings,
    roots: Sequence[Path],
    record: Recorder,
    run_directory: RunDirectory | None,
) -> ExtensionAdviser | None:
    if settings.dynamic_failover_extension is None:
        return None
    adviser = ExtensionAdviser(
        settings.dynamic_failover_extension,
        roots,
        timeout=settings.failover_timeout,
        on_error=cast(Literal["normal", "abort"], settings.failover_on_error),
        record=record,
        log_path=None if run_directory is None else run_directory.node / "extension.log",
    )
    adviser.begin()
    return adviser
