"""Calling a user's constructor or creator, with a sentence for what it does not take or raises."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from dlrover_cli.plugins.faults import PluginFault, describe, must_propagate, user_frame
from dlrover_cli.plugins.reference import Found


def construct(
    found: Found,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    hint: str | None = None,
) -> Any:
    """Call what was found; `hint` is for the case that it does not take these arguments."""
    kwargs = kwargs or {}
    if not accepts(found.value, *args, **kwargs):
        given = [*(type(arg).__name__ for arg in args), *(f"{name}=…" for name in kwargs)]
        raise found.subject.fault(
            PluginFault.WRONG_SIGNATURE,
            f"it is called with ({', '.join(given)}) and takes {_signature_text(found.value)}",
            hint=hint or "let it take that, and give its other parameters defaults",
        )
    try:
        return found.value(*args, **kwargs)
    except BaseException as error:  # the boundary to the user's constructor, whatever it raises
        if must_propagate(error):
            raise
        call = "calling it" if not isinstance(found.value, type) else "its constructor"
        raise found.subject.fault(
            PluginFault.CONSTRUCTOR_RAISED,
            f"{call} raised {describe(error)}{user_frame(error)}",
            hint="nothing was started; mend it and run again",
        ) from error


def accepts(target: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a call with these arguments fits; True where Python cannot tell beforehand."""
    signature = signature_of(target)
    if signature is None:
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def signature_of(target: Any) -> inspect.Signature | None:
    """The signature, or None for those in C that have none to show."""
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def _signature_text(target: Any) -> str:
    signature = signature_of(target)
    if signature is None:
        return "something else"
    names = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(names))
