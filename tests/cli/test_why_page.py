"""The page of `dlrover-job why`: nothing in it is taken for HTML, and a real browser shows it."""

import json
import re
import subprocess
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.why_page import page_of
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.diagnosis.run_story import RunStory
from tests.diagnosis.journals import START, Journals, one_restart
from tests.harness.engines import need_program

HOSTILE = (
    '</title></pre><img src="https://example.com/x" onerror="alert(1)"><script>alert(2)</script>'
)
NARROW, WIDE = 380, 1100
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 27)"


@pytest.fixture
def story(tmp_path: Path) -> RunStory:
    """One of a run in which everything that a job can name is hostile."""
    journals = Journals(tmp_path / "run")
    one_restart(journals)
    for second in range(3, 6):
        journals.sample(second, 0, second * 7, second * 7)
    for second in range(6, 11):
        journals.sample(second, 1, second * 9, second * 9)
    journals.node(4, "no_progress_warning", minutes=5, where=HOSTILE, stacks={HOSTILE: HOSTILE})
    journals.node(5, "agent_lost", None, f"{'n' * 150}.1", agent=HOSTILE, reason=HOSTILE)
    journals.decided(5.05, 0, HOSTILE, decided_by=HOSTILE, problems=[HOSTILE])
    journals.life(3, "state", to=HOSTILE, reason=HOSTILE)
    verdict: dict[str, Any] = dict.fromkeys(
        ("host", "what", "when", "others", "decided", "logs"), HOSTILE
    )
    frame = {"file": HOSTILE, "line": 1, "function": HOSTILE, "source": HOSTILE}
    verdict |= {"rank": 1, "at": START, "frames": [frame], "last_words": [HOSTILE], "cause": None}
    journals.result(verdict=verdict, hint=HOSTILE)
    told = journals.story(ended=12)
    about = replace(told.about, name=HOSTILE, reason=HOSTILE, engine=HOSTILE)
    return replace(told, about=about, reason=HOSTILE, unreadable=(HOSTILE,))


