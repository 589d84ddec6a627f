"""What the tests of one layer of workers share: an inbox and a starter that are closed again."""

from collections.abc import Iterator

import pytest

from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.inbox import Inbox


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.close()


@pytest.fixture
def problems() -> list[str]:
    """The lines that would have gone to stderr."""
    return []


@pytest.fixture
def starter(process_token: str, problems: list[str]) -> Iterator[CommandStarter]:
    starter = CommandStarter(problems.append)
    yield starter
    starter.close(leave_survivors=False)
