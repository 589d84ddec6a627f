"""Every Markdown file: its links and pictures lead to files, its anchors to headings."""

import os
import re
from pathlib import Path

import pytest

from tests.project.documents import ROOT, tracked_files

PAGES = sorted(path for path in tracked_files() if path.suffix == ".md")
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_lead_to_files_and_headings(page: Path) -> None:
    assert [target for target in links(page) if not leads_somewhere(page, target)] == []


@pytest.mark.parametrize("folder", ["tutorial", "how-to", "reference", "explanation"])
def test_the_index_has_every_page_in_its_part(folder: str) -> None:
    index = prose(DOCS / "README.md")
    [part] = re.findall(rf"^## {folder}\n(.*?)(?=^## |\Z)", index, re.M | re.S | re.I)
    linked = [os.path.normpath(DOCS / target) for target in _LINK.findall(part)]
    pages = [name for name in linked if name.endswith(".md") and "/adr/" not in name]
    assert sorted(pages) == sorted(str(path) for path in (DOCS / folder).glob("*.md"))


def test_no_page_lies_outside_of_the_parts() -> None:
    assert [path.name for path in DOCS.glob("*.md")] == ["README.md"]


def links(page: Path) -> list[str]:
    return [target for target in _LINK.findall(prose(page)) if "://" not in target]


def leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = page if not name else page.parent / name
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file)


def anchors(page: Path) -> set[str]:
    """The names under which a browser finds the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose(page: Path) -> str:
    """The text of a page without its blocks of code, where brackets are no links."""
    return _FENCE.sub("", page.read_text())
