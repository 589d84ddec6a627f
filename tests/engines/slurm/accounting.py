"""Slurm's accounting for the tests: a MariaDB and a slurmdbd, in a directory and on a socket."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness.waiting import eventually

PROGRAMS = ("mariadbd", "slurmdbd", "sacct")
_SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
_CONFIG = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
LogFile={directory}/slurmdbd.log
PidFile={directory}/slurmdbd.pid
"""


def missing(path: str) -> list[str]:
    """What is not installed of it."""
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


@dataclass(frozen=True, slots=True)
class Accounting:
    """`start` needs a munged in the same directory; daemons belong to who starts them."""

    directory: Path
    user: str
    port: int

    @property
    def settings(self) -> str:
        """What slurm.conf says of it."""
        return (
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={self.port}\n"
            f"AccountingStoragePass={self.directory}/munge.sock\n"
        )

    def start(self, daemon: Callable[[str, Sequence[str]], None], path: str) -> None:
        database = [
            *(shutil.which("mariadbd", path=path) or "mariadbd", "--no-defaults"),
            *(f"--datadir={self.directory}/database", f"--user={self.user}"),
            *("--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0"),
            *("--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M"),
        ]
        (self.directory / "database").mkdir(mode=0o700)
        subprocess.run(
            [*database, "--bootstrap"],
            input=f"create database mysql;\nuse mysql;\n{_SYSTEM_TABLES.read_text()}",
            text=True,
            capture_output=True,
            timeout=60,
            check=True,
        )
        where = self.directory / "database.sock"
        daemon(
            "mariadbd",
            [*database, "--skip-networking", "--skip-grant-tables", f"--socket={where}"],
        )
        eventually(lambda: _answers(socket.AF_UNIX, str(where)), 20, what="a database")
        config = self.directory / "slurmdbd.conf"
        config.write_text(_CONFIG.format(directory=self.directory, port=self.port, user=self.user))
        config.chmod(0o600)
        daemon("slurmdbd", ["env", f"MYSQL_UNIX_PORT={where}", "slurmdbd", "-D"])
        here = ("127.0.0.1", self.port)
        eventually(lambda: _answers(socket.AF_INET, here), 20, what="a slurmdbd")


def _answers(family: socket.AddressFamily, address: object) -> bool:
    with socket.socket(family) as connection, suppress(OSError):
        connection.connect(address)  # type: ignore[arg-type]
        return True
    return False
