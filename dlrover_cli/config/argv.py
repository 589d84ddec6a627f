"""Reads a command line as torchrun's argparse does, and rewrites it so that nothing is implied.

`-mt3 pkg.train --lr 1` becomes `--module --tee=3 -- pkg.train --lr 1`. What argparse refuses is
refused here in a sentence; where the two differ on purpose,
docs/reference/torchrun-compat.md says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from dlrover_cli.config.declaring import Action, Kind, Option, Setting
from dlrover_cli.config.settings import OPTIONS
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.config.values import read_text
from dlrover_cli.errors import UsageError


def normalise_argv(argv: Sequence[str]) -> list[str]:
    """The same command line as `--name=value` and `--flag` tokens, then `--`, script and arguments.

    An option that answers at once, such as `--help`, comes back alone.
    """
    tokens: list[str] = []
    unknown: list[str] = []
    words = list(argv)
    while words and words[0] != "--":
        named = _option_of(words[0])
        if named is None:
            break
        spelled = words.pop(0)
        if named is _UNKNOWN:
            # Reported at the end, as argparse does: a --help further on is still answered.
            unknown.append(spelled)
            continue
        for each in _unpacked(named, words):
            if isinstance(each.option, Action):
                return [each.option.option]
            tokens.append(_canonical(each.option, each))
    if unknown:
        raise _unknown_option(unknown[0])
    script = words[1:] if words[:1] == ["--"] else words
    if not script:
        raise UsageError(
            "There is no script to run.",
            hint="Put it after the options, as in: dlrover-run --standalone train.py",
        )
    return [*tokens, "--", *script]


@dataclass(frozen=True, slots=True)
class _Named:
    """An option as it was found: how it was spelled, and the value that was stuck to it."""

    option: Option
    spelled: str
    value: str | None = None


_UNKNOWN = _Named(option=Action(option="", about=""), spelled="")


def _option_of(word: str) -> _Named | None:
    """The option that `word` names, `_UNKNOWN`, or None if it is a value or a script."""
    if not word.startswith("-") or word == "-":
        return None
    if word in _EXACT:
        return _Named(_EXACT[word], word)
    name, equals, value = word.partition("=")
    if equals and name in _EXACT:
        return _Named(_EXACT[name], name, value)
    if word.startswith("--"):
        named = _by_prefix(name)
        if named is not None:
            return _Named(named, name, value if equals else None)
    elif word[:2] in _EXACT:
        return _Named(_EXACT[word[:2]], word[:2], word[2:])
    if _NEGATIVE_NUMBER.match(word) or " " in word:
        return None
    return _UNKNOWN


def _by_prefix(prefix: str) -> Option | None:
    """The one option whose name starts so; torchrun's names come first, so ours never hide them."""
    for names in (_TORCHRUN, _OURS):
        found = {id(option): option for name, option in names.items() if name.startswith(prefix)}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise _ambiguous(prefix, [option.option for option in found.values()])
    return None


def _unpacked(named: _Named, words: list[str]) -> list[_Named]:
    """`named` and the short options stuck to it (`-mt3`); a value may be taken from `words`."""
    found: list[_Named] = []
    while not _takes_value(named.option) and named.value is not None:
        stuck = "-" + named.value[:1]
        if named.spelled.startswith("--") or stuck not in _EXACT:
            raise _takes_no_value(named)
        found.append(_Named(named.option, named.spelled))
        named = _Named(_EXACT[stuck], stuck, named.value[1:] or None)
    if _takes_value(named.option) and named.value is None:
        if not words or words[0] == "--" or _option_of(words[0]) is not None:
            raise _needs_value(named, words[0] if words else None)
        named = _Named(named.option, named.spelled, words.pop(0))
    return [*found, named]


def _takes_value(option: Option) -> bool:
    return isinstance(option, Setting) and option.kind is not Kind.FLAG


def _canonical(setting: Setting, named: _Named) -> str:
    if named.value is None:
        return setting.option
    # Read for its complaints: they name the option as it was typed, and come in the order typed.
    read_text(setting, named.value, Source(SourceKind.FLAG, named.spelled))
    return f"{setting.option}={named.value}"


def _unknown_option(spelled: str) -> UsageError:
    name = spelled.partition("=")[0]
    near = get_close_matches(name.replace("_", "-"), _SHOWN, n=1, cutoff=0.7)
    return UsageError(
        f"There is no option {name}.",
        hint=f"Did you mean {near[0]}?"
        if near
        else "The script's own options go after the script; ours are in: dlrover-run --help",
    )


def _ambiguous(prefix: str, options: list[str]) -> UsageError:
    return UsageError(
        f"{prefix} could be {', '.join(options[:-1])} or {options[-1]}.",
        hint="Write the one you mean in full.",
    )


def _takes_no_value(named: _Named) -> UsageError:
    assert named.value is not None
    hint = f"Write {named.spelled} alone."
    if not named.spelled.startswith("--") and named.value:
        hint = f"Leave a space: {named.spelled} {named.value.removeprefix('=')}"
    return UsageError(f"{named.spelled} takes no value, but has {named.value!r}.", hint=hint)


def _needs_value(named: _Named, following: str | None) -> UsageError:
    metavar = named.option.metavar if isinstance(named.option, Setting) else ""
    hint = f"Write {named.spelled}={metavar or 'VALUE'}"
    if following is None or following == "--":
        return UsageError(f"{named.spelled} needs a value.", hint=hint)
    if _option_of(following) is _UNKNOWN:
        hint = f"If {following} is the value, write {named.spelled}={following}"
    return UsageError(
        f"{named.spelled} needs a value, but the option {following} follows.", hint=hint
    )


def _names(*, torchrun: bool) -> Mapping[str, Option]:
    return {
        spelling: option
        for option in OPTIONS
        if option.torchrun is torchrun
        for spelling in option.spellings
    }


_TORCHRUN = _names(torchrun=True)
_OURS = _names(torchrun=False)
_EXACT = {**_OURS, **_TORCHRUN}
_SHOWN = [option.option for option in OPTIONS]
_NEGATIVE_NUMBER = re.compile(r"^-\d+$|^-\d*\.\d+$")
