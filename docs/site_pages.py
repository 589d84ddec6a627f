"""What the site shows otherwise than a checkout: files by their names, and no way out of docs/.

In a page, ```` ```toml rules.toml ```` begins a file that the tests use, and links may lead to the
sources. The site has the name above the code, and plain words for such links.
"""

import os
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:]+)\)")
_FENCE = re.compile(r"^```(?P<language>\S+) +(?P<name>\S.*)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return named_fences(without_ways_out(markdown, os.path.dirname(page.file.src_uri)))


def without_ways_out(markdown: str, folder: str) -> str:
    """The page in ``folder`` with the links into docs/ only."""

    def kept(found: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(folder, found[2]))
        return found[1] if target.startswith("..") else found[0]

    return _LINK.sub(kept, markdown)


def named_fences(markdown: str) -> str:
    """The names of files above their code; mkdocs knows no second word after the language."""

    def named(found: re.Match[str]) -> str:
        fence = f"```{found['language']}"
        if found["language"] == "console":
            return fence
        return f"`{found['name']}`:\n\n{fence}"

    return _FENCE.sub(named, markdown)
