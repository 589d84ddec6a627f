"""The ledger's file: private, with the journal its disk allows, and replaced when it is broken."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs import ledger_file
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.ledger_file import LedgerBroken
from tests.jobs.runs import move_to, new_run, row


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "dlrover"


def journal_mode(state: Path) -> str:
    with closing(sqlite3.connect(state / "ledger.db")) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        return str(mode)


def test_everything_is_private_whatever_the_umask(state: Path) -> None:
    before = os.umask(0)
    try:
        with Ledger.open(state) as ledger:
            ledger.add(row(state, "r1"))
            modes = {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()}
    finally:
        os.umask(before)
    assert state.stat().st_mode & 0o777 == 0o700
    assert modes.keys() >= {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
    assert set(modes.values()) == {0o600}


def test_what_others_could_read_is_made_private(state: Path) -> None:
    Ledger.open(state).close()
    state.chmod(0o755)
    (state / "ledger.db").chmod(0o644)
    Ledger.open(state).close()
    assert state.stat().st_mode & 0o777 == 0o700
    assert (state / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_it_writes_ahead_on_a_local_disk(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "is_on_network", lambda directory: False)
    Ledger.open(state).close()
    assert journal_mode(state) == "wal"


def test_it_shares_no_memory_on_a_network(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "is_on_network", lambda directory: True)
    with Ledger.open(state) as ledger:
        ledger.add(row(state, "r1"))
        assert not (state / "ledger.db-shm").exists()
    assert journal_mode(state) == "delete"


def test_a_directory_that_has_moved_to_a_network_gives_up_writing_ahead(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "is_on_network", lambda directory: False)
    with Ledger.open(state) as ledger:
        ledger.add(row(state, "r1"))
    monkeypatch.setattr(ledger_file, "is_on_network", lambda directory: True)
    with Ledger.open(state) as ledger:
        assert ledger.run_ids() == {"r1"}
    assert journal_mode(state) == "delete"


def test_a_newer_versions_ledger_is_left_alone(state: Path) -> None:
    Ledger.open(state).close()
    with closing(sqlite3.connect(state / "ledger.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = (state / "ledger.db").read_bytes()
    with pytest.raises(LaunchError, match="was written by a newer version") as error:
        Ledger.open(state)
    assert error.value.hint is not None
    assert (state / "ledger.db").read_bytes() == before


def test_an_empty_file_becomes_a_ledger(state: Path) -> None:
    state.mkdir()
    (state / "ledger.db").touch()
    with Ledger.open(state) as ledger:
        assert ledger.rows() == []


def not_a_database(path: Path) -> None:
    path.write_bytes(b"no database at all " * 1000)


def another_programs(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (distance INTEGER)")


def other_columns(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE runs DROP COLUMN reason")


def no_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE runs")


def overwritten_inside(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        *(not_a_database, another_programs, other_columns, no_table, overwritten_inside, cut_off),
        *(a_directory, a_pipe),
    ],
)
def test_a_broken_ledger_is_moved_aside_and_built_anew(
    state: Path, damage: Callable[[Path], None]
) -> None:
    with Ledger.open(state) as ledger:
        for number in range(40):
            with new_run(state, f"r{number}", ledger) as record:
                move_to(record, RunState.FINISHED)
        expected = ledger.rows()
    damage(state / "ledger.db")
    problems: list[str] = []
    with Ledger.open(state, problems.append) as ledger:
        heal(ledger, state, on_problem=problems.append)
        found = ledger.rows()
    assert [each.run_id for each in found] == [each.run_id for each in expected]
    assert all(each.state is RunState.FINISHED for each in found)
    assert len(problems) == 1
    assert "is broken" in problems[0]
    assert "built anew" in problems[0]
    aside = [path.name for path in state.iterdir() if ".broken-" in path.name]
    assert any(name in problems[0] for name in aside)


def test_one_that_breaks_while_it_is_in_use_is_told_and_replaced(state: Path) -> None:
    problems: list[str] = []
    with Ledger.open(state, problems.append) as ledger:
        new_run(state, "r1", ledger).close()
        ledger.close()
        overwritten_inside(state / "ledger.db")
        with pytest.raises(LedgerBroken) as error:
            ledger.rows()
        assert error.value.hint is not None
        heal(ledger, state)
        assert ledger.run_ids() == {"r1"}
    assert len(problems) == 1


def test_a_sound_one_is_not_moved_aside_because_others_have_it_locked(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file, "is_on_network", lambda directory: True)
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.01)
    Ledger.open(state).close()
    with closing(sqlite3.connect(state / "ledger.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LaunchError, match="was locked by others"):
            ledger_file.set_aside(state / "ledger.db", LedgerBroken("it seems to be broken"))
    assert ledger_file.set_aside(state / "ledger.db", LedgerBroken("x")).startswith("x; another")
    assert not list(state.glob("*.broken-*"))


def test_a_ledger_that_was_removed_is_made_again_by_who_has_it_open(state: Path) -> None:
    with Ledger.open(state) as ledger:
        ledger.add(row(state, "r1"))
        for path in state.glob("ledger.db*"):
            path.unlink()
        ledger.add(row(state, "r2"))
        assert ledger.run_ids() == {"r2"}
    with Ledger.open(state) as ledger:
        assert ledger.run_ids() == {"r2"}


def test_a_forked_child_has_a_connection_of_its_own(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked in the middle of its parent's transaction, it has to wait for it like anybody."""
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.01)
    with Ledger.open(state) as ledger:
        ledger.add(row(state, "r1"))
        with ledger._file.writing():
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    ledger.add(row(state, "r2"))
                except LaunchError as error:
                    code = 0 if "was locked by others" in error.message else 2
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        ledger.add(row(state, "r3"))
        assert ledger.run_ids() == {"r1", "r3"}


