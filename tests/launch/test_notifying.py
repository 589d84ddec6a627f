"""From --notify to receivers: what is asked for, and what cannot be used."""

from pathlib import Path

import pytest

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.notifying import hide_secrets, notify_of, shown_argv
from dlrover_cli.telemetry.notices import DEFAULT_KINDS, KINDS


def asked(*urls: str, on: str = "", secret_file: str = "") -> LaunchSettings:
    return LaunchSettings(
        training_script="train.py", notify=urls, notify_on=on, notify_secret_file=secret_file
    )


def test_nobody_is_told_unless_asked() -> None:
    assert notify_of(asked()) is None


def test_addresses_are_used_as_they_are_and_shown_without_their_path(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://chat.example.com/T0KEN/\n")
    settings = asked("http://h:81?key=T0KEN", f"@{tmp_path / 'url'}", "http://h")
    notify = notify_of(settings)
    assert notify is not None
    assert [each.path for each in notify.addresses] == ["/?key=T0KEN", "/T0KEN/", ""]
    shown = [str(each) for each in notify.addresses]
    assert shown == ["http://h:81/…", "https://chat.example.com/…", "http://h"]
    assert "T0KEN" not in repr(notify)


def test_kinds_and_secret_are_taken(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    default = notify_of(asked("http://h", secret_file=str(tmp_path / "secret")))
    assert default is not None
    assert (default.kinds, default.secret) == (DEFAULT_KINDS, b"s3cret")
    some, everything = (notify_of(asked("http://h", on=on)) for on in ("failure, decision", "all"))
    assert some is not None
    assert everything is not None
    assert some.kinds == {"failure", "decision"}
    assert everything.kinds == KINDS


@pytest.mark.parametrize(
    "settings, words",
    [
        (asked("https://me:T0KEN@host/"), "holds a user name or a password"),
        (asked("mailto:T0KEN"), "begins with neither http:// nor https://"),
        (asked("@/no/such"), "the file /no/such cannot be read"),
        (asked("http://h", on="falure"), "did you mean 'failure'?"),
        (asked("http://h", on="zzz"), "they are agent_arrived, "),
        (asked(on="failure"), "nobody is to be notified"),
        (asked("http://h", secret_file="/no"), "--notify_secret_file: the file /no"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: LaunchSettings, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        notify_of(settings)
    assert words in f"{caught.value.message} {caught.value.hint}"
    assert "T0KEN" not in f"{caught.value.message} {caught.value.hint}"


def test_a_command_line_is_written_down_without_secrets() -> None:
    url = "https://chat.example.com/T0KEN"
    settings = asked(url, "https://me:T0KEN@host/")
    argv = ["--notify", url, f"--notify={url}", "--notify=https://me:T0KEN@host/", "train.py"]
    shown = shown_argv(settings, argv)
    assert shown == [
        *("--notify", "https://chat.example.com/…", "--notify=https://chat.example.com/…"),
        *("--notify=(a URL)", "train.py"),
    ]
    assert hide_secrets(settings, f"args: [{url}]") == "args: [https://chat.example.com/…]"
