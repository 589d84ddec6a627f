"""A store answers everybody at once although its name server answers nobody."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rendezvous.hosting import facts_of

# A network of our own, in which names are asked for at 127.0.0.1 only.
_NAMESPACE = """\
set -e
mount --bind "$0/resolv.conf" /etc/resolv.conf
mount --bind "$0/hosts" /etc/hosts
if [ -e /etc/nsswitch.conf ]; then mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf; fi
if [ -e /run/nscd ]; then mount -t tmpfs none /run/nscd; fi
exec "$@"
"""

# The name server says "no such name" about this machine's own address and nothing about others,
# as one does whose replies get lost. (After a failure torch does not ask again: one is enough.)
_EIGHT_CLIENTS = """
    import fcntl, struct, threading
    with socket.socket() as any_socket:  # ifconfig lo up
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    asked = []

    def answer():
        while True:
            question, whom = names.recvfrom(512)
            asked.append(question[12:])
            if question[12:].startswith(b"\\x011\\x010\\x010\\x03127"):
                names.sendto(question[:2] + b"\\x81\\x83" + question[4:], whom)

    if not FORBIDDEN:
        store_process.forbid_lookups = lambda: False
    host = StoreHost.fork()
    threading.Thread(target=answer, daemon=True).start()
    port = host.open()
    client = connect(port)
    in_thread_of_server = len(asked)
    seconds, others = [], []
    for number in range(2, 10):
        began = time.monotonic()
        address = (f"127.0.0.{number}", 0)
        others.append(socket.create_connection(("127.0.0.1", port), source_address=address))
        client.add("n", 1)
        client.add("n", 1)
        seconds.append(time.monotonic() - began)
    asked = len(asked) - in_thread_of_server
    tell(seconds=seconds, asked=asked, forbidden=host.forbids_lookups)
    host.close()
"""


@pytest.fixture
def bad_names(tmp_path: Path) -> list[str]:
    """What runs a program in a network whose name server is the program's to play."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (tmp_path / "hosts").write_text("")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    unshare = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    prefix = [*unshare, "sh", "-c", _NAMESPACE, str(tmp_path)]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"namespaces are not permitted here: {error}")
    return prefix


def clients_of(prefix: list[str], *, forbidden: bool) -> dict[str, Any]:
    return facts_of(_EIGHT_CLIENTS.replace("FORBIDDEN", str(forbidden)), prefix)


def test_no_client_waits_for_a_name_server_that_does_not_answer(bad_names: list[str]) -> None:
    facts = clients_of(bad_names, forbidden=True)
    if not facts["forbidden"]:
        pytest.skip("this kernel cannot forbid them")
    assert not facts["asked"]
    assert max(facts["seconds"]) < 0.5, facts


def test_without_the_filter_everybody_waits_for_it(bad_names: list[str]) -> None:
    facts = clients_of(bad_names, forbidden=False)
    assert facts["asked"]
    assert max(facts["seconds"]) >= 0.9, facts


def test_only_the_sockets_that_lookups_need_are_forbidden() -> None:
    facts = facts_of("""
        before = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tell(forbidden=forbid_lookups())
        kinds = {
            "tcp": (socket.AF_INET, socket.SOCK_STREAM),
            "tcp6": (socket.AF_INET6, socket.SOCK_STREAM),
            "udp": (socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK),
            "udp6": (socket.AF_INET6, socket.SOCK_DGRAM),
            "unix": (socket.AF_UNIX, socket.SOCK_STREAM),
        }
        for name, kind in kinds.items():
            try:
                socket.socket(*kind).close()
                tell(**{name: "opened"})
            except OSError as error:
                tell(**{name: error.strerror})
        import threading
        pair = threading.Thread(target=lambda: tell(pair=len(socket.socketpair())))
        pair.start()
        pair.join()
    """)
    if not facts["forbidden"]:
        pytest.skip("this kernel cannot forbid them")
    assert (facts["tcp"], facts["tcp6"], facts["pair"]) == ("opened", "opened", 2)
    assert {facts["udp"], facts["udp6"], facts["unix"]} == {"Permission denied"}
