"""The help page: plain text in panels, made from the settings, without loading Rich.

It is read at 80 columns, in a pager and in CI logs, and asked for more often than anything else, so
it must be quick and must not depend on a terminal.
"""

from textwrap import wrap

from dlrover_cli.config.declaring import Kind, Option, Panel, Setting
from dlrover_cli.config.settings import ACTIONS, SETTINGS

USAGE = "dlrover-run [OPTIONS] SCRIPT [ARGS]..."
INTRO = (
    "Run a training script on many workers, as torchrun does, and know what to do when it fails."
)
EXAMPLES = (
    "dlrover-run --standalone --nproc-per-node=2 train.py --epochs 2",
    "dlrover-run --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=node0 -m pkg.train",
    "dlrover-run --max-restarts=3 --dry-run train.py",
)
OUTRO = (
    "All that follows SCRIPT is passed on to it as it is. Long names may be shortened, and may be "
    "written with _ for -. What is not on the command line is taken from DLROVER_<NAME>, then "
    "PET_<NAME>, then dlrover.toml or [tool.dlrover] of pyproject.toml in the current directory."
)
WIDEST = 120
NAME_COLUMN = 34


def help_page(width: int, *, styled: bool) -> str:
    """The page for a screen of `width` columns; `styled` makes names and headings bold."""
    width = max(60, min(width, WIDEST))
    lines = [_bold("Usage: ", styled) + USAGE, "", *wrap(INTRO, width)]
    for panel in Panel:
        lines += ["", _bold(panel.value, styled)]
        for option in _options_of(panel):
            lines += _entry(option, width, styled)
    lines += ["", _bold("Examples", styled)]
    lines += [f"  {example}" for example in EXAMPLES]
    lines.append("")
    lines += wrap(OUTRO, width)
    return "\n".join(lines)


def option_names(option: Option) -> str:
    """`-r, --redirects 0-3|RANK:0-3,...`"""
    names = ", ".join(filter(None, (option.short, option.option)))
    return f"{names} {_metavar(option)}".rstrip()


def option_text(option: Option) -> str:
    """The option's sentence with its choices and its default."""
    if not isinstance(option, Setting):
        return option.about
    default = default_text(option)
    notes = ["|".join(option.choices), f"default: {default}" if default else ""]
    shown = "; ".join(note for note in notes if note)
    return f"{option.about} [{shown}]" if shown else option.about


def default_text(setting: Setting) -> str:
    """The default in words; empty where there is nothing worth saying."""
    if setting.default_text or setting.kind in (Kind.FLAG, Kind.TEXTS):
        return setting.default_text
    if setting.default is None:
        return ""
    return f"{setting.default:g}" if setting.kind is Kind.NUMBER else str(setting.default)


def _options_of(panel: Panel) -> list[Option]:
    actions = ACTIONS if panel is Panel.INSPECT else ()
    return [*(each for each in SETTINGS if each.panel is panel), *actions]


def _metavar(option: Option) -> str:
    return option.metavar if isinstance(option, Setting) else ""


def _entry(option: Option, width: int, styled: bool) -> list[str]:
    names = option_names(option)
    texts = _wrapped(option_text(option), width - NAME_COLUMN)
    indent = " " * NAME_COLUMN
    shown = "  " + names.replace(option.option, _bold(option.option, styled))
    if len(names) + 4 > NAME_COLUMN:
        return [shown, *(indent + text for text in texts)]
    padding = " " * (NAME_COLUMN - 2 - len(names))
    return [shown + padding + texts[0], *(indent + text for text in texts[1:])]


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap, and keep the notes in brackets at the end in one piece where they fit a line."""
    about, bracket, notes = text.partition("[")
    if len(notes) < width:
        notes = notes.replace(" ", _HARD_SPACE)
    lines = wrap(about + bracket + notes, width, break_on_hyphens=False)
    return [line.replace(_HARD_SPACE, " ") for line in lines]


_HARD_SPACE = "\N{NO-BREAK SPACE}"


def _bold(text: str, styled: bool) -> str:
    return f"\033[1m{text}\033[0m" if styled else text
