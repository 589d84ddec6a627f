"""Rules without Python: the adviser that is asked when the extension has no opinion.

    rules = load_rules(Path("rules.toml"))              # --failover_rules
    rules = rules.followed_by(rules_from_table(...))    # [failover] of dlrover.toml
    adviser = RulesAdviser(rules)

The user's rules are asked first, then the shipped ones that are on.
"""

from collections.abc import Callable

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.pattern_fence import PatternFence
from dlrover_cli.failover.rule_file import load_rules, rules_from_table, shipped_rules
from dlrover_cli.failover.ruleset import Rule, RuleSet, When, first_match

__all__ = [
    "Rule",
    "RuleSet",
    "RulesAdviser",
    "When",
    "load_rules",
    "rules_from_table",
    "shipped_rules",
]


class RulesAdviser:
    """Answers with the first rule that applies; no opinion if none does. Keeps no state."""

    def __init__(
        self, rules: RuleSet | None = None, *, fence: Callable[[], PatternFence] = PatternFence
    ) -> None:
        own = rules or RuleSet()
        self.rules = own.rules + shipped_rules(own.shipped)
        """In the order in which they are asked."""
        self._fence = fence

    def advise(self, info: AgentFailureInfo, history: History) -> Verdict | None:
        with self._fence() as fence:
            rule = first_match(self.rules, info, history, fence.search)
        problems = tuple(fence.problems)
        if rule is not None:
            return Verdict(rule.strategy, rule.title, rule.reason, rule.backoff, problems)
        if problems:
            # What went wrong has to be told, and only a verdict can carry it.
            nothing = "no rule applies as far as could be told"
            return Verdict(FailoverStrategy.NORMAL_FAILOVER, "default", nothing, None, problems)
        return None

    def close(self) -> None:
        """Nothing is kept open between decisions."""