def test_a_place_where_no_directory_can_be_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="cannot be used: Not a directory") as error:
        Ledger.open(tmp_path / "file" / "dlrover")
    assert error.value.hint is not None


# A disk of its own, since nothing is read-only or full for root otherwise.
ON_A_SMALL_DISK = """\
set -e
mount -t tmpfs -o size=256k none "$1"
exec "$2" -c "$3" "$1" $4
"""
FILL_IT = """\
import os, sys
from dataclasses import replace
from pathlib import Path
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.contracts.run_states import RunState
from tests.jobs.runs import new_run, row

state = Path(sys.argv[1]) / "dlrover"
ledger = Ledger.open(state)
record = new_run(state, "r1", ledger)
with open(state / "filler", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
"""
FULL = (
    FILL_IT
    + """
try:
    ledger.add_all(row(state, f"long-{number}", reason="x" * 4000) for number in range(100))
except LaunchError as error:
    print(error.message)
print(ledger.run_ids())
"""
)
FULL_FROM_THE_START = (
    FILL_IT
    + """
ledger.close()
for path in state.glob("ledger.db*"):
    path.rename(path.with_name("kept-" + path.name))
try:
    Ledger.open(state)
except LaunchError as error:
    print(error.message)
"""
)
READ_ONLY = """\
import subprocess, sys
from pathlib import Path
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.healing import heal
from dlrover_cli.jobs.ledger import Ledger
from tests.jobs.runs import new_run, row

state = Path(sys.argv[1]) / "dlrover"
ledger = Ledger.open(state)
new_run(state, "r1", ledger).close()
new_run(state, "r2", None).close()
if sys.argv[2:] == ["closed"]:
    ledger.close()
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
try:
    heal(ledger, state, on_problem=print)
    print(ledger.run_ids())
    ledger.add(row(state, "r3"))
except LaunchError as error:
    print(error.message)
"""


def on_a_small_disk(directory: Path, program: str, *args: str) -> str:
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", ON_A_SMALL_DISK]
    done = subprocess.run(
        [*command, "sh", str(directory), sys.executable, program, *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no disk of its own here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_told_in_a_sentence_and_what_was_there_stays(tmp_path: Path) -> None:
    told = on_a_small_disk(tmp_path, FULL).splitlines()
    assert told[0].endswith("cannot be used: database or disk is full")
    assert told[1] == "{'r1'}"


def test_a_disk_that_is_full_from_the_start_is_told_in_a_sentence(tmp_path: Path) -> None:
    (told,) = on_a_small_disk(tmp_path, FULL_FROM_THE_START).splitlines()
    assert "the ledger" in told
    assert "cannot be used" in told


def test_a_read_only_disk_is_told_in_a_sentence(tmp_path: Path) -> None:
    (told,) = on_a_small_disk(tmp_path, READ_ONLY, "closed").splitlines()
    place = f"{tmp_path}/dlrover/ledger.db"
    assert told == f"the ledger {place} cannot be used: its directory cannot be written"


def test_a_ledger_that_cannot_be_healed_shows_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(tmp_path) as ledger:
        new_run(tmp_path, "r1", ledger).close()
        new_run(tmp_path, "r2", None).close()
        monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.01)
        ledger.close()
        problems: list[str] = []
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            heal(ledger, tmp_path, on_problem=problems.append)
            assert ledger.run_ids() == {"r1"}
    assert len(problems) == 1
    assert "was locked by others" in problems[0]
