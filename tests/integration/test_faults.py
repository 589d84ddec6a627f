"""Whatever a user can get wrong ends in one sentence and one hint, and leaves nothing behind."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from tests.harness.launcher import Finished, console_script
from tests.harness.scripts import Scripts
from tests.integration.jobs import free_port, run_in

Launch = Callable[..., Finished]
ERROR = "dlrover-run: error: "
HINT = "hint: "


def assert_refused(finished: Finished, code: int, *words: str) -> None:
    """It ended with this code, exactly one sentence with these words, and one hint below it."""
    assert finished.returncode == code, finished
    assert "Traceback" not in finished.stderr, finished
    lines = finished.stderr.splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
    hints = [number for number, line in enumerate(lines) if line.startswith(HINT)]
    assert len(errors) == 1, finished
    assert hints == [errors[0] + 1], finished
    said = "\n".join(lines[errors[0] : hints[0] + 1])
    for word in words:
        assert word in said, finished
    assert finished.stdout == "", finished


def assert_refused_before_anything_else(finished: Finished, *words: str) -> None:
    """And there is no other line on stderr."""
    assert_refused(finished, 2, *words)
    assert len(finished.stderr.splitlines()) == 2, finished


class TestScript:
    """What is to be run is not there or cannot be run."""

    def test_a_missing_script_is_met_with_the_nearest_name(
        self, launch: Launch, scripts: Scripts
    ) -> None:
        scripts.hello()
        assert_refused_before_anything_else(
            launch(["--nproc-per-node=2", "helo.py"]), "no script 'helo.py'", "'hello.py'?"
        )

    @pytest.mark.parametrize(
        "script,words",
        [
            ("nowhere/train.py", "no directory 'nowhere'"),
            ("folder", "a directory without a __main__.py"),
            ("hello.py/x", "there is no script"),
            ("x" * 300 + ".py", "File name too long"),
        ],
    )
    def test_a_script_that_is_no_file(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, script: str, words: str
    ) -> None:
        scripts.hello()
        (tmp_path / "folder").mkdir()
        assert_refused_before_anything_else(launch([script]), words)

    def test_a_folder_with_a_main_module_is_run(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        scripts.hello().rename(folder / "__main__.py")
        assert launch([folder]).stdout == "hello from rank 0 of 1\n"

    def test_a_script_that_may_not_be_read(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.hello()
        script.chmod(0)
        finished = launch([script], command=without_privileges())
        assert_refused_before_anything_else(finished, "cannot be read", f"ls -l {script}")
        hidden = tmp_path / "hidden"
        hidden.mkdir(mode=0)
        finished = launch([hidden / "train.py"], command=without_privileges())
        assert_refused_before_anything_else(finished, "Permission denied")

    @pytest.mark.parametrize(
        "module,words",
        [
            ("nowhere_at_all", "no module 'nowhere_at_all'"),
            ("hello.py", "leave out -m, or write hello"),
            ("package.trian", "did you mean package.train?"),
            ("package.inner.x", "no module 'inner' in 'package'"),
            ("package", "a package without a __main__ module"),
        ],
    )
    def test_a_module_that_is_not_there(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, module: str, words: str
    ) -> None:
        scripts.hello()
        scripts.write("package/__init__.py", "raise SystemExit('this must not run')")
        scripts.write("package/train.py", "")
        assert_refused_before_anything_else(launch(["-m", module]), words)

    def test_modules_are_found_as_python_finds_them(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        scripts.write("package/__init__.py", "__path__ = [DIRECTORY + '/elsewhere']")
        scripts.write("elsewhere/train.py", "say('found')")
        assert launch(["-m", "package.train"]).stdout == "found\n"
        assert launch(["-m", "timeit", "-n1", "-r1", "pass"]).returncode == 0

    def test_a_program_that_is_not_there_or_not_one(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.hello()
        assert_refused_before_anything_else(
            launch(["--no-python", "nowhere-at-all"]), "no program 'nowhere-at-all'"
        )
        assert_refused_before_anything_else(launch(["--no-python", script]), "chmod +x")
        script.write_text("#!/nowhere/at-all\n")
        script.chmod(0o755)
        assert_refused(launch(["--no-python", script]), 1, "cannot start")

    def test_a_current_directory_that_is_gone(self, launch: Launch, scripts: Scripts) -> None:
        script = scripts.hello()
        command = f'mkdir gone && cd gone && rmdir ../gone && exec {launcher_line()} "$@"'
        finished = launch(["sh", script], command=["sh", "-c", command])
        assert_refused(finished, 1, "the current directory cannot be used", "cd into one")


class TestPlugins:
    """`module::Class` wrong in each of its ways; and plugins that fail while the job runs."""

    CODE = """
    from torch.distributed.elastic.metrics.api import MetricHandler
    from torch.distributed.elastic.rendezvous import RendezvousHandler

    class Good(MetricHandler):
        def emit(self, data): pass

    class Unrelated: pass
    class Half(MetricHandler): pass

    class Raises(Good):
        def __init__(self): raise ConnectionError("no server")

    class Handler(RendezvousHandler):
        def __init__(self, params): pass
        def get_backend(self): return "mine"
        def is_closed(self): return False
        def set_closed(self): pass
        def num_nodes_waiting(self): return 0
        def get_run_id(self): return "run"
        def shutdown(self): return True
        def next_rendezvous(self): return ("store", 0, 1)

    class Raising(Handler):
        def next_rendezvous(self): raise ConnectionError("no server")

    class Leaving(Handler):
        def next_rendezvous(self): raise SystemExit(0)
    """

    @pytest.fixture(autouse=True)
    def users_modules(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(textwrap.dedent(self.CODE))
        (tmp_path / "broken.py").write_text("def f(:\n")
        (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")

    @pytest.mark.parametrize(
        "reference,words",
        [
            ("mine.Good", "mine::Good"),
            ("mine::", "mine::"),
            ("mien::Good", "mine"),
            ("mine::God", "Good"),
            ("mine::Unrelated", "MetricHandler"),
            ("mine::Half", "emit"),
            ("mine::Raises", "ConnectionError: no server"),
            ("broken::Good", "broken.py:1"),
            ("leaves::Good", "sys.exit(0)"),
        ],
    )
    def test_a_reference_that_leads_nowhere(
        self, launch: Launch, scripts: Scripts, reference: str, words: str
    ) -> None:
        finished = launch([f"--metrics_handler={reference}", scripts.hello()])
        assert_refused(finished, 2, f"--metrics_handler={reference}", words)

    @pytest.mark.parametrize("option", ["--rdzv_handler", "--dynamic_failover_extension"])
    def test_the_other_options_say_as_much(
        self, launch: Launch, scripts: Scripts, option: str
    ) -> None:
        finished = launch([f"{option}=mine::Unrelated", scripts.hello()])
        assert_refused(finished, 2, f"{option}=mine::Unrelated", "derive from")

    @pytest.mark.parametrize(
        "name,code,words",
        [
            ("Handler", 2, "the store that it returned is 'store'"),
            ("Raising", 80, "ConnectionError: no server"),
            ("Leaving", 80, "SystemExit"),
        ],
    )
    def test_a_rendezvous_handler_that_raises_or_returns_junk(
        self, launch: Launch, scripts: Scripts, name: str, code: int, words: str
    ) -> None:
        finished = launch([f"--rdzv_handler=mine::{name}", scripts.hello()])
        assert_refused(finished, code, words)


class TestPlaces:
    """Ports, names and nodes that are not to be had."""

    @pytest.fixture
    def held_port(self) -> Iterator[int]:
        """A port on which this process listens, and never answers."""
        with socket.create_server(("", 0)) as server:
            yield server.getsockname()[1]

    def test_a_port_in_use_is_named_with_its_holder(
        self, launch: Launch, scripts: Scripts, held_port: int
    ) -> None:
        finished = launch([f"--master-port={held_port}", scripts.hello()])
        assert_refused(finished, 80, f"port {held_port} is in use by", f"(pid {os.getpid()})")

    def test_a_port_that_is_somebody_elses_is_no_rendezvous(
        self, launch: Launch, scripts: Scripts, held_port: int
    ) -> None:
        finished = launch([*c10d(f"localhost:{held_port}", "read_timeout=1"), scripts.hello()])
        assert_refused(
            finished, 80, f"port {held_port}", f"pid {os.getpid()})", "does not answer as"
        )

    @pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 70])
    def test_a_host_that_does_not_resolve(
        self, launch: Launch, scripts: Scripts, host: str
    ) -> None:
        finished = launch([*c10d(f"{host}:29400", "read_timeout=1"), scripts.hello()])
        assert_refused(finished, 80, f"{host!r} of the rendezvous endpoint does not resolve")

    @pytest.mark.full
    def test_nodes_that_do_not_come(self, launch: Launch, scripts: Scripts) -> None:
        port = free_port()
        finished = launch([*c10d(f"localhost:{port}", "join_timeout=1"), scripts.hello()])
        assert_refused(finished, 80, "did not come together in time", "join_timeout=SECONDS")
        argv = ["--nnodes=2", f"--master-port={port}", "--rdzv-conf=timeout=1", scripts.hello()]
        finished = launch(argv)
        assert_refused(finished, 80, "did not come together in time", f"127.0.0.1:{port}")

    @pytest.mark.full
    def test_a_first_node_that_is_not_there(self, launch: Launch, scripts: Scripts) -> None:
        port = free_port()
        argv = ["--nnodes=2", "--node-rank=1", f"--master-port={port}", "--rdzv-conf=timeout=1"]
        finished = launch([*argv, scripts.hello()])
        assert_refused(finished, 80, f"nobody answers at the rendezvous endpoint 127.0.0.1:{port}")

    def test_a_job_that_is_over(self, launch: Launch, scripts: Scripts) -> None:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        argv = ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{store.port}"]
        argv += ["--rdzv-conf=is_host=0", "--rdzv-id=job", scripts.hello()]
        assert launch(argv).returncode == 0
        assert_refused(launch(argv), 80, "has ended", "a new --rdzv-id")

    @pytest.mark.parametrize(
        "argv,words",
        [
            ("--nnodes=3:2", "minimum, 3, above its maximum, 2"),
            ("--nnodes=2 --node-rank=2 --master-port=29500", "ranks go from 0 to 1"),
            ("--nnodes=2 --master-port=0", "choose a port"),
            ("--nnodes=2 --rdzv-backend=c10", "did you mean 'c10d'?"),
            ("--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host:port", "HOST:PORT"),
            ("--nnodes=2 --rdzv-backend=c10d --rdzv-conf=join_timeout=soon", "join_timeout"),
            ("--nnodes=2 --rdzv-backend=c10d --rdzv-conf=store_type=stone", "store type"),
            ("--event-log-handler=nobody", "console, dynamic_rendezvous, null"),
            ("--nproc-per-node=gpu", "Cuda is not available"),
            ("--nproc-per-node=quantum", "quantum"),
            ("--logs-specs=nobody", "torchrun.logs_specs"),
        ],
    )
    def test_settings_that_cannot_be_met(
        self, launch: Launch, scripts: Scripts, argv: str, words: str
    ) -> None:
        assert_refused_before_anything_else(launch([*argv.split(), scripts.hello()]), words)

    @pytest.mark.full
    def test_a_backend_whose_package_is_not_installed(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        hidden = tmp_path / "hidden"
        hidden.mkdir()
        absent = "raise ModuleNotFoundError(\"No module named 'etcd'\", name='etcd')\n"
        (hidden / "etcd.py").write_text(absent)
        argv = ["--nnodes=2", "--rdzv-backend=etcd-v2", "--rdzv-endpoint=localhost:1"]
        finished = launch([*argv, scripts.hello()], env={"PYTHONPATH": str(hidden)})
        assert_refused_before_anything_else(finished, "pip install")

    def test_more_workers_than_devices_is_said_and_goes_on(
        self, launch: Launch, scripts: Scripts
    ) -> None:
        """There are no devices here to have too few of; see tests/launch for the sentence."""
        finished = launch(["--nproc-per-node=5", scripts.hello()])
        assert finished.returncode == 0, finished
        assert "devices" not in finished.stderr


class TestDisk:
    """Directories that cannot be written, and disks that are full."""

    def test_a_log_dir_that_cannot_be_written(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.hello()
        for place in (script, script / "logs", "/proc/nowhere/logs"):
            finished = launch([f"--log-dir={place}", "-r3", script])
            assert_refused_before_anything_else(finished, f"--log-dir {place}")
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        finished = launch([f"--log-dir={locked}", script], command=without_privileges())
        assert_refused(finished, 2, "cannot be written to", "choose a directory")

    @pytest.mark.parametrize("path", ["nowhere/result.json", "."])
    def test_a_result_file_that_cannot_be_written(
        self, launch: Launch, scripts: Scripts, path: str
    ) -> None:
        finished = launch([f"--result_file={path}", scripts.hello()])
        assert_refused_before_anything_else(finished, "--result-file")

    def test_a_state_directory_that_cannot_be_written_falls_back_with_one_line(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        env = {"XDG_STATE_HOME": "/proc/nowhere", "TMPDIR": str(temporary)}
        finished = launch([scripts.hello()], env=env)
        assert finished.returncode == 0, finished
        [line] = [line for line in finished.stderr.splitlines() if line.startswith("dlrover-run")]
        [fallback] = temporary.glob("dlrover-*")
        assert "/proc/nowhere" in line
        assert line.endswith(f"it is kept in {fallback} instead")
        assert run_in(fallback).result["outcome"] == "succeeded"

    def test_no_place_for_the_run_at_all(self, launch: Launch) -> None:
        hidden = (sys.prefix, os.path.dirname(__file__))
        if any(path.startswith(("/tmp/", "/var/tmp/")) for path in hidden):
            pytest.skip("the launcher itself lies where temporary files go")
        env = {"XDG_STATE_HOME": "/proc/nowhere", "TMPDIR": "/proc/nowhere"}
        finished = launch(["--no-python", "true"], env=env, command=without_places())
        assert_refused(finished, 1, "no directory can be made for the run", "XDG_STATE_HOME")

    @pytest.mark.full
    def test_a_disk_that_fills_up_costs_the_logs_and_not_the_job(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.write(
            "talk.py", "for _ in range(64):\n    say('x' * 4096)\nleave('end')\n"
        )
        finished = launch(
            [f"--log-dir={tmp_path}/small", "-t3", script],
            command=on_a_small_disk(tmp_path / "small", "size=64k"),
        )
        assert finished.returncode == 0, finished
        assert len(finished.stdout.splitlines()) == 64, "the console has it all"
        [line] = [line for line in finished.stderr.splitlines() if line.startswith("dlrover-run")]
        assert "cannot write the log" in line
        assert "No space left on device" in line
        assert scripts.facts("end")

    def test_a_disk_that_is_full_at_the_start(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        finished = launch(
            [f"--log-dir={tmp_path}/small", "-r3", scripts.hello()],
            command=on_a_small_disk(tmp_path / "small", "nr_inodes=2"),
        )
        assert_refused(finished, 1, "No space left on device", "--log-dir")


class TestStreams:
    """A stderr that nobody can write to is no reason to end a training."""

    @pytest.mark.full
    @pytest.mark.parametrize(
        "redirection",
        [
            "2>/dev/full",
            "0<&- 2>&-",
        ],
    )
    def test_a_run_without_a_stderr(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, redirection: str
    ) -> None:
        script = scripts.write(
            "quiet.py",
            """
            try:
                os.write(2, b"into the void")
            except OSError:
                pass
            if attempt == 0 and rank == 1:
                os._exit(3)
            leave("end")
            """,
        )
        line = f'exec {launcher_line()} "$@" {redirection}'
        argv = ["sh", "--nproc-per-node=2", "--max-restarts=1", script]
        finished = launch(argv, command=["sh", "-c", line])
        assert finished.returncode == 0, finished
        assert [fact["rank"] for fact in scripts.facts("end") if fact["attempt"] == 1] == [0, 1]
        kinds = [event["kind"] for event in run_in(tmp_path / "state").events()]
        assert kinds[-1] == "run_finished", "nothing but events is in the journal"


def c10d(endpoint: str, conf: str) -> list[str]:
    return [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-conf={conf}",
    ]


def without_privileges() -> list[str]:
    """The launcher's command line, for a user to whom file permissions apply."""
    if os.getuid() != 0:
        return [sys.executable, console_script("dlrover-run")]
    if shutil.which("setpriv") is None:
        pytest.skip("root can read everything, and there is no setpriv to give that up")
    dropped = "--bounding-set=-dac_override,-dac_read_search"
    return ["setpriv", dropped, sys.executable, console_script("dlrover-run")]


def without_places() -> list[str]:
    """The launcher where no directory that Python tries for temporary files can be written."""
    places = [place for place in ("/tmp", "/var/tmp", "/usr/tmp") if os.path.isdir(place)]
    mounts = [f"mount -t tmpfs -o ro none {place};" for place in places]
    return in_a_namespace(" ".join(mounts) + " cd /proc;")


def on_a_small_disk(place: Path, options: str) -> list[str]:
    """The launcher with a small file system of its own at this place."""
    place.mkdir()
    return in_a_namespace(f"mount -t tmpfs -o {options} none {place};")


def in_a_namespace(preparation: str) -> list[str]:
    unshare = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    probe = [*unshare, "sh", "-c", "mount -t tmpfs none /mnt"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    return [*unshare, "sh", "-c", f'{preparation} exec {launcher_line()} "$@"', "sh"]


def launcher_line() -> str:
    return f"{sys.executable} {console_script('dlrover-run')}"
