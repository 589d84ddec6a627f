"""An extender file: `extender.*` arguments alone, plugin entries, or Volcano's whole configuration.

    extender.urlPrefix: …        - name: extender        actions: "allocate, backfill"
    extender.predicateVerb: …      arguments: …          tiers: [{plugins: [{name: extender, …}]}]

Other plugins' entries are named and skipped. `queues`, which is ours, may stand beside any mapping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.config.go_durations import parse_go_duration
from dlrover_cli.config.quantities import parse_quantity
from dlrover_cli.config.yaml_tree import BadYaml, read_yaml
from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.errors import UsageError
from dlrover_cli.scheduling.arguments import PREFIX, make_settings, suggestion
from dlrover_cli.scheduling.settings import (
    DEFAULT_ACTIONS,
    DEFAULT_AGING,
    Action,
    ExtenderSettings,
    QueueSettings,
    SchedulingConfig,
)

LARGEST = 1 << 20
EXTENDER = "extender"
_TOP = ("actions", "tiers", "plugins", "queues", "configurations")
_AGENTS = "agents"

Keys = tuple[str | int, ...]


def read_extender_file(path: Path) -> SchedulingConfig:
    """What a file says. Raises UsageError with the line where there is one."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UsageError(f"{path} is larger than 1 MiB", hint="Is this the extender file?")
        return parse_extender_file(content.decode("utf-8-sig"), path)
    except OSError as error:
        hint = "Name a file such as extender.yaml that is there."
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: it is not UTF-8", hint="Save it as UTF-8.") from None


def parse_extender_file(text: str, path: Path) -> SchedulingConfig:
    """The same for a text; ``path`` is for messages, and for relative paths in it."""
    try:
        value, lines = read_yaml(text)
    except BadYaml as bad:
        place = f"{path}:{bad.line}" if bad.line else str(path)
        raise UsageError(f"{place}: {bad}", hint=bad.hint) from None
    return _File(path, lines).read(value)


