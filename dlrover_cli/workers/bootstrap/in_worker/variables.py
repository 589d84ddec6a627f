"""Local variables of a frame as short text, without running any of their code.

A ``repr`` may be a user's, may copy a tensor from a device that has just failed, may take minutes.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_NAMES = 40
_LONGEST = 200
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_SIZED = (list, tuple, dict, set, frozenset)
_ARRAYS = ("torch.Tensor", "torch.nn.parameter.Parameter", "numpy.ndarray")


def describe(variables: "Mapping[str, object]") -> dict[str, str]:
    """Name to text; modules, functions and classes are left out."""
    shown: dict[str, str] = {}
    for name, value in variables.items():
        if len(shown) == _MOST_NAMES:
            break
        if not name.startswith("__") and not isinstance(value, type) and not _is_code(value):
            shown[name] = _text(value)
    return shown


def _text(value: object) -> str:
    kind = type(value)
    if kind in _PLAIN:
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    if kind in _SIZED:
        return f"<{kind.__name__} of {len(value)}>"  # type: ignore[arg-type]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _ARRAYS:
        shape = tuple(getattr(value, "shape", ()))
        device = getattr(value, "device", "cpu")
        return f"<{kind.__name__} {shape} {getattr(value, 'dtype', '')} {device}>"
    return f"<{name}>"


def _is_code(value: object) -> bool:
    return type(value).__name__ in ("module", "function", "builtin_function_or_method", "method")
