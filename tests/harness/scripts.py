"""Worker scripts for tests: small programs that say in a file or a line what happened to them.

Those without "gloo" in their name do not import torch and start quickly. Each method writes one
script and returns its path. Scripts that leave facts write them to `directory`, one JSON file per
rank and attempt, which `facts` reads back.
"""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# At the top of every script: who am I, and how to leave a fact behind (whole or not at all).
PRELUDE = """\
import json, os, signal, subprocess, sys, time

rank = int(os.environ.get("RANK", "0"))
local_rank = int(os.environ.get("LOCAL_RANK", "0"))
world_size = int(os.environ.get("WORLD_SIZE", "1"))
attempt = int(os.environ.get("DLROVER_ATTEMPT", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


def say(text):
    # One write call, so that lines of several ranks do not mix.
    os.write(1, (text + "\\n").encode())


def leave(kind, **facts):
    facts |= {"rank": rank, "attempt": attempt, "pid": os.getpid(), "time": time.monotonic()}
    path = os.path.join(DIRECTORY, f"{kind}.{rank}.{attempt}.json")
    with open(path + ".new", "w") as file:
        json.dump(facts, file)
    os.replace(path + ".new", path)


"""

FAIL = """\
def fail():
    if HOW == "raise":
        raise RuntimeError(f"rank {rank} fails on purpose")
    if isinstance(HOW, int):
        sys.exit(HOW)
    os.kill(os.getpid(), getattr(signal, HOW))
    time.sleep(60)


"""


@dataclass(frozen=True, slots=True)
class Scripts:
    """Writes worker scripts into a directory and reads back what they left there."""

    directory: Path

    def write(self, name: str, body: str, **constants: object) -> Path:
        """Any script: the prelude, the constants by name, the body."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        constants = {"DIRECTORY": str(self.directory), **constants}
        header = "".join(f"{key} = {value!r}\n" for key, value in constants.items())
        path.write_text(PRELUDE + header + "\n" + textwrap.dedent(body))
        return path

    def facts(self, kind: str) -> list[dict[str, Any]]:
        """What scripts left under this kind, ordered by attempt and rank."""
        found = [json.loads(path.read_text()) for path in self.directory.glob(f"{kind}.*.*.json")]
        return sorted(found, key=lambda facts: (facts["attempt"], facts["rank"]))

    def environment(self) -> Path:
        """Leaves `environment`: env, argv, cwd, session, parent, ignored signals, descriptors."""
        return self.write(
            "environment.py",
            """
            ignored = [s for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN]
            leave(
                "environment",
                env=dict(os.environ),
                argv=sys.argv,
                orig_argv=sys.orig_argv,
                cwd=os.getcwd(),
                session=os.getsid(0),
                parent=os.getppid(),
                ignored=sorted(int(s) for s in ignored),
                descriptors=sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
            )
            """,
        )

    def hello(self) -> Path:
        """Prints `hello from rank R of N` on stdout and `warning from rank R` on stderr."""
        return self.write(
            "hello.py",
            """
            say(f"hello from rank {rank} of {world_size}")
            os.write(2, f"warning from rank {rank}\\n".encode())
            """,
        )

    def crash(
        self,
        *,
        rank: int = 0,
        attempts: int = 1,
        how: int | str = 3,
        others: str = "finish",
        delay: float = 0.0,
    ) -> Path:
        """One rank fails in its first attempts; the others finish or wait to be stopped.

        how: an exit code, "raise", or a signal's name such as "SIGSEGV".
        others: "finish" or "wait".
        Leaves `start`, and `end` where a worker gets to its end.
        """
        body = FAIL + textwrap.dedent(
            """
            leave("start")
            if attempt < ATTEMPTS:
                if rank == CRASH_RANK:
                    time.sleep(DELAY)
                    say(f"rank {rank} crashes in attempt {attempt}")
                    fail()
                if OTHERS == "wait":
                    time.sleep(60)
            leave("end")
            """
        )
        return self.write(
            "crash.py",
            body,
            CRASH_RANK=rank,
            ATTEMPTS=attempts,
            HOW=how,
            OTHERS=others,
            DELAY=delay,
        )

    def wait(self, seconds: float = 60.0) -> Path:
        """Prints `ready R` and sleeps; leaves `start`."""
        return self.write(
            "wait.py",
            'leave("start")\nsay(f"ready {rank}")\ntime.sleep(SECONDS)\n',
            SECONDS=seconds,
        )

    def ignore_sigterm(self) -> Path:
        """Prints `ready R`, does not go on SIGTERM, SIGINT, SIGHUP; leaves `start`."""
        return self.write(
            "ignore_sigterm.py",
            """
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            leave("start")
            say(f"ready {rank}")
            while True:
                time.sleep(60)
            """,
        )

    def emergency_checkpoint(self, seconds: float = 0.5) -> Path:
        """Prints `ready R`; on SIGTERM takes its time, leaves `checkpoint` and exits 0."""
        return self.write(
            "emergency_checkpoint.py",
            """
            def save(number, frame):
                time.sleep(SECONDS)
                leave("checkpoint", signal=number)
                sys.exit(0)

            signal.signal(signal.SIGTERM, save)
            leave("start")
            say(f"ready {rank}")
            while True:
                time.sleep(60)
            """,
            SECONDS=seconds,
        )

    def grandchildren(self, count: int = 2, *, new_session: bool = False) -> Path:
        """Starts sleeping children that ignore SIGTERM, prints `ready R`, sleeps.

        Leaves `start` with the children's pids.
        """
        return self.write(
            "grandchildren.py",
            """
            sleeper = (
                "import signal, time; signal.signal(15, signal.SIG_IGN);"
                "print(flush=True); time.sleep(60)"
            )
            children = [
                subprocess.Popen(
                    [sys.executable, "-S", "-c", sleeper],
                    start_new_session=NEW_SESSION,
                    stdout=subprocess.PIPE,
                )
                for _ in range(COUNT)
            ]
            for child in children:
                child.stdout.readline()
            leave("start", children=[child.pid for child in children])
            say(f"ready {rank}")
            time.sleep(60)
            """,
            COUNT=count,
            NEW_SESSION=new_session,
        )

    def gloo_all_reduce(
        self,
        *,
        steps: int = 1,
        crash_rank: int | None = None,
        crash_step: int = 0,
        attempts: int = 1,
        how: int | str = 3,
    ) -> Path:
        """Sums ranks with gloo for some steps; one rank may fail at a step of its first attempts.

        Leaves `sum` (the last result) at the end; prints `sum S` from rank 0.
        """
        body = FAIL + textwrap.dedent(
            """
            import torch
            import torch.distributed as dist

            dist.init_process_group("gloo")
            for step in range(STEPS):
                if rank == CRASH_RANK and step == CRASH_STEP and attempt < ATTEMPTS:
                    fail()
                total = torch.tensor([float(rank)])
                dist.all_reduce(total)
            leave("sum", sum=total.item(), world_size=dist.get_world_size())
            if rank == 0:
                say(f"sum {total.item():g}")
            dist.destroy_process_group()
            """
        )
        return self.write(
            "gloo_all_reduce.py",
            body,
            STEPS=steps,
            CRASH_RANK=crash_rank,
            CRASH_STEP=crash_step,
            ATTEMPTS=attempts,
            HOW=how,
        )