@dataclass(frozen=True, slots=True)
class _File:
    """Where values stand, and the words for what is wrong with them."""

    path: Path
    lines: Mapping[Keys, int]

    def read(self, root: Any) -> SchedulingConfig:
        if isinstance(root, list):
            extenders, skipped = self._entries(root, ())
            return SchedulingConfig(_implied_actions(extenders), extenders, {}, skipped)
        top = self._mapping(root, (), "an extender file")
        if "name" in top:
            extenders, skipped = self._entries([top], None)
            return SchedulingConfig(_implied_actions(extenders), extenders, {}, skipped)
        bare = {key: value for key, value in top.items() if key.startswith(PREFIX)}
        for key in top:
            if key not in bare and key not in _TOP:
                hint = suggestion(key, (*_TOP, "extender.urlPrefix"))
                raise self.wrong((key,), f"{key!r} has no meaning here", hint)
        extenders, skipped = self._extenders(top, bare)
        actions = self._actions(top.get("actions"))
        return SchedulingConfig(
            _implied_actions(extenders) if actions is None else actions,
            extenders,
            self._queues(top.get("queues")),
            (*skipped, *(["configurations"] if "configurations" in top else [])),
        )

    def wrong(self, keys: Keys, what: str, hint: str) -> UsageError:
        """A complaint about what stands there, or about what is nearest above it."""
        for length in range(len(keys), 0, -1):
            if line := self.lines.get(keys[:length]):
                return UsageError(f"{self.path}:{line}: {what}", hint=hint)
        return UsageError(f"{self.path}: {what}", hint=hint)

    def _extenders(
        self, top: Mapping[str, Any], bare: Mapping[str, Any]
    ) -> tuple[tuple[ExtenderSettings, ...], tuple[str, ...]]:
        given = [name for name in ("tiers", "plugins") if name in top]
        if (bare and given) or len(given) > 1:
            what = f"an extender is described here and under {given[-1]!r}"
            raise self.wrong((given[-1],), what, "Keep one of the two.")
        if bare:
            return (self._one(bare, ()),), ()
        if "plugins" in top:
            return self._entries(top["plugins"], ("plugins",))
        extenders: list[ExtenderSettings] = []
        skipped: list[str] = []
        for number, tier in enumerate(self._list(_or(top.get("tiers"), []), ("tiers",), "tiers")):
            keys = ("tiers", number)
            plugins = self._mapping(tier, keys, "a tier").get("plugins")
            found, others = self._entries(_or(plugins, []), (*keys, "plugins"))
            extenders += found
            skipped += others
        return tuple(extenders), tuple(skipped)

    def _entries(
        self, entries: Any, above: Keys | None
    ) -> tuple[tuple[ExtenderSettings, ...], tuple[str, ...]]:
        """Those of extenders as settings, and the names of the others."""
        extenders, skipped = [], []
        for number, written in enumerate(self._list(entries, above or (), "plugins")):
            keys: Keys = () if above is None else (*above, number)
            entry = self._mapping(written, keys, "a plugin")
            name = entry.get("name")
            if not isinstance(name, str) or not name:
                raise self.wrong(keys, "a plugin has no name", "Begin it with - name: extender")
            if name != EXTENDER:
                skipped.append(name)
                continue
            self._check_entry(entry, keys)
            arguments = _or(entry.get("arguments"), {})
            keys = (*keys, "arguments")
            extenders.append(self._one(self._mapping(arguments, keys, "arguments"), keys))
        return tuple(extenders), tuple(skipped)

    def _check_entry(self, entry: Mapping[str, Any], keys: Keys) -> None:
        for key, value in entry.items():
            if key in ("name", "arguments"):
                continue
            if not key.startswith("enable"):
                hint = suggestion(key, ("name", "arguments"))
                raise self.wrong((*keys, key), f"{key!r} has no meaning in a plugin", hint)
            if value is not True:
                hint = "Leave out the verb that is not to be called."
                raise self.wrong((*keys, key), f"{key} cannot turn a hook off here", hint)

    def _one(self, arguments: Mapping[str, Any], keys: Keys) -> ExtenderSettings:
        def wrong(key: str, what: str, hint: str) -> UsageError:
            return self.wrong((*keys, key), what, hint)

        return make_settings(arguments, self.path.parent, wrong)

    def _actions(self, written: Any) -> tuple[Action, ...] | None:
        if written is None:
            return None
        names = written.split(",") if isinstance(written, str) else written
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            hint = 'Write actions: "reclaim, allocate, backfill, preempt"'
            raise self.wrong(("actions",), f"actions are names, not {written!r}", hint)
        actions: list[Action] = []
        for name in (name.strip() for name in names):
            if name in ("", "enqueue"):  # which every session begins with
                continue
            if name not in tuple(Action):
                hint = suggestion(name, (*Action, "enqueue"))
                raise self.wrong(("actions",), f"there is no action {name!r}", hint)
            if name in actions:
                raise self.wrong(("actions",), f"{name} stands twice", "Keep one of the two.")
            actions.append(Action(name))
        if not {Action.ALLOCATE, Action.BACKFILL} & set(actions):
            hint = 'Write actions: "allocate, backfill"'
            raise self.wrong(("actions",), "no job ever starts without allocate", hint)
        return tuple(actions)

    def _queues(self, written: Any) -> dict[str, QueueSettings]:
        queues = {}
        for name, about in self._mapping(_or(written, {}), ("queues",), "queues").items():
            keys = ("queues", name)
            table = self._mapping(_or(about, {}), keys, f"the queue {name!r}")
            for key in table:
                if key not in _QUEUE_KEYS:
                    hint = suggestion(key, _QUEUE_KEYS)
                    raise self.wrong((*keys, key), f"{key!r} has no meaning in a queue", hint)
            queues[name] = QueueSettings(
                self._capacity(table.get("capacity"), (*keys, "capacity")),
                self._weight(table.get("weight", 1), (*keys, "weight")),
                self._reclaimable(table.get("reclaimable", True), (*keys, "reclaimable")),
                self._aging(table.get("aging"), (*keys, "aging")),
            )
        return queues

    def _capacity(self, written: Any, keys: Keys) -> dict[str, float]:
        if written is None:
            return {}
        amounts = written if isinstance(written, dict) else {_AGENTS: written}
        capacity = {}
        for name, amount in amounts.items():
            try:
                capacity[name] = parse_quantity(amount)
            except ValueError as error:
                hint = "Write capacity: 4 for four agents, or capacity: {nvidia.com/gpu: 16}"
                raise self.wrong((*keys, name), f"capacity: {error}", hint) from None
        return capacity

    def _weight(self, written: Any, keys: Keys) -> int:
        if isinstance(written, bool) or not isinstance(written, int) or not 1 <= written < 2**31:
            what = f"weight is a whole number from 1 on, not {written!r}"
            raise self.wrong(keys, what, "Write weight: 2")
        return written

    def _reclaimable(self, written: Any, keys: Keys) -> bool:
        if not isinstance(written, bool):
            what = f"reclaimable is true or false, not {written!r}"
            raise self.wrong(keys, what, "Write reclaimable: false")
        return written

    def _aging(self, written: Any, keys: Keys) -> float | None:
        if written is None:
            return DEFAULT_AGING
        if written == _NEVER:
            return None
        hint = "Write aging: 10m for ten minutes, or aging: never"
        if not isinstance(written, str):
            raise self.wrong(keys, f"aging is a time, not {written!r}", hint)
        try:
            seconds = parse_go_duration(written)
        except ValueError as error:
            raise self.wrong(keys, f"aging: {error}", hint) from None
        if seconds <= 0:
            raise self.wrong(keys, f"aging is longer than nothing, not {written!r}", hint)
        return seconds

    def _mapping(self, written: Any, keys: Keys, what: str) -> Mapping[str, Any]:
        if isinstance(written, dict):
            return written
        shown = "empty" if written is None else f"{written!r}"[:80]
        hint = "Begin it with extender.urlPrefix: http://127.0.0.1:8080"
        raise self.wrong(keys, f"{what} holds names and values; it is {shown}", hint)

    def _list(self, written: Any, keys: Keys, what: str) -> Sequence[Any]:
        if isinstance(written, list):
            return written
        hint = "Write each of them with a dash in front."
        raise self.wrong(keys, f"{what} is a list, not {written!r:.80}", hint)


def _implied_actions(extenders: Sequence[ExtenderSettings]) -> tuple[Action, ...]:
    """Where none are named: to start jobs, and whatever a service was given a verb for."""
    verbs = {verb for extender in extenders for verb in extender.verbs}
    reclaim = (Action.RECLAIM,) if Verb.RECLAIMABLE in verbs else ()
    preempt = (Action.PREEMPT,) if Verb.PREEMPTABLE in verbs else ()
    return (*reclaim, *DEFAULT_ACTIONS, *preempt)


def _or(written: Any, absent: Any) -> Any:
    """What is written; a name without a value is as if it were not there."""
    return absent if written is None else written


_QUEUE_KEYS = ("capacity", "weight", "reclaimable", "aging")
_NEVER = "never"
