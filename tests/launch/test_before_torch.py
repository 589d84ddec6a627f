"""What a launcher does before it loads torch, which reads some variables when it is loaded."""

import subprocess
import sys


def test_the_checks_of_a_launch_do_without_torch() -> None:
    code = "import sys, dlrover_cli.launch.run; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_launch_loads_no_part_that_only_some_launches_use() -> None:
    """Each is a few milliseconds of every start, before the zygote is there."""
    unused = (
        *("dlrover_cli.launch.status.line", "dlrover_cli.telemetry.notifier"),
        *("dlrover_cli.telemetry.metrics", "dlrover_cli.workers.bootstrap.in_worker.debugger"),
        *("statistics", "tomllib", "ssl", "http.client"),
    )
    code = f"import sys, dlrover_cli.launch.run; print(*sorted({set(unused)!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""
