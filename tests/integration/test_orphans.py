"""Who outlives whom: nothing outlives a launcher that is killed, background work a success."""

import json
import os
import signal

import pytest

from tests.harness.launcher import Running
from tests.harness.processes import is_alive, process_info
from tests.harness.waiting import eventually

TWO = ["--nproc-per-node=2"]

# A grandchild, and a daemon: forked twice, in a session of its own, with no stream of ours.
FAMILY = """
def daemonise():
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            os.write(write, str(os.getpid()).encode())
            os.close(write)
            time.sleep(60)
        os._exit(0)
    os.close(write)
    return int(os.read(read, 20))

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
family = [child.pid, daemonise()]
"""


def family(scripts, then):
    """A script whose ranks leave `family` with the pids of a child and a daemon."""
    body = FAMILY + 'leave("family", pids=family)\nsay(f"ready {rank}")\n' + then
    return scripts.write("family.py", body)


def everybody(scripts, attempt=0):
    """The pids of all workers of an attempt and of what they started."""
    facts = [fact for fact in scripts.facts("family") if fact["attempt"] == attempt]
    return [pid for fact in facts for pid in (fact["pid"], *fact["pids"])]


def all_ready(running: Running, count: int = 2) -> Running:
    for rank in range(count):
        running.wait_for(f"ready {rank}")
    return running


def nursery_of(scripts) -> int:
    """The pid of the workers' parent."""
    [fact, *_] = scripts.facts("family")
    return process_info(fact["pid"]).parent


# ---- a launcher that dies ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda n: n.name)
def test_nothing_outlives_a_killed_launcher(start, scripts, number):
    running = all_ready(start([*TWO, family(scripts, "time.sleep(60)")]))
    pids = everybody(scripts)
    assert len(pids) == 6
    assert all(map(is_alive, pids))
    running.signal(number)
    assert running.finish().returncode == -number
    eventually(lambda: not running.processes(), what="the end of all processes")
    assert not any(map(is_alive, pids))


def test_nothing_outlives_a_launcher_that_is_killed_during_its_shutdown(start, scripts):
    running = all_ready(start(["--shutdown-timeout=50", *TWO, family(scripts, "time.sleep(60)")]))
    running.signal(signal.SIGTERM)
    running.wait_for(lambda _: '"workers_stopping"' in journal(scripts))
    running.kill()
    running.finish()
    eventually(lambda: not running.processes(), what="the end of all processes")


def test_nothing_outlives_a_launcher_that_is_killed_in_rendezvous(start, scripts):
    argv = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", scripts.wait()]
    running = start(argv)
    running.wait_for(lambda _: '"rendezvous_started"' in journal(scripts))
    running.kill()
    running.finish()
    eventually(lambda: not running.processes(), what="the end of all processes")


@pytest.mark.full
@pytest.mark.parametrize("delay", [0.02 * step for step in range(25)])
def test_nothing_outlives_a_launcher_killed_at_any_moment(start, scripts, delay):
    running = start([*TWO, family(scripts, "time.sleep(0.3)")])
    running.poll(delay)
    running.kill()
    running.finish()
    eventually(lambda: not running.processes(), what="the end of all processes")


# ---- a nursery that dies -----------------------------------------------------------------------


def test_the_nurserys_death_is_a_failure_that_a_restart_mends(start, scripts):
    running = start(["--max-restarts=1", *TWO, family(scripts, "time.sleep(0 if attempt else 60)")])
    all_ready(running)
    pids = everybody(scripts)
    daemons = [fact["pids"][1] for fact in scripts.facts("family")]
    os.kill(nursery_of(scripts), signal.SIGKILL)
    finished = running.finish()
    assert finished.returncode == 0, finished
    assert "Traceback" not in finished.stderr
    assert len(scripts.facts("family")) == 4
    # Daemons left their session and their parent was killed with everything it knew.
    assert not any(is_alive(pid) for pid in pids if pid not in daemons)
    for pid in [*daemons, *everybody(scripts, 1)]:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_the_nurserys_death_without_restarts_is_a_worker_killed(start, scripts):
    running = all_ready(start([*TWO, scripts.grandchildren(1)]))
    [fact, *_] = scripts.facts("start")
    os.kill(process_info(fact["pid"]).parent, signal.SIGKILL)
    finished = running.finish()
    assert finished.returncode == 128 + signal.SIGKILL, finished
    assert running.processes() == []


