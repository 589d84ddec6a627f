"""From a text or a TOML value to a setting's own type; one wording whatever the source."""

from difflib import get_close_matches

from dlrover_cli.config.declaring import Kind, Setting
from dlrover_cli.config.sources import Source
from dlrover_cli.errors import ConfigError

Value = str | int | float | bool | tuple[str, ...]


def read_text(setting: Setting, text: str, source: Source) -> Value:
    """The value of `setting` that `text` stands for, on the command line or in a variable."""
    match setting.kind:
        case Kind.TEXT:
            return _checked_choice(setting, text, source)
        case Kind.TEXTS:
            return _listed(setting, text)
        case Kind.FLAG:
            return bool(_number(setting, text, source))
        case Kind.WHOLE | Kind.NUMBER:
            return _number(setting, text, source)


def read_toml(setting: Setting, value: object, source: Source) -> Value:
    """The value of `setting` that stands in a config file."""
    match setting.kind, value:
        case Kind.FLAG, bool(given):
            return given
        case (Kind.FLAG, _) | (_, bool()):
            pass
        case Kind.TEXT, str(text):
            return _checked_choice(setting, text, source)
        case Kind.TEXT, int(digits) if setting.numeric:
            return str(digits)
        case Kind.TEXTS, str(text):
            return _listed(setting, text)
        case Kind.TEXTS, list(items) if all(isinstance(item, str) for item in items):
            return tuple(items)
        case Kind.WHOLE, int(number):
            return number
        case Kind.NUMBER, int(number) | float(number):
            return float(number)
    wanted, example = _WANTED_IN_TOML[setting.kind]
    raise ConfigError(
        f"{source.subject} takes {wanted}, not {shown(value)}.",
        setting=setting.name,
        hint=f"Write it like this: {source.example(example)}",
    )


def shown(value: object, *, table: str = "a table") -> str:
    """A value of a TOML or YAML file as a complaint speaks of it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r}"
        case list():
            return "a list"
        case dict():
            return table
        case _:
            return "a date or time"


def _checked_choice(setting: Setting, text: str, source: Source) -> str:
    if not setting.choices or text in setting.choices:
        return text
    near = get_close_matches(text, setting.choices, n=1)
    best = near[0] if near else setting.choices[0]
    raise ConfigError(
        f"{source.subject} takes {_either(setting.choices)}, not {text!r}.",
        setting=setting.name,
        hint=f"Did you mean {source.example(best)}?" if near else f"Write {source.example(best)}",
    )


def _listed(setting: Setting, text: str) -> tuple[str, ...]:
    if setting.whole:
        return (text,)
    if setting.repeatable:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    # As torchrun: a doubled comma is a comma, a single one separates. NUL cannot be in an argument.
    return tuple(item.replace("\0", ",") for item in text.replace(",,", "\0").split(","))


def _number(setting: Setting, text: str, source: Source) -> int | float:
    wanted, example = _WANTED_IN_TEXT[setting.kind]
    try:
        return float(text) if setting.kind is Kind.NUMBER else int(text)
    except ValueError:
        raise ConfigError(
            f"{source.subject} takes {wanted}, not {text!r}.",
            setting=setting.name,
            hint=f"Write it like this: {source.example(example)}",
        ) from None


def _either(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]


_WANTED_IN_TEXT = {
    Kind.FLAG: ("1 or 0", "1"),
    Kind.WHOLE: ("a whole number", "3"),
    Kind.NUMBER: ("a number", "0.5"),
}
_WANTED_IN_TOML = {
    Kind.TEXT: ("a text", '"..."'),
    Kind.TEXTS: ("a list of texts", '["...", "..."]'),
    Kind.FLAG: ("true or false", "true"),
    Kind.WHOLE: ("a whole number", "3"),
    Kind.NUMBER: ("a number", "0.5"),
}
