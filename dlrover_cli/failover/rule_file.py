"""From TOML to rules; whatever is wrong is refused with its file, its line and the reason.

The same tables stand in a file of their own (`--failover_rules`), in `[failover]` of `dlrover.toml`
and in `[tool.dlrover.failover]` of `pyproject.toml`:

    [[rules]]
    name = "bad-data"
    when = {exit_code = 3}
    strategy = "abort"
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from dlrover_cli.config import toml_lines
from dlrover_cli.config.values import shown
from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.errors import ConfigError
from dlrover_cli.failover import rule_values
from dlrover_cli.failover.rule_values import BadValue
from dlrover_cli.failover.ruleset import Rule, RuleSet, When

SETTING = "failover_rules"
_SHIPPED_FILE = Path(__file__).with_name("default_rules.toml")
_RULES, _SHIPPED = "rules", "shipped"
_EXAMPLE = (
    "A rule is a line [[rules]] and, below it, "
    'name = "bad-data", when = {exit_code = 3} and strategy = "abort", each on its own line.'
)


def load_rules(path: Path) -> RuleSet:
    """The rules of a file."""
    text = _text(path)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}.", setting=SETTING, hint=_EXAMPLE
        ) from error
    return _rule_set(_Place(str(path), lambda: text), table, _shipped_names())


def rules_from_table(
    table: Mapping[str, object], where: str, directory: Path | None = None
) -> RuleSet:
    """The rules of a table in a config file.

    `where` names it as settings' sources do, such as `dlrover.toml:failover`. A complaint has a
    line if the file is there to be read in `directory`.
    """
    file, _, key = where.partition(":")
    path = tuple(key.split(".")) if key else ()
    place = _Place(file, lambda: ((directory or Path()) / file).read_text(), path)
    return _rule_set(place, table, _shipped_names())


def shipped_rules(wanted: frozenset[str] | None = None) -> tuple[Rule, ...]:
    """The shipped rules in their order: those that are wanted, or those that are on by default."""
    if wanted is None:
        return tuple(rule for rule in all_shipped_rules() if rule.on)
    return tuple(replace(rule, on=True) for rule in all_shipped_rules() if rule.name in wanted)


@cache
def all_shipped_rules() -> tuple[Rule, ...]:
    """Everything that `default_rules.toml` holds."""
    text = _SHIPPED_FILE.read_text()
    place = _Place(_SHIPPED_FILE.name, lambda: text)
    rules = _rule_set(place, tomllib.loads(text), ()).rules
    return tuple(replace(rule, shipped=True) for rule in rules)


def _shipped_names() -> tuple[str, ...]:
    return tuple(rule.name for rule in all_shipped_rules())


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(
            f"The rules in {path} cannot be read: {error.strerror}.",
            setting=SETTING,
            hint="Name a file that exists, such as --failover-rules=rules.toml",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text: byte {error.start} cannot be read.",
            setting=SETTING,
            hint="Save it as UTF-8.",
        ) from error


@dataclass(frozen=True, slots=True)
class _Place:
    """Somewhere in a file, for complaints about what stands there."""

    file: str
    text: Callable[[], str]
    path: toml_lines.Path = ()
    subject: str = ""

    def at(self, *keys: str | int, subject: str | None = None) -> "_Place":
        subject = self.subject if subject is None else subject
        return replace(self, path=(*self.path, *keys), subject=subject)

    def wrong(self, what: str, hint: str) -> ConfigError:
        where = f"{self.file}{self._line()}"
        subject = f"{self.subject}: " if self.subject else ""
        return ConfigError(f"{where}: {subject}{what}.", setting=SETTING, hint=hint)

    def _line(self) -> str:
        try:
            lines = toml_lines.key_lines(self.text())
        except (OSError, ValueError, IndexError, RecursionError):
            return ""  # a complaint without its line is better than none
        for length in range(len(self.path), 0, -1):
            if line := lines.get(self.path[:length]):
                return f":{line}"
        return ""


def _rule_set(place: _Place, table: Mapping[str, Any], shipped_names: tuple[str, ...]) -> RuleSet:
    _refuse_unknown_keys(place, table, (_RULES, _SHIPPED))
    if not table.get(_RULES) and _SHIPPED not in table:
        raise place.wrong("there are no rules in it", _EXAMPLE)
    shipped = (
        _wanted(place.at(_SHIPPED), table[_SHIPPED], shipped_names) if _SHIPPED in table else None
    )
    return RuleSet(_rules(place.at(_RULES), table.get(_RULES, [])), shipped)


def _wanted(place: _Place, value: object, known: tuple[str, ...]) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        hint = f'Write it like this: {_SHIPPED} = ["{known[0]}"]'
        raise place.wrong(f"{_SHIPPED} takes a list of names of shipped rules", hint)
    for position, name in enumerate(value):
        if name not in known:
            what = f"there is no shipped rule {name!r}"
            raise place.at(position).wrong(what, _suggestion(name, known))
    return frozenset(value)


def _rules(place: _Place, value: object) -> tuple[Rule, ...]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise place.wrong(f"{_RULES} must be an array of tables", _EXAMPLE)
    rules: list[Rule] = []
    for position, table in enumerate(value):
        here = place.at(position, subject=f"rule {position + 1}")
        rule = _rule(here, table)
        _check_against_earlier(here, rule, rules)
        rules.append(rule)
    return tuple(rules)


def _check_against_earlier(place: _Place, rule: Rule, earlier: list[Rule]) -> None:
    if any(rule.name == other.name for other in earlier):
        what = f"the name {rule.name!r} is taken by a rule before it"
        raise place.at("name").wrong(what, "Give each rule a name of its own.")
    all_taking = next((other for other in earlier if other.on and other.when == When()), None)
    if all_taking is not None:
        raise place.wrong(
            f"{rule.name!r} is never reached, since {all_taking.name!r} takes every failure",
            f"Move {all_taking.name!r}, which has no conditions, to the end.",
        )


def _rule(place: _Place, table: Mapping[str, Any]) -> Rule:
    _refuse_unknown_keys(place, table, KEYS)
    for key, example in (("name", '"bad-data"'), ("strategy", '"abort"')):
        if key not in table:
            raise place.wrong(f"it has no {key}", f"Add a line: {key} = {example}")
    name = _value(place, table, "name", rule_values.line_of_text)
    place = place.at(subject=f"rule {name!r}")
    strategy = _value(place, table, "strategy", rule_values.strategy)
    backoff = _value(place, table, "backoff", rule_values.seconds)
    if backoff is not None and strategy is FailoverStrategy.ABORTION_FAILOVER:
        what = "backoff has no meaning with this strategy: nothing follows an abort"
        raise place.at("backoff").wrong(what, "Leave backoff out.")
    conditions = table.get("when", {})
    when = _when(place.at("when"), conditions)
    reason = _value(place, table, "reason", rule_values.line_of_text)
    on = _value(place, table, "on", rule_values.yes_or_no)
    return Rule(
        name=name,
        strategy=strategy,
        when=when,
        backoff=backoff,
        reason=_in_words(conditions) if reason is None else reason,
        on=True if on is None else on,
    )


def _when(place: _Place, conditions: object) -> When:
    if not isinstance(conditions, dict):
        hint = "Write it like this: when = {exit_code = 3}"
        raise place.wrong(f"when takes a table, not {shown(conditions)}", hint)
    _refuse_unknown_keys(place, conditions, tuple(CONDITIONS))
    read = {
        field: _value(place, conditions, key, reader)
        for key, (field, reader) in CONDITIONS.items()
        if key in conditions
    }
    return When(**read)


def _value(place: _Place, table: Mapping[str, Any], key: str, reader: Callable[[Any], Any]) -> Any:
    """The value of a key, None if it is not there."""
    if key not in table:
        return None
    try:
        return reader(table[key])
    except BadValue as bad:
        hint = bad.hint or f"Write it like this: {key} = {bad.example}"
        raise place.at(key).wrong(f"{key} {bad}", hint) from bad


def _refuse_unknown_keys(place: _Place, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key in known:
            continue
        hint = _suggestion(key, known)
        if known is KEYS and key in CONDITIONS:
            hint = f"Conditions stand in when = {{{key} = ...}}"
        raise place.at(key).wrong(f"there is no key {key!r}", hint)


def _suggestion(written: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(written.lower(), known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."


def _in_words(conditions: Mapping[str, Any]) -> str:
    if not conditions:
        return "any failure"
    return ", ".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in conditions.items()
    )


KEYS = ("name", "when", "strategy", "backoff", "reason", "on")
CONDITIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "exit_code": ("exit_codes", rule_values.exit_codes),
    "signal": ("signals", rule_values.signals),
    "exception": ("exceptions", rule_values.exceptions),
    "message": ("message", rule_values.pattern),
    "log": ("log", rule_values.pattern),
    "phase": ("phase", rule_values.phase),
    "kind": ("kinds", rule_values.kinds),
    "oom": ("oom", rule_values.yes_or_no),
    "same_failure": ("same_failure", rule_values.two_or_more),
    "no_progress": ("no_progress", rule_values.one_or_more),
    "same_host": ("same_host", rule_values.two_or_more),
}
