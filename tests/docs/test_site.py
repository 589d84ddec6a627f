"""The documentation as a site: every page is in its navigation, and mkdocs finds nothing wrong."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.site_pages import named_fences, without_ways_out
from tests.project.documents import ROOT, text

SITE = yaml.safe_load(text("mkdocs.yml"))


def test_the_navigation_has_every_page_once() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in pages if page.startswith("adr/") and page != "adr/README.md"}
    assert sorted(navigated(SITE["nav"])) == sorted(pages - decisions)


def test_a_link_out_of_the_documentation_becomes_its_words() -> None:
    page = "See [it](../../examples/x.py), [this](why.md#for-programs) and ![a](../images/a.png)."
    assert without_ways_out(page, "how-to") == page.replace("[it](../../examples/x.py)", "it")


def test_a_file_has_its_name_above_it() -> None:
    page = "```toml rules.toml\na = 1\n```\n```console dry-run\n$ ls\n```\n"
    assert named_fences(page) == ("`rules.toml`:\n\n```toml\na = 1\n```\n```console\n$ ls\n```\n")


@pytest.mark.full
def test_mkdocs_builds_it_and_finds_nothing_wrong(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert "--nproc-per-node" in (tmp_path / "reference/settings/index.html").read_text()


def navigated(nav: Any) -> Iterator[str]:
    match nav:
        case str(page):
            yield page
        case dict() as parts:
            for part in parts.values():
                yield from navigated(part)
        case _:
            for part in nav:
                yield from navigated(part)
