"""The ways in which a plugin can be wrong, and the words for an exception from a user's code."""

import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from dlrover_cli.errors import PluginError

_OURS = Path(__file__).resolve().parent.parent
_INSTALLED = tuple(
    Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_LONGEST_MESSAGE = 300


class PluginFault(StrEnum):
    """Why a plugin cannot be used: one member for each thing that a user would do differently."""

    NO_SEPARATOR = "no-separator"
    EMPTY_PART = "empty-part"
    MALFORMED = "malformed"
    NO_MODULE = "no-module"
    MISSING_DEPENDENCY = "missing-dependency"
    SYNTAX_ERROR = "syntax-error"
    EXITS_AT_IMPORT = "exits-at-import"
    IMPORT_RAISED = "import-raised"
    NO_ATTRIBUTE = "no-attribute"
    NOT_A_CLASS = "not-a-class"
    NOT_CALLABLE = "not-callable"
    WRONG_BASE = "wrong-base"
    ABSTRACT_METHODS = "abstract-methods"
    WRONG_SIGNATURE = "wrong-signature"
    CONSTRUCTOR_RAISED = "constructor-raised"
    WRONG_RESULT = "wrong-result"
    NO_ENTRY_POINT = "no-entry-point"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a complaint is about: how its sentence begins, and the reference that was given."""

    text: str
    reference: str

    @classmethod
    def of_option(cls, option: str, reference: str) -> "Subject":
        """`--rdzv_handler=a::B`; with words for an option, `plugin reference 'a::B'`."""
        if option.startswith("-"):
            return cls(f"{option}={reference}", reference)
        return cls(f"{option} {reference!r}", reference)

    def fault(self, reason: PluginFault, message: str, *, hint: str) -> PluginError:
        return PluginError(
            f"{self.text}: {message}", reference=self.reference, reason=reason, hint=hint
        )


def describe(error: BaseException) -> str:
    """`ValueError: no such port`, on one line and of bounded length."""
    name = type(error).__name__
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r})"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the class is the user's, and so is its __str__
        return name
    text = " ".join(text.split())
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "…"
    return f"{name}: {text}" if text else name


def user_frame(error: BaseException) -> str:
    """` (at file:line, in function)`: where the user's own code stood last; empty if nowhere.

    The innermost frame is often in a library that the user called; the line that can be mended
    is the last one that is neither ours nor installed.
    """
    frames = list(_foreign_frames(error.__traceback__))
    own = [frame for frame in frames if not _is_installed(frame.filename)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f" (at {frame.filename}:{frame.lineno}, in {frame.name})"


def must_propagate(error: BaseException) -> bool:
    """Whether it is the user's or the system's wish to stop, which no plugin is to blame for."""
    return isinstance(error, KeyboardInterrupt) or any(
        # By name, since this package does not import torch.
        cls.__name__ == "SignalException" and cls.__module__.startswith("torch.distributed.elastic")
        for cls in type(error).__mro__
    )


def _foreign_frames(trace: TracebackType | None) -> Iterator[traceback.FrameSummary]:
    for frame in traceback.extract_tb(trace):
        if frame.filename.startswith("<frozen ") or _OURS in Path(frame.filename).parents:
            continue
        if frame.filename.startswith("<") or "importlib" in Path(frame.filename).parts:
            continue
        yield frame


def _is_installed(filename: str) -> bool:
    path = Path(filename)
    return any(prefix in path.parents for prefix in _INSTALLED) or "dist-packages" in path.parts
