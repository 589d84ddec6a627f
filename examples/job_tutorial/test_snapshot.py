"""How a job plugin is tested: what holds for every plugin, and what this one is for.

cd examples/job_tutorial && python -m pytest
"""

from pathlib import Path

import pytest
from snapshot import SnapshotPlugin

from dlrover_cli.errors import UsageError
from dlrover_cli.testing.job_plugin_contract import JobPluginContract


class TestSnapshotPlugin(JobPluginContract):
    plugin_type = SnapshotPlugin

    @pytest.fixture
    def good_properties(self, project: Path):
        (project / "hello.py").write_text("print('hello')\n")
        return {"script": "hello.py"}

    @pytest.fixture
    def endless_properties(self, project: Path):
        (project / "main.py").write_text("import time\nwhile True: time.sleep(60)\n")
        return {}

    @pytest.fixture
    def bad_properties(self, project: Path):
        (project / "main.py").write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
        return {"args": ["3"]}

    def test_a_job_does_not_see_what_is_edited_meanwhile(self, run, project, good_properties):
        job = run.generate(good_properties)
        run.plugin.generate_job_resource(job)
        (project / "hello.py").write_text("raise SystemExit('edited')\n")
        job.job_handler = run.plugin.submit_job(job)
        assert run.wait().is_success
        assert (job.output / "stdout.log").read_text() == "hello\n"

    def test_the_copy_goes(self, run, good_properties):
        job = run.generate(good_properties)
        run.submit()
        run.wait()
        assert (job.folder / "hello.py").exists()
        run.cleanup()
        assert not job.folder.exists()

    def test_a_script_that_is_not_there_is_refused(self, run):
        with pytest.raises(UsageError, match=r"there is no script cuont\.py"):
            run.generate({"script": "cuont.py"})