# ---- restarts ----------------------------------------------------------------------------------


def test_workers_start_again_only_when_all_of_the_old_ones_are_gone(launch, scripts):
    """They may hold the memory of a device."""
    script = scripts.write(
        "restart.py",
        FAMILY
        + """
leave("family", pids=family)
before = [os.path.join(DIRECTORY, f"family.{r}.{attempt - 1}.json") for r in range(world_size)]
if attempt > 0:
    facts = [json.load(open(path)) for path in before]
    pids = [pid for each in facts for pid in (each["pid"], *each["pids"])]
    leave("survivors", pids=[pid for pid in pids if os.path.exists(f"/proc/{pid}")])
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    sys.exit(0)
others = [os.path.join(DIRECTORY, f"family.{r}.{attempt}.json") for r in range(world_size)]
while not all(map(os.path.exists, others)):
    time.sleep(0.01)
sys.exit(3 if rank == 0 else time.sleep(60))
""",
    )
    finished = launch(["--max-restarts=1", *TWO, script])
    assert finished.returncode == 0, finished
    assert [fact["pids"] for fact in scripts.facts("survivors")] == [[], []]


def test_what_a_failed_job_leaves_behind_is_killed(launch, scripts):
    script = family(scripts, "sys.exit(3)")
    finished = launch([*TWO, script])
    assert finished.returncode == 3, finished
    assert not any(map(is_alive, everybody(scripts)))


# ---- success -----------------------------------------------------------------------------------

BACKGROUND = """
code = (
    "import os, signal, time\\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\\n"
    "os.write(1, b'background begins\\\\n')\\n"
    "signal.sigwait([signal.SIGUSR1])\\n"
    "os.write(1, b'still writing to stdout\\\\n')\\n"
    "os.write(2, b'still writing to stderr\\\\n')\\n"
    "time.sleep(60)\\n"
)
child = subprocess.Popen([sys.executable, "-S", "-c", code])
leave("background", child=child.pid)
"""


def test_background_work_of_a_successful_script_goes_on_as_under_torchrun(start, scripts):
    running = start(["--nproc-per-node=1", scripts.write("background.py", BACKGROUND)])
    finished = running.finish()
    assert finished.returncode == 0, finished
    [fact] = scripts.facts("background")
    eventually(lambda: "background begins" in running.stdout)
    os.kill(fact["child"], signal.SIGUSR1)
    eventually(lambda: "still writing to stdout" in running.stdout)
    eventually(lambda: "still writing to stderr" in running.stderr)
    assert is_alive(fact["child"])
    os.kill(fact["child"], signal.SIGKILL)
    # Whoever served its stderr goes with it.
    eventually(lambda: not running.processes(), what="the end of all processes")


def test_a_success_without_background_work_leaves_nothing(start, scripts):
    running = start([*TWO, scripts.hello()])
    assert running.finish().returncode == 0
    assert running.processes() == []


def journal(scripts) -> str:
    """All events so far."""
    paths = (scripts.directory / "state").glob("dlrover/runs/*/nodes/*/events.jsonl")
    return "".join(path.read_text() for path in paths)


def test_the_journal_of_a_killed_launcher_can_be_read(start, scripts):
    running = all_ready(start([*TWO, scripts.wait()]))
    eventually(lambda: "workers_started" in journal(scripts))
    running.kill()
    running.finish()
    eventually(lambda: not running.processes(), what="the end of all processes")
    kinds = [json.loads(line)["kind"] for line in journal(scripts).splitlines()]
    assert kinds[0] == "run_started"
    assert "workers_started" in kinds
