"""Log files: bounded or complete, and the times of what is in them."""

import os
import time

import pytest

from dlrover_cli.workers.log_file import RECORD, LogFile, Watch, WatchedFile, times_beside

LIMIT = 1 << 20


def lines(count, first=0):
    return b"".join(b"line %07d %s\n" % (number, b"x" * 80) for number in range(first, count))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "stderr.log"


def test_a_copy_that_nobody_asked_for_has_its_beginning_and_its_end(path):
    file = LogFile(str(path), times_beside(str(path)), limit=LIMIT)
    text = lines(200_000)
    for begin in range(0, len(text), 65_536):
        file.write(text[begin : begin + 65_536])
        assert path.stat().st_size <= 3 * LIMIT
    file.close()
    kept = path.read_bytes()
    head, remark, tail = _parts(kept)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert min(len(head), len(tail)) >= LIMIT - 100
    assert remark.startswith(
        f"[dlrover-run: {len(text) - len(head) - len(tail):,} bytes are left out here; "
    )


def test_a_file_that_was_asked_for_is_complete(path):
    file = LogFile(str(path))
    text = lines(40_000)
    file.write(text)
    file.close()
    assert path.read_bytes() == text


def test_one_endless_line_is_cut_too(path):
    file = LogFile(str(path), limit=LIMIT)
    for _ in range(80):
        file.write(b"x" * 65_536)
    file.close()
    assert path.stat().st_size <= 3 * LIMIT


def times_of(log):
    """Offsets and times, in order."""
    return list(RECORD.iter_unpack(log.with_suffix(".times").read_bytes()))


def test_times_belong_to_what_was_written_then(path, monkeypatch):
    now = [1_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    file = LogFile(str(path), times_beside(str(path)))
    for text in (b"first\n", b"second\n", b"third\n"):
        file.write(text)
        now[0] += 1_000_000_000
    file.write(b"fourth, ")
    now[0] += 1_000_000
    file.write(b"at about the same time\n")
    file.close()
    assert times_of(path) == [
        (0, 1_000_000_000),
        (6, 2_000_000_000),
        (13, 3_000_000_000),
        (19, 4_000_000_000),
    ]


def test_times_stay_right_when_the_middle_is_left_out(path, monkeypatch):
    now = [0]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    file = LogFile(str(path), times_beside(str(path)), limit=LIMIT)
    for second in range(100):
        now[0] = second * 1_000_000_000 + 1
        file.write(b"%03d " % second * 20_000 + b"\n")
    file.close()
    kept = path.read_bytes()
    records = times_of(path)
    assert records == sorted(records)
    for offset, time_ns in records:
        if kept[offset : offset + 1] != b"[":  # the remark about what was left out
            assert int(kept[offset : offset + 3]) == time_ns // 1_000_000_000


def test_the_growth_of_a_file_of_somebody_else_is_looked_at(path):
    watched = WatchedFile(str(path), times_beside(str(path)))
    watched.look()
    path.write_bytes(b"first\n")
    os.utime(path, ns=(5, 1_000_000_000))
    watched.look()
    with path.open("ab") as file:
        file.write(b"second\n")
    os.utime(path, ns=(5, 2_000_000_000))
    watched.close()
    assert times_of(path) == [(0, 1_000_000_000), (6, 2_000_000_000)]


def test_without_files_there_is_nothing_to_wake_up_for():
    assert Watch().next_look() is None


def test_times_that_cannot_be_written_cost_nothing_else(path):
    file = LogFile(str(path), str(path.parent / "missing" / "stderr.times"))
    file.write(b"text\n")
    file.close()
    assert path.read_bytes() == b"text\n"


def _parts(kept):
    begin = kept.index(b"[dlrover-run: ")
    end = kept.index(b"\n", begin) + 1
    return kept[:begin], kept[begin:end].decode(), kept[end:]
