"""Stores in a process of their own: opened, dropped, and gone with the agent."""

import os
import signal

import pytest

from tests.harness.processes import is_alive, process_info
from tests.harness.waiting import eventually
from tests.rendezvous.hosting import agent, facts_of, next_facts

both_ways = pytest.mark.parametrize("how", ["fork", "spawn"])


@both_ways
def test_a_store_is_opened_used_and_dropped(how: str) -> None:
    facts = facts_of(f"""
        host = StoreHost.{how}()
        first, second = host.open(), host.open()
        client = connect(first)
        client.set("key", "value")
        tell(value=client.get("key").decode(), ports=sorted(host.ports) == sorted([first, second]))
        host.drop(first)
        with socket.create_server(("", first)):
            tell(free_again=True)
        connect(second)
        host.close()
        host.close()
    """)
    assert facts["value"] == "value"
    assert facts["ports"]
    assert facts["free_again"]


@both_ways
def test_a_port_that_is_taken_is_told_from_other_troubles(how: str) -> None:
    facts = facts_of(f"""
        host = StoreHost.{how}()
        port = host.open()
        for wanted in (port, 70000):
            try:
                host.open(wanted)
            except Exception as error:
                tell(**{{str(wanted == port): [type(error).__name__, error.message]}})
        tell(port=port, still=connect(port).add("n", 1))
        host.close()
    """)
    assert facts["True"] == ["PortTaken", f"port {facts['port']} is in use"]
    assert facts["False"][0] == "LaunchError"
    assert facts["False"][1].startswith("cannot open a store on port 70000: ")
    assert facts["still"] == 1


def test_a_store_can_listen_on_one_address_only() -> None:
    facts = facts_of("""
        host = StoreHost.spawn()
        port = host.open(host="127.0.0.2")
        try:
            socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            tell(elsewhere="refused")
        TCPStore("127.0.0.2", port).set("key", "value")
        host.close()
    """)
    assert facts["elsewhere"] == "refused"


@both_ways
def test_it_ends_with_an_agent_that_is_killed(how: str) -> None:
    # A child of the agent holds its end of the channel open, as a forked worker may.
    with agent(f"""
        host = StoreHost.{how}()
        host.open()
        heir = os.fork()
        if heir == 0:
            time.sleep(60)
        tell(pid=host.pid, heir=heir)
        time.sleep(60)
    """) as process:
        facts = next_facts(process)
        process.kill()
        try:
            eventually(lambda: not is_alive(facts["pid"]), 5)
        finally:
            os.kill(facts["heir"], signal.SIGKILL)


@pytest.mark.full
@both_ways
def test_a_signal_to_everybody_does_not_end_it(how: str) -> None:
    facts = facts_of(f"""
        import signal
        host = StoreHost.{how}()
        port = host.open()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(host.pid, signum)
        tell(leads_session=os.getsid(host.pid) == host.pid, answer=connect(port).add("n", 1))
        host.close()
    """)
    assert facts["leads_session"]
    assert facts["answer"] == 1


def test_one_that_is_killed_is_missed_with_a_sentence() -> None:
    facts = facts_of("""
        import signal
        host = StoreHost.fork()
        host.open()
        os.kill(host.pid, signal.SIGKILL)
        try:
            host.open()
        except Exception as error:
            tell(error=[type(error).__name__, error.message])
        host.close()
    """)
    assert facts["error"][0] == "LaunchError"
    assert facts["error"][1].startswith("the process that hosts the stores does not answer")


@pytest.mark.full
@both_ways
def test_what_torch_has_to_say_about_connections_does_not_reach_the_user(how: str) -> None:
    facts = facts_of(f"""
        host = StoreHost.{how}()
        port = host.open()
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        tell(answer=connect(port).add("n", 1))
        host.close()
    """)
    assert facts["answer"] == 1
    assert facts["stderr"] == ""


@pytest.mark.full
def test_a_fork_keeps_nothing_that_its_parent_had_open() -> None:
    facts = facts_of("""
        reading, writing = os.pipe()
        host = StoreHost.fork()
        host.open()
        os.close(writing)
        tell(end_of_pipe=os.read(reading, 1) == b"")
        host.close()
    """)
    assert facts["end_of_pipe"]


@pytest.mark.full
def test_it_says_what_it_is_in_a_list_of_processes() -> None:
    with agent("""
        host = StoreHost.fork()
        host.open()
        tell(pid=host.pid)
        sys.stdin.read()
        host.close()
    """) as process:
        pid = next_facts(process)["pid"]
        with open(f"/proc/{pid}/comm") as file:
            assert file.read() == "dlrover-store\n"
        assert process_info(pid).parent == process.pid
        process.communicate(timeout=10)
