"""The user's own lines among those of Python, of packages and of the launcher."""

import os
import sysconfig
import traceback
from pathlib import Path

from dlrover_cli.diagnosis.frames import Frame, frames_of, own_frames

PACKAGE = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
PLAIN = f'''Traceback (most recent call last):
  File "/home/me/train.py", line 9, in <module>
    main()
  File "/home/me/train.py", line 7, in main
    model(batch)
  File "{PACKAGE}", line 1736, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/model.py", line 3, in forward
    raise ValueError("boom")
ValueError: boom
'''
DUMP = f'''Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "/home/me/other.py", line 1 in elsewhere

Current thread 0x00007e (most recent call first):
  File "{PACKAGE}", line 5 in call
  File "/home/me/train.py", line 7 in main
  File "/home/me/train.py", line 9 in <module>

Extension modules: numpy (total: 1)
'''


def places(text: str) -> list[tuple[str, int, str]]:
    return [(os.path.basename(f.file), f.line, f.function) for f in own_frames(text)]


def test_those_of_packages_are_left_out() -> None:
    assert places(PLAIN) == [
        ("train.py", 9, "<module>"),
        ("train.py", 7, "main"),
        ("model.py", 3, "forward"),
    ]
    assert own_frames(PLAIN)[-1].source == 'raise ValueError("boom")'


def test_pythons_own_library_is_not_the_users() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    assert not Frame(str(library / "runpy.py"), 1, "f").is_users
    assert not Frame("<frozen importlib._bootstrap>", 1, "f").is_users
    assert Frame("/home/me/runpy.py", 1, "f").is_users


def test_of_a_chain_of_exceptions_the_last_one_counts() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904 - that is what is tested
    except ValueError:
        text = traceback.format_exc()
    assert len(own_frames(text)) == 1
    assert frames_of(text)[-1].function == "test_of_a_chain_of_exceptions_the_last_one_counts"


def test_a_fault_dump_is_read_from_the_thread_that_crashed_outermost_first() -> None:
    assert places(DUMP) == [("train.py", 9, "<module>"), ("train.py", 7, "main")]


def test_the_innermost_are_kept_if_there_are_too_many() -> None:
    deep = "".join(f'  File "/home/me/a.py", line {n}, in f\n    f()\n' for n in range(1, 50))
    assert [frame.line for frame in own_frames(deep, most=3)] == [47, 48, 49]


def test_without_any_of_the_users_the_innermost_is_better_than_none() -> None:
    text = f'  File "{PACKAGE}", line 5, in call\n    x()\n'
    assert [frame.line for frame in own_frames(text)] == [5]
    assert own_frames("") == ()
