"""The bootstrap gets into a Python worker and out of sight again, whatever it meets there."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_cli.workers import bootstrap
from dlrover_cli.workers.bootstrap import bootstrap_environment
from tests.workers.bootstrapped import Workers

PROBE = """
import json, os, sys
print(json.dumps({
    "path": sys.path,
    "environ": {k: v for k, v in os.environ.items() if not k.startswith("DLROVER_")},
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "modules": sorted(sys.modules),
    "argv": sys.argv,
    "flags": str(sys.flags),
    "importers": sorted(sys.path_importer_cache),
    "first_descriptor": os.open(os.devnull, os.O_RDONLY),
}))
"""
# Shows whether a process has anything of ours in it.
TRACES = """
import faulthandler, os, sys
print(
    sys.excepthook is sys.__excepthook__,
    faulthandler.is_enabled(),
    [name for name in sys.modules if "dlrover" in name],
    os.environ.get("PYTHONPATH"),
    flush=True,
)
"""
NO_TRACE = "True False [] None\n"


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


class TestWithoutATrace:
    @pytest.mark.parametrize("original", [None, "", "one", "one:two", ":two"])
    def test_path_and_environment_are_as_without_us(
        self, workers: Workers, original: str | None
    ) -> None:
        env = {} if original is None else {"PYTHONPATH": original}
        plain = json.loads(workers.run_plain(PROBE, "--lr", "1", env=env).stdout)
        ours = workers.run(PROBE, "--lr", "1", env=env)
        seen = json.loads(ours.stdout)
        new = set(seen.pop("modules")) - set(plain.pop("modules"))
        assert seen == plain
        assert {name for name in new if "dlrover" not in name} <= {"atexit", "faulthandler"}
        assert ours.problems == ""

    def test_our_variables_for_the_script_are_there_and_the_others_are_not(
        self, workers: Workers
    ) -> None:
        ours = workers.run("import os; print([k for k in os.environ if k.startswith('DLROVER_')])")
        seen = eval(ours.stdout)
        of_the_tests = {"DLROVER_TEST_TOKEN", "DLROVER_CI_ENGINES"}
        assert set(seen) - of_the_tests == {"DLROVER_WORKER_DIR", "DLROVER_BEAT_FILE"}

    def test_a_module_is_started_as_well_as_a_script(self, tmp_path: Path) -> None:
        (tmp_path / "package").mkdir()
        (tmp_path / "package" / "__init__.py").touch()
        (tmp_path / "package" / "train.py").write_text("raise ValueError('from a module')")
        env, directory, page = Workers(tmp_path).environment()
        command = [sys.executable, "-u", "-m", "package.train"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        page.close()
        assert done.returncode == 1
        recorded = json.loads((directory / "exception.json").read_text())
        assert recorded["message"] == "from a module"

    def test_a_venv_keeps_its_packages(self, tmp_path: Path, workers: Workers) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True
        )
        site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
        (site / "only_here.py").write_text("")
        ended = workers.run(
            "import only_here, sys; print(sys.prefix); sys.exit(4)",
            python=str(tmp_path / "venv" / "bin" / "python"),
        )
        assert ended.stdout == f"{tmp_path / 'venv'}\n"
        assert ended.record("exit")["code"] == 4


class TestTheUsersOwnCustomisation:
    def test_his_sitecustomize_is_imported_as_python_would_have(
        self, workers: Workers, tmp_path: Path
    ) -> None:
        (tmp_path / "his").mkdir()
        (tmp_path / "his" / "sitecustomize.py").write_text(
            "import os, sys; sys.his = (__name__, os.environ['PYTHONPATH'], list(sys.path))"
        )
        env = {"PYTHONPATH": str(tmp_path / "his")}
        code = f"import json, sys; print(json.dumps(sys.his))\n{PROBE}"
        plain = workers.run_plain(code, env=env).stdout.splitlines()
        ours = workers.run(code, env=env).stdout.splitlines()
        assert ours[0] == plain[0]
        assert json.loads(ours[1])["sitecustomize"] == str(tmp_path / "his" / "sitecustomize.py")

    def test_one_that_raises_is_reported_in_the_same_words(
        self, workers: Workers, tmp_path: Path
    ) -> None:
        (tmp_path / "his").mkdir()
        (tmp_path / "his" / "sitecustomize.py").write_text("raise ValueError('his own trouble')")
        env = {"PYTHONPATH": str(tmp_path / "his")}
        code = "import sys; print('sitecustomize' in sys.modules)"
        plain = workers.run_plain(code, env=env)
        ours = workers.run(code, env=env)
        assert "his own trouble" in ours.stderr
        assert (ours.stdout, ours.stderr, ours.status) == (plain.stdout, plain.stderr, 0)

    def test_one_that_lacks_a_module_is_reported_in_the_same_words(
        self, workers: Workers, tmp_path: Path
    ) -> None:
        (tmp_path / "his").mkdir()
        (tmp_path / "his" / "sitecustomize.py").write_text("import not_installed")
        env = {"PYTHONPATH": str(tmp_path / "his")}
        plain = workers.run_plain("", env=env)
        assert workers.run("", env=env).stderr == plain.stderr != ""

    def test_his_usercustomize_runs_too(self, workers: Workers, tmp_path: Path) -> None:
        python = next(Path(sys.base_prefix, "bin").glob("python3.[0-9]*[0-9]"))
        code = "import site; print(site.getusersitepackages())"
        env = {"PYTHONUSERBASE": str(tmp_path / "user")}
        where = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True)
        site = Path(where.stdout.strip())
        site.mkdir(parents=True)
        (site / "usercustomize.py").write_text("print('his usercustomize')")
        ended = workers.run("", env=env, python=str(python))
        assert ended.stdout == "his usercustomize\n"


class TestWhatTheWorkerStarts:
    def test_a_subprocess_is_not_affected(self, workers: Workers) -> None:
        ended = workers.run(
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TRACES!r}])"
        )
        assert ended.stdout == NO_TRACE

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_multiprocessing_is_not_affected(self, workers: Workers, method: str) -> None:
        ended = workers.run(
            f"""
            import multiprocessing

            def look():
                exec({TRACES!r})

            if __name__ == "__main__":
                process = multiprocessing.get_context({method!r}).Process(target=look)
                process.start()
                process.join()
            """
        )
        assert ended.stdout == NO_TRACE, ended.stderr

    def test_a_script_that_executes_itself_again_is_not_affected(self, workers: Workers) -> None:
        ended = workers.run(
            f"""
            import os, sys
            if len(sys.argv) == 1:
                os.execv(sys.executable, [sys.executable, "-u", sys.argv[0], "again"])
            exec({TRACES!r})
            sys.exit(6)
            """
        )
        assert (ended.stdout, ended.status) == (NO_TRACE, 6)

    def test_a_process_that_got_our_variables_nevertheless_is_left_alone(
        self, workers: Workers
    ) -> None:
        ended = workers.run(
            """
            import os, subprocess, sys
            first = dict(
                item.decode().split("=", 1)
                for item in open("/proc/self/environ", "rb").read().split(b"\\0") if item
            )
            code = "import os; print(os.environ.get('PYTHONPATH')); raise ValueError('not me')"
            child = subprocess.run([sys.executable, "-c", code], env=first)
            sys.exit(child.returncode + 10)
            """
        )
        assert ended.status == 11
        assert ended.stdout == "None\n"
        assert ended.records == {"exit"}


class TestNothingBreaksAWorker:
    def test_no_directory(self, workers: Workers) -> None:
        ended = workers.run("print('runs')", before=Path.rmdir)
        assert (ended.stdout, ended.stderr, ended.status) == ("runs\n", "", 0)

    def test_no_page(self, workers: Workers) -> None:
        ended = workers.run(
            "raise ValueError", before=lambda d: (d.parent / "beat_1").unlink(missing_ok=True)
        )
        assert ended.status == 1
        assert ended.record("exception")["phase"] == "unknown"
        assert "beats: FileNotFoundError" in ended.problems

    def test_a_page_that_is_none(self, workers: Workers) -> None:
        ended = workers.run(
            "print('runs')", before=lambda d: (d.parent / "beat_1").write_text("x" * 5000)
        )
        assert ended.stdout == "runs\n"
        assert "is not a beat page" in ended.problems

    def test_a_directory_where_nothing_can_be_written(self, workers: Workers) -> None:
        # A file in its place: permissions do not stop the superuser.
        def spoil(directory: Path) -> None:
            directory.rmdir()
            directory.write_text("")

        ended = workers.run("print('runs'); raise ValueError('as before')", before=spoil)
        assert (ended.stdout, ended.status) == ("runs\n", 1)
        assert ended.stderr.endswith("ValueError: as before\n")

    def test_code_of_ours_that_cannot_be_loaded(
        self, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = Path(bootstrap.__file__).parent / "site"
        shutil.copytree(site, tmp_path / "copy" / "site")
        monkeypatch.setattr(bootstrap, "_SITE", tmp_path / "copy" / "site")
        ended = workers.run(TRACES)
        assert ended.stdout == NO_TRACE.replace("[]", "['_dlrover_worker']")
        assert "cannot install: ModuleNotFoundError" in ended.problems

    def test_few_descriptors(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import os, resource, sys
            if len(sys.argv) == 1:
                resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
                first = open("/proc/self/environ").read().split("\\0")
                env = dict(item.split("=", 1) for item in first if item)
                os.execve(sys.executable, [sys.executable, sys.argv[0], "again"], env)
            sys.exit(5)
            """
        )
        assert ended.status == 5
        assert ended.record("exit")["code"] == 5
        assert ended.problems == ""

    def test_a_script_that_closes_all_descriptors_finds_none_of_our_text_in_its_files(
        self, workers: Workers
    ) -> None:
        ended = workers.run(
            """
            import os, signal, sys
            os.closerange(3, 1024)
            mine = open(sys.argv[1], "w")
            print(mine.fileno(), flush=True)
            os.kill(os.getpid(), 57)
            os.kill(os.getpid(), signal.SIGSEGV)
            """,
            str(workers.directory / "mine.txt"),
        )
        assert (ended.stdout, ended.status) == ("3\n", -11)
        assert (workers.directory / "mine.txt").read_text() == ""