class Tags(HTMLParser):
    """Which elements and attributes a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_nothing_of_a_run_is_taken_for_html(story: RunStory) -> None:
    page = page_of(story)
    tags = Tags(page)
    assert tags.names.isdisjoint({"script", "img", "link", "iframe", "object", "a"})
    assert tags.attributes.isdisjoint({"src", "href", "onerror"})
    assert page.count(escape(HOSTILE)) > 10
    assert "default-src 'none'" in unescape(page)


def test_the_traceback_of_a_failure_and_the_stacks_of_its_ranks_are_there(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    journals.state(0, "STARTING")
    journals.started(2, 0, 0, 1)
    stacks = {"0": 'File "train.py", line 9 in load_batch'}
    journals.failed(5, 0, 1, stacks=stacks)
    page = unescape(page_of(journals.story(ended=6)))
    assert "Traceback: vm.1, rank 1 raised ValueError" in page
    assert "Stack of rank 0" in page
    assert stacks["0"] in page


def test_a_timeline_of_many_ranks_and_attempts_says_what_it_leaves_out(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    journals.state(0, "STARTING")
    for attempt in range(70):
        journals.started(2 + attempt, attempt, *range(100))
    page = page_of(journals.story(ended=100))
    assert "64 of 100 ranks are shown" in page
    assert "The last 62 of 70 attempts are shown" in page


@pytest.mark.parametrize(
    "seconds,shown",
    [
        (0.34, ["0", "100ms", "200ms", "300ms"]),
        (3.7, ["0", "1s", "2s", "3s"]),
        (12, ["0", "5s", "10s"]),
        (83, ["0", "30s", "1m"]),
        (600, ["0", "2m", "4m", "6m", "8m", "10m"]),
        (12345, ["0", "1h", "2h", "3h"]),
        (86400 * 9, ["0", "2d", "4d", "6d", "8d"]),
        (86400 * 365, ["0", "365d"]),
    ],
)
def test_the_times_below_the_timeline_are_round(
    tmp_path: Path, seconds: float, shown: list[str]
) -> None:
    journals = Journals(tmp_path)
    journals.state(0, "STARTING")
    journals.started(0, 0, 0)
    journals.result()
    page = page_of(journals.story(ended=seconds))
    assert re.findall(r">(\d\w*)</text>", page) == shown


def test_the_last_time_of_a_run_that_goes_on_is_now(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    journals.state(0, "STARTING")
    journals.started(0, 0, 0)
    page = page_of(journals.story(RunState.RUNNING, now=10.5))
    assert re.findall(r">([\dn]\w*)</text>", page) == ["0", "5s", "now"]


def test_the_step_rate_is_drawn_where_steps_were_counted(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    one_restart(journals)
    assert "Step rate" not in page_of(journals.story(ended=12))
    journals.sample(7, 1, 10, 10)
    journals.sample(9, 1, 14, 14)
    page = page_of(journals.story(ended=12))
    assert 'Step rate <span class="quiet">up to 2.0 steps/s</span>' in page
    assert page.count('<path class="rate"') == 1
    assert "<title>attempt 1: 2.0 steps/s on average</title>" in page


def test_a_rank_that_went_down_with_a_lost_node_did_not_fail_first(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    journals.state(0, "STARTING")
    journals.started(1, 0, 0, 1)
    journals.failed(2, 0, 1)
    journals.exited(2.1, 0, 1, 1)
    journals.decided(2.2, 0, "admit", trigger="membership", node_rank=None, reason="b is lost")
    page = page_of(journals.story(ended=3))
    assert 'rect class="taken"' in page
    assert 'rect class="failed"' not in page
    assert "<circle" not in page


def seen(page: str, width: int, tmp_path: Path, *, is_dark: bool) -> dict[str, Any]:
    """What a browser makes of a page in a frame of this width."""
    watcher = f"""<!doctype html><iframe style="border:0;height:600px;width:{width}px"
        srcdoc="{escape(page)}"></iframe><output></output><script>
        onload = () => {{
          const page = document.querySelector("iframe").contentDocument;
          const svg = page.querySelector("svg").getBoundingClientRect();
          const plot = page.querySelectorAll("svg")[1].getBoundingClientRect();
          const lines = [...page.querySelectorAll("path.rate")]
            .map(each => each.getBoundingClientRect());
          const bars = [...page.querySelectorAll("rect")].map(each => each.getBoundingClientRect());
          document.querySelector("output").textContent = JSON.stringify({{
            width: page.documentElement.scrollWidth,
            ground: getComputedStyle(page.body).backgroundColor,
            size: getComputedStyle(page.querySelector("svg text")).fontSize,
            title: page.title,
            images: page.querySelectorAll("img, script").length,
            requests: page.defaultView.performance.getEntriesByType("resource").length,
            bars: bars.length,
            inside: bars.every(each => each.left >= svg.left - 1 && each.right <= svg.right + 1),
            plot: [plot.left - svg.left, plot.width - svg.width],
            lines: lines.length,
            drawn: lines.every(each => each.width > 10 && each.left >= plot.left - 2
              && each.right <= plot.right + 2 && each.top >= plot.top - 2
              && each.bottom <= plot.bottom + 2),
            opened: page.querySelectorAll("details[open]").length,
          }});
        }};</script>"""
    file = tmp_path / "watcher.html"
    file.write_text(watcher)
    command = [
        need_program("chromium", "chromium"),
        *("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"),
        *("--window-size=1400,900", f"--user-data-dir={tmp_path / 'profile'}"),
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        "--dump-dom",
        file.as_uri(),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    [found] = re.findall(r"<output>(.*?)</output>", finished.stdout)
    parsed: dict[str, Any] = json.loads(unescape(found))
    return parsed


@pytest.mark.full
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_browser_shows_it_on_a_phone_and_on_a_screen_light_and_dark(
    story: RunStory, tmp_path: Path, width: int, is_dark: bool
) -> None:
    found = seen(page_of(story), width, tmp_path, is_dark=is_dark)
    assert found["width"] <= width  # nothing has to be pushed aside to be read
    assert found["ground"] == (DARK if is_dark else LIGHT)
    assert found["size"] == "12px"
    assert found["title"].startswith(HOSTILE)
    assert found["images"] == 0
    assert found["requests"] == 0
    assert found["bars"] == 4
    assert found["inside"]
    assert found["plot"] == [0, 0]  # below the timeline, on the same scale
    assert found["lines"] == 2
    assert found["drawn"]
    assert found["opened"] >= 2
