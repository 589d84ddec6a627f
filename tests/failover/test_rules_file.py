"""Reading rules: every mistake is refused with its file, its line and the reason."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.errors import ConfigError
from dlrover_cli.failover.rules import RulesAdviser, RuleSet, load_rules, rules_from_table
from dlrover_cli.failover.ruleset import When

GOOD = """\
[[rules]]
name = "bad-data"
when = {exit_code = 3}
strategy = "abort"
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rules file, named as a person in its directory would."""
    monkeypatch.chdir(tmp_path)
    return Path("rules.toml")


def refusal(path: Path, text: str) -> ConfigError:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_rules(path)
    assert caught.value.hint
    assert caught.value.setting == "failover_rules"
    return caught.value


def test_a_rule_has_a_name_conditions_and_a_strategy(written: Path) -> None:
    written.write_text(GOOD)
    [rule] = load_rules(written).rules
    assert rule.name == "bad-data"
    assert rule.when == When(exit_codes=frozenset({3}))
    assert rule.strategy is FailoverStrategy.ABORTION_FAILOVER
    assert rule.backoff is None
    assert rule.title == "rule 'bad-data'"


@pytest.mark.parametrize(
    "text, strategy",
    [
        ("normal", FailoverStrategy.NORMAL_FAILOVER),
        ("node", FailoverStrategy.NODE_FAILOVER),
        ("global", FailoverStrategy.GLOBAL_FAILOVER),
        ("abort", FailoverStrategy.ABORTION_FAILOVER),
        ("ABORT", FailoverStrategy.ABORTION_FAILOVER),
        ("abortion", FailoverStrategy.ABORTION_FAILOVER),
        *((each.value, each) for each in FailoverStrategy),
    ],
)
def test_a_strategy_may_be_written_short_or_in_full(
    written: Path, text: str, strategy: FailoverStrategy
) -> None:
    written.write_text(GOOD.replace('"abort"', f'"{text}"'))
    assert load_rules(written).rules[0].strategy is strategy


@pytest.mark.parametrize(
    "text, seconds", [('"30s"', 30), ("30", 30), ("0", 0), ('"2m"', 120), ('"500ms"', 0.5)]
)
def test_a_back_off_is_a_time_or_a_number_of_seconds(
    written: Path, text: str, seconds: float
) -> None:
    written.write_text(GOOD.replace('"abort"', f'"normal"\nbackoff = {text}'))
    assert load_rules(written).rules[0].backoff == seconds


@pytest.mark.parametrize(
    "old, new, line, reason, hint",
    [
        ("exit_code = 3", "exitcode = 3", 3, "there is no key 'exitcode'", "'exit_code'"),
        ("exit_code = 3", "xyz = 3", 3, "there is no key 'xyz'", "There are: exit_code, signal"),
        ("when = {exit_code = 3}", "exit_code = 3", 3, "there is no key 'exit_code'", "when = {"),
        ("strategy =", "strategie =", 4, "there is no key 'strategie'", "'strategy'"),
        ('"abort"', '"abrt"', 4, "one of normal, node, global or abort, not 'abrt'", '"abort"'),
        ('"abort"', "3", 4, "one of normal, node, global or abort, not the number 3", '"abort"'),
        ('strategy = "abort"', "", 1, "it has no strategy", 'strategy = "abort"'),
        ('name = "bad-data"', "", 1, "it has no name", 'name = "bad-data"'),
        ('"bad-data"', '""', 2, "one line of text that is not empty", "name ="),
        ('"bad-data"', '"a\\nb"', 2, "one line of text that is not empty", "name ="),
        ('"bad-data"', "7", 2, "takes a text, not the number 7", "name ="),
        ("{exit_code = 3}", '"oom"', 3, "when takes a table, not the text 'oom'", "when = {"),
        ("= 3", "= 0", 3, "exit_code takes 1 to 255, not 0", "exit_code = 3"),
        ("= 3", "= 256", 3, "exit_code takes 1 to 255, not 256", "exit_code = 3"),
        ("= 3", "= -9", 3, "exit_code takes 1 to 255, not -9", 'signal = "SIGKILL"'),
        ("= 3", "= true", 3, "a code or a range FROM-TO, not true", '"100-120"'),
        ("= 3", '= "9-3"', 3, "a code or a range FROM-TO, not the text '9-3'", '"100-120"'),
        ("= 3", "= []", 3, "an empty list, so the rule could never apply", "exit_code = 3"),
        ("= 3", "= [[3]]", 3, "a code or a range FROM-TO, not a list", '"100-120"'),
        ("exit_code = 3", 'signal = "SIGKIL"', 3, "not 'SIGKIL'", '"SIGKILL"'),
        ("exit_code = 3", 'signal = "kill"', 3, "not 'kill'", '"SIGKILL"'),
        ("exit_code = 3", "signal = 99", 3, "the name of a signal, not the number 99", "SIGKILL"),
        ("exit_code = 3", 'exception = "E: no"', 3, "the name of an exception class", "message ="),
        ("exit_code = 3", "message = '[a'", 3, "unterminated character set at position 0", "quot"),
        ("exit_code = 3", "log = 'a(b'", 3, "log is not a regular expression: missing )", "quotes"),
        ("exit_code = 3", "message = ''", 3, "is empty, which is found in every text", "message"),
        ("exit_code = 3", "message = 7", 3, "a regular expression, not the number 7", "message"),
        ("exit_code = 3", "log = 'a{9999999999999}'", 3, "is not a regular expression", "quotes"),
        ("exit_code = 3", 'phase = "startup"', 3, '"start-up" or "training", not', '"start-up"'),
        ("exit_code = 3", 'kind = "hng"', 3, "not the text 'hng'", '"hang"'),
        ("exit_code = 3", "oom = 1", 3, "oom takes true or false, not the number 1", "oom = true"),
        ("exit_code = 3", "same_failure = 1", 3, "2 or more, not the number 1", "same_failure = 3"),
        ("exit_code = 3", "same_host = 1.5", 3, "2 or more, not the number 1.5", "same_host = 3"),
        ("exit_code = 3", "no_progress = 0", 3, "1 or more, not the number 0", "no_progress = 3"),
        ('"abort"', '"node"\nbackoff = "soon"', 5, "not 'soon'", 'backoff = "30s"'),
        ('"abort"', '"node"\nbackoff = -1', 5, "0 seconds to 7 days, not -1", 'backoff = "30s"'),
        ('"abort"', '"node"\nbackoff = inf', 5, "0 seconds to 7 days, not inf", "backoff ="),
        ('"abort"', '"node"\nbackoff = true', 5, "takes a time, not true", "backoff ="),
        ('"abort"', '"abort"\nbackoff = 3', 5, "nothing follows an abort", "Leave backoff out"),
        ('"abort"', '"abort"\nreason = 3', 5, "takes a text, not the number 3", "reason ="),
        ('"abort"', '"abort"\non = "no"', 5, "true or false, not the text 'no'", "on = true"),
        ("[[rules]]", "[[rule]]", 1, "there is no key 'rule'", "'rules'"),
        ("[[rules]]", "[rules]", 1, "rules must be an array of tables", "[[rules]]"),
        ("[[rules]]", 'shipped = ["no-progres"]\n[[rules]]', 1, "no shipped rule", "'no-progress'"),
        ("[[rules]]", "shipped = true\n[[rules]]", 1, "a list of names of shipped", "shipped = ["),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_reason(
    written: Path, old: str, new: str, line: int, reason: str, hint: str
) -> None:
    assert GOOD.count(old) == 1
    error = refusal(written, GOOD.replace(old, new))
    assert error.message.startswith(f"rules.toml:{line}: ")
    assert reason in error.message
    assert error.message.endswith(".")
    assert error.hint is not None
    assert hint in error.hint


def test_a_complaint_names_the_rule(written: Path) -> None:
    error = refusal(written, GOOD + GOOD.replace("bad-data", "worse").replace("= 3", "= 300"))
    assert error.message == "rules.toml:7: rule 'worse': exit_code takes 1 to 255, not 300."


def test_the_line_is_right_also_in_a_table_of_its_own(written: Path) -> None:
    text = (
        '[[rules]]\nname = "a"\nstrategy = "node"\n[rules.when]\nexit_code = [\n  3,\n]\noom = 1\n'
    )
    assert refusal(written, text).message.startswith("rules.toml:8: rule 'a': oom takes")


def test_two_rules_of_one_name_are_refused(written: Path) -> None:
    error = refusal(written, GOOD + GOOD)
    assert error.message == (
        "rules.toml:6: rule 2: the name 'bad-data' is taken by a rule before it."
    )


def test_a_rule_behind_one_that_takes_everything_is_refused(written: Path) -> None:
    everything = '[[rules]]\nname = "all"\nstrategy = "abort"\n'
    error = refusal(written, everything + GOOD)
    assert error.message == (
        "rules.toml:4: rule 2: 'bad-data' is never reached, since 'all' takes every failure."
    )
    written.write_text(GOOD + everything)
    assert [rule.name for rule in load_rules(written).rules] == ["bad-data", "all"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "rules = []\n"])
def test_a_file_without_rules_is_refused(written: Path, text: str) -> None:
    assert "there are no rules in it" in refusal(written, text).message


def test_broken_toml_is_a_sentence_with_the_line(written: Path) -> None:
    error = refusal(written, "[[rules]]\nname = \n")
    assert error.message.startswith("rules.toml is not valid TOML: ")
    assert "line 2" in error.message


def test_a_missing_file_a_directory_and_bytes_are_sentences(written: Path) -> None:
    with pytest.raises(ConfigError, match=r"rules in rules.toml cannot be read: No such file"):
        load_rules(written)
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        load_rules(Path())
    written.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"rules.toml is not UTF-8 text: byte 0"):
        load_rules(written)


@pytest.mark.parametrize(
    "file, header, where",
    [
        ("dlrover.toml", "failover", "dlrover.toml:failover"),
        ("pyproject.toml", "tool.dlrover.failover", "pyproject.toml:tool.dlrover.failover"),
    ],
)
def test_a_table_of_a_config_file_holds_the_same_rules(
    tmp_path: Path, file: str, header: str, where: str
) -> None:
    table = {"rules": [{"name": "a", "strategy": "node", "when": {"exit_code": "x"}}]}
    text = f'# first\n[[{header}.rules]]\nname = "a"\nstrategy = "node"\nwhen.exit_code = "x"\n'
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError) as caught:
        rules_from_table(table, where, tmp_path)
    assert caught.value.message.startswith(f"{file}:5: rule 'a': exit_code takes")
    table["rules"][0]["when"] = {"exit_code": 3}  # type: ignore[index]
    assert rules_from_table(table, where, tmp_path).rules[0].name == "a"


def test_without_the_config_file_a_complaint_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^dlrover.toml: there is no key 'rule'\.$"):
        rules_from_table({"rule": []}, "dlrover.toml:failover", tmp_path)


# ---- the rules that come with the program --------------------------------------------------------


def test_only_rules_that_act_as_torchrun_does_are_on_by_default() -> None:
    """They restart the workers at once: what torchrun does, whatever the failure."""
    shipped = RulesAdviser().rules
    assert [rule.name for rule in shipped] == ["unreadable-script", "wrong-arguments"]
    for rule in shipped:
        assert (rule.strategy, rule.backoff) == (FailoverStrategy.NORMAL_FAILOVER, 0)
        assert rule.title == f"shipped rule {rule.name!r}"


def test_shipped_rules_are_chosen_by_name_and_asked_after_the_users(written: Path) -> None:
    written.write_text('shipped = ["no-progress", "start-up-loop"]\n' + GOOD)
    adviser = RulesAdviser(load_rules(written))
    assert [rule.name for rule in adviser.rules] == ["bad-data", "start-up-loop", "no-progress"]
    assert all(rule.on for rule in adviser.rules)


def test_no_shipped_rule_is_asked_if_none_is_wanted(written: Path) -> None:
    written.write_text("shipped = []\n")
    assert RulesAdviser(load_rules(written)).rules == ()


def test_the_first_file_that_speaks_of_shipped_rules_has_the_say() -> None:
    silent = RuleSet()
    none, some = RuleSet(shipped=frozenset()), RuleSet(shipped=frozenset({"no-progress"}))
    assert silent.followed_by(some).shipped == some.shipped
    assert none.followed_by(some).shipped == frozenset()


# ---- anything at all -----------------------------------------------------------------------------

KEYS = st.sampled_from(("rules", "shipped", "name", "when", "strategy", "backoff", "signal", "x"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, JSON) | st.fixed_dictionaries({"rules": st.lists(JSON, max_size=3)}))
def test_any_table_is_either_rules_or_a_complaint(table: dict[str, object]) -> None:
    complaint = None
    try:
        rules_from_table(table, "dlrover.toml:failover")
    except ConfigError as error:
        complaint = error
    assert complaint is None or (complaint.message.startswith("dlrover.toml: ") and complaint.hint)