class TestTheEnvironment:
    def test_a_program_that_is_not_python_only_learns_the_places(self) -> None:
        env = bootstrap_environment({"A": "1", "PYTHONPATH": "x"}, "/d", "/d/beat", python=False)
        assert env == {
            "A": "1",
            "PYTHONPATH": "x",
            "DLROVER_WORKER_DIR": "/d",
            "DLROVER_BEAT_FILE": "/d/beat",
        }

    def test_a_worker_below_a_worker_hears_nothing_of_the_outer_one(self) -> None:
        outer = bootstrap_environment({}, "/outer", "/outer/beat", frame_locals=True)
        del outer["PYTHONPATH"]  # put back by the outer worker
        assert bootstrap_environment(outer, "/inner", None, python=False) == {
            "DLROVER_WORKER_DIR": "/inner"
        }

    def test_relative_places_are_made_absolute_since_scripts_change_directory(self) -> None:
        env = bootstrap_environment({}, "d", Path("d/beat"))
        assert env["DLROVER_WORKER_DIR"] == os.path.abspath("d")
        assert env["DLROVER_BEAT_FILE"] == os.path.abspath("d/beat")

    def test_the_given_environment_is_not_touched(self) -> None:
        given = {"PYTHONPATH": "x"}
        bootstrap_environment(given, "/d", None)
        assert given == {"PYTHONPATH": "x"}
