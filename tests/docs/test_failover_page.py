"""docs/how-to/failover.md: its commands do what it shows, and its tables say what the code has."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dlrover_cli.config.declaring import Panel
from dlrover_cli.config.settings import SETTINGS
from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.advice import History
from dlrover_cli.failover.replay import read_failures
from dlrover_cli.failover.rule_file import CONDITIONS, KEYS, all_shipped_rules
from dlrover_cli.failover.rules import RulesAdviser, load_rules
from tests.docs.console import Block, prepare, read_page, run_block
from tests.failover.failures import NOTHING_BEFORE, after, failure
from tests.harness.launcher import Finished, Running

ROOT = Path(__file__).parents[2]
PAGE = read_page(ROOT / "docs" / "how-to" / "failover.md")
EXAMPLES = ROOT / "examples" / "failover"
LOOP = EXAMPLES / "restart_on_81.sh"

# Commands that need something which is not there yet, and what that is.
NOT_YET: dict[str, str] = {}


def typed(block: Block) -> object:
    waits_for = [why for words, why in NOT_YET.items() if block.mentions(words)]
    marks = [pytest.mark.xfail(reason=why, run=False) for why in waits_for]
    return pytest.param(block, id=block.name, marks=marks)


@pytest.mark.full
@pytest.mark.parametrize("block", [typed(block) for block in PAGE.blocks])
def test_the_commands_do_what_the_page_shows(
    block: Block, launch: Callable[..., Finished], tmp_path: Path
) -> None:
    prepare(PAGE, EXAMPLES, tmp_path / "failover")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    problems = run_block(block, tmp_path / "failover", launch, {"PATH": path})
    assert not problems, "\n".join(problems)


def test_what_is_not_there_yet_is_on_the_page() -> None:
    for words in NOT_YET:
        assert any(block.mentions(words) for block in PAGE.blocks), words


@pytest.mark.parametrize("name, text", PAGE.files)
def test_a_file_on_the_page_is_the_example_or_a_part_of_it(name: str, text: str) -> None:
    if (EXAMPLES / name).exists():
        assert text in (EXAMPLES / name).read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without the tables' own headings."""
    section = re.split(rf"^#+ {re.escape(heading)}$", PAGE.text, flags=re.MULTILINE)[1]
    lines = re.split(r"^#", section, flags=re.MULTILINE)[0].splitlines()
    bodies = [
        line for above, line in pairwise(lines) if line.startswith("| ") and above.startswith("|")
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in bodies]


def test_the_table_of_shipped_rules_is_what_is_shipped() -> None:
    told = [
        (name.strip("`"), default, strategy.partition(",")[0])
        for name, default, _when, strategy in rows("Rules that come with it")
    ]
    short = {
        FailoverStrategy.NORMAL_FAILOVER: "normal",
        FailoverStrategy.NODE_FAILOVER: "node",
        FailoverStrategy.GLOBAL_FAILOVER: "global",
        FailoverStrategy.ABORTION_FAILOVER: "abort",
    }
    assert told == [
        (rule.name, "on" if rule.on else "off", short[rule.strategy])
        for rule in all_shipped_rules()
    ]


def test_the_tables_of_a_rule_have_every_key() -> None:
    told = [re.match(r"`(\w+)", row[0]) for row in rows("Rules: no Python needed")]
    names = [found[1] for found in told if found is not None]
    assert sorted(names) == sorted({*CONDITIONS, *KEYS} - {"when"})


def test_the_table_of_strategies_has_all_four() -> None:
    assert [row[0].strip("`") for row in rows("Four strategies")] == [
        strategy.value for strategy in FailoverStrategy
    ]


def test_the_exit_codes_of_failover_are_all_there() -> None:
    assert [int(row[0]) for row in rows("Exit codes")] == [
        code for code in ExitCode if code >= ExitCode.RENDEZVOUS
    ]


def test_every_failover_option_is_on_the_page() -> None:
    for setting in SETTINGS:
        if setting.panel is Panel.FAILOVER:
            assert f"--{setting.name}" in PAGE.text, setting.name


# ---- the examples ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts, before, rule",
    [
        ({"exit_code": 3}, 0, "bad-data"),
        ({"exit_code": 45}, 0, "sick-device"),
        ({"exit_code": 5}, 0, "split-world"),
        ({"exception_type": "ConnectionError", "phase": "start-up"}, 0, "storage-away"),
        ({"message": "NCCL watchdog timed out", "phase": "training"}, 0, "nccl-timeout"),
        ({"exception_type": "torch.OutOfMemoryError"}, 1, "does-not-fit"),
        ({"exit_code": 9, "steps": 0}, 3, "going-nowhere"),
        ({"exit_code": 9, "steps": 0}, 2, None),
    ],
)
def test_the_example_rules_take_what_they_are_for(
    facts: dict[str, object], before: int, rule: str | None
) -> None:
    info = failure(**facts)
    history: History = after(*[info] * before) if before else NOTHING_BEFORE
    verdict = RulesAdviser(load_rules(EXAMPLES / "rules.toml")).advise(info, history)
    assert (None if verdict is None else verdict.decided_by) == (rule and f"rule {rule!r}")


def test_the_example_failures_can_be_read() -> None:
    assert len(read_failures([EXAMPLES / "failures"])) >= 2


@pytest.mark.parametrize(
    "codes, runs, status",
    [("0", 1, 0), ("81 0", 2, 0), ("81 81 7", 3, 7), ("82", 1, 82), ("81 81 81 81", 3, 81)],
)
def test_the_loop_starts_the_agent_again_on_81_and_on_nothing_else(
    tmp_path: Path, codes: str, runs: int, status: int
) -> None:
    agent = tmp_path / "agent"
    agent.write_text(
        "#!/usr/bin/env bash\n"
        f"cd {tmp_path}; echo run >> runs; codes=({codes})\n"
        "exit ${codes[$(wc -l < runs) - 1]}\n"
    )
    agent.chmod(0o755)
    finished = subprocess.run([LOOP, agent], env={"TRIES": "2"}, capture_output=True, text=True)
    assert finished.returncode == status, finished
    assert (tmp_path / "runs").read_text().count("run") == runs
    assert finished.stderr.count("this node is replaced") == runs - 1


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_to_the_loop_ends_the_agent_and_the_loop(
    start: Callable[..., Running], tmp_path: Path, name: str
) -> None:
    number = signal.Signals[name]
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import signal, sys, time\n"
        f"signal.signal({number.value}, lambda *_: sys.exit(81))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    running = start([sys.executable, agent], command=[str(LOOP)])
    running.wait_for("ready")
    running.signal(number)
    finished = running.finish()
    assert finished.returncode == 81, finished
    assert "this node is replaced" not in finished.stderr
