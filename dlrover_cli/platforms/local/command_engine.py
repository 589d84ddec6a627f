"""local × cmd_line: a command as a list of texts, started as it is; by a shell only if asked."""

from dlrover_cli.contracts.jobs import AbstractEngine, BaseJobConfig
from dlrover_cli.platforms.local.local_job import (
    COMMON_PROPERTIES,
    LocalJob,
    LocalPlugin,
)
from dlrover_cli.platforms.local.properties import Properties

_SHELL = ("/bin/sh", "-c")


class CommandEngine(AbstractEngine):
    """Any command."""

    @staticmethod
    def engine() -> str:
        return "cmd_line"


class LocalCommandConfig(BaseJobConfig):
    """Properties: `command`, `shell`, and those of every local job."""


class LocalCommandPlugin(LocalPlugin):
    """`command: [python, prepare.py, --out, data]`, or `shell: true` and one text for the shell."""

    def fill_in(self, job: LocalJob, given: Properties) -> None:
        given.refuse_others("command", "shell", *COMMON_PROPERTIES)
        job.argv = _command(given)

    def job_config_type(self) -> type[LocalCommandConfig]:
        return LocalCommandConfig

    def engine(self) -> type[CommandEngine]:
        return CommandEngine


def _command(given: Properties) -> list[str]:
    is_text, is_for_shell = given.is_text("command"), given.flag("shell")
    if is_for_shell and not is_text:
        hint = "Write it like this: command: make data | tee log; or take shell out."
        raise given.wrong("command", "must be one text when it is for a shell", hint)
    if is_for_shell:
        return [*_SHELL, given.text("command")]
    if is_text:
        listed = ", ".join(given.text("command").split())
        hint = f"Write it like this: command: [{listed}]; or add shell: true."
        raise given.wrong("command", "takes a list of texts, unless it is for a shell", hint)
    command = given.texts("command")
    if not command or not command[0]:
        hint = "Write it like this: command: [program, argument]"
        raise given.wrong("command", "names no program", hint)
    return command
