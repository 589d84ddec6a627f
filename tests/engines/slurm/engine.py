"""A Slurm of the tests' own: munged, slurmctld and three slurmd, on loopback and on free ports.

It keeps accounts where a database for them is installed. Nothing of the system's Slurm is read or
written. Daemons are ended by their pids.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines.slurm import accounting
from tests.engines.slurm.accounting import Accounting
from tests.harness.waiting import eventually

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
NODES = ("n1", "n2", "n3")
_CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge.sock,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={port}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
{accounting}SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,requeue_delay=1
SlurmdTimeout=3
SlurmctldTimeout=5
MessageTimeout=5
InactiveLimit=0
KillWait=5
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
JobRequeue=1
RequeueExit=82
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 \
RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing_programs() -> list[str]:
    """What is not installed of it."""
    return [name for name in PROGRAMS if shutil.which(name, path=_search_path()) is None]


@dataclass(slots=True)
class Slurm:
    """One controller and its nodes; `start` and `close` belong to a fixture."""

    directory: Path
    _daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """What Slurm's commands have to find in theirs."""
        return {"SLURM_CONF": str(self.config), "PATH": _search_path()}

    def start(self) -> None:
        for name in ("state", *NODES):
            (self.directory / name).mkdir(mode=0o755)
        self.directory.chmod(0o755)
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        port, first = _free_ports(5)
        accounts = Accounting(self.directory, _user_name(), first + 3)
        self.config.write_text(
            _CONFIG.format(
                host=socket.gethostname().partition(".")[0],
                user=_user_name(),
                directory=self.directory,
                port=port,
                first=first,
                last=first + 2,
                accounting=accounts.settings if self.keeps_accounts else "",
            )
        )
        self._start_munge()
        if self.keeps_accounts:
            accounts.start(self._daemon, _search_path())
        self._start_controller()
        for node in NODES:
            self.start_node(node)
        self._wait_for_nodes()

    @property
    def keeps_accounts(self) -> bool:
        return not accounting.missing(_search_path())

    def forget_jobs(self) -> None:
        """Start the controller afresh: it knows of no job, and only the accounting does."""
        daemon = self._daemons.pop("slurmctld")
        daemon.terminate()
        daemon.wait(20)
        self._start_controller()
        self._wait_for_nodes()

    def start_node(self, node: str) -> None:
        self._daemon(node, ["slurmd", "-D", "-N", node, "-f", str(self.config)])

    def states(self) -> dict[str, str]:
        """What the controller says of each node; empty if it does not answer."""
        found = self.run("sinfo", "--noheader", "--Node", "--format=%N %t")
        return dict(line.split() for line in found.splitlines())  # type: ignore[misc]

    def run(self, *command: str, timeout: float = 20.0) -> str:
        """One of Slurm's commands; its output, empty if it failed."""
        environ = {**os.environ, **self.environ}
        finished = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=timeout, check=False
        )
        return finished.stdout if finished.returncode == 0 else ""

    def lose_node(self, node: str) -> None:
        """As if its machine had lost power: slurmd, the steps' daemons and all tasks are killed."""
        daemon = self._daemons.pop(node)
        steps = [each for each in self._step_daemons() if _is_of(each, node)]
        pids = _descendants(steps)
        daemon.send_signal(signal.SIGSTOP)  # or it would report what it sees dying
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.kill()
        daemon.wait()

    def heal(self) -> None:
        """All nodes are there and idle, and no job is known to run."""
        for node in NODES:
            if node not in self._daemons:
                self.start_node(node)
        jobs = self.run("squeue", "--noheader", "--format=%i").split()
        if jobs:
            self.run("scancel", *jobs)
        eventually(
            lambda: (
                not self.run("squeue", "--noheader", "--format=%i")
                and self.states() == dict.fromkeys(NODES, "idle")
            ),
            30,
            what=f"an idle Slurm ({self.states()})",
        )

    def close(self) -> None:
        """End every daemon, and every step that is left."""
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        # Only now does nobody begin another one.
        for pid in _descendants(self._step_daemons()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start_controller(self) -> None:
        self._daemon("slurmctld", ["slurmctld", "-D", "-c", "-f", str(self.config)])

    def _wait_for_nodes(self) -> None:
        eventually(lambda: self.states() == dict.fromkeys(NODES, "idle"), 20, what="three nodes")

    def _start_munge(self) -> None:
        own = self.directory
        files = {
            "socket": own / "munge.sock",
            "key-file": own / "munge.key",
            "log-file": own / "munge.log",
            "pid-file": own / "munge.pid",
            "seed-file": own / "munge.seed",
        }
        options = [f"--{name}={path}" for name, path in files.items()]
        self._daemon("munged", ["munged", "--foreground", "--force", *options])
        eventually((own / "munge.sock").exists, 10, what="munge's socket")

    def _daemon(self, name: str, command: Sequence[str]) -> None:
        environ = {"PATH": _search_path(), "SLURM_CONF": str(self.config)}
        with (self.directory / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _step_daemons(self) -> list[int]:
        """They are no children of slurmd for long."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                is_ours = str(self.config).encode() in (entry / "environ").read_bytes()
                if command.startswith(b"slurmstepd") and is_ours:
                    found.append(int(entry.name))
        return found


def _is_of(daemon: int, node: str) -> bool:
    """Only its tasks know which node it is."""
    wanted = f"SLURMD_NODENAME={node}".encode()
    for pid in _descendants([daemon]):
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
    return False


def _descendants(pids: list[int]) -> list[int]:
    found = list(pids)
    for pid in found:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                children = (task / "children").read_text().split()
                found += [int(child) for child in children if int(child) not in found]
    return found


def _free_ports(count: int) -> tuple[int, int]:
    """One port, and the first of a row of others."""
    for _ in range(50):
        sockets = []
        try:
            sockets.append(socket.create_server(("127.0.0.1", 0)))
            first = int(sockets[0].getsockname()[1])
            sockets += [
                socket.create_server(("127.0.0.1", first + number)) for number in range(1, count)
            ]
            return first, first + 1
        except (OSError, OverflowError):
            continue
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no row of free ports was found")


def _user_name() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _search_path() -> str:
    return os.pathsep.join(filter(None, (os.environ.get("PATH"), "/usr/sbin", "/sbin")))
