"""Files that are replaced as a whole, and what is never replaced."""

import os
import stat
import threading
from pathlib import Path

import pytest

from dlrover_cli.telemetry.whole_writes import replacing


def write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def test_a_file_takes_the_place_of_the_old_one_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["result.json"]


def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        write(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    for content in (b"one", b"two"):
        write(link, content)
        assert link.is_symlink()
        assert (tmp_path / "there" / "file").read_bytes() == content


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"through")
    reader.join()
    assert read == [b"through"]
    assert pipe.is_fifo()
