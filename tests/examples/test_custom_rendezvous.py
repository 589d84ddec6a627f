"""examples/custom_rendezvous: nodes meet in a file, again and again, and workers use its store."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousParameters,
    RendezvousTimeoutError,
)

from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.rendezvous.loading import as_rendezvous_info, create_rendezvous_handler
from tests.harness.launcher import Finished
from tests.harness.waiting import eventually
from tests.plugins.user_code import forgetting_imports

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "custom_rendezvous"
SUM_RANKS = """
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.tensor(dist.get_rank())
dist.all_reduce(ranks)
os.write(1, b"%d\\n" % ranks.item())  # in one piece, since two workers share the stream
dist.destroy_process_group()  # without it torch aborts at exit once in a while
"""
REFERENCE = "myrdzv::MyRendezvousHandler"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes the handler of one more node of a job of two."""
    path = tmp_path / "shared"

    def node(nodes: int = 2, **conf: str) -> Any:
        params = RendezvousParameters("myrdzv", "", "run", nodes, nodes, path=str(path), **conf)
        return create_rendezvous_handler(REFERENCE, params, [FOLDER])

    with forgetting_imports(EXAMPLES):
        yield node


def meet(*handlers: Any) -> list[Any]:
    """One round of all handlers at once: what each of them got."""
    answers: list[Any] = [None] * len(handlers)

    def join(index: int) -> None:
        answers[index] = as_rendezvous_info(handlers[index].next_rendezvous(), handlers[index])

    threads = [threading.Thread(target=join, args=(index,)) for index in range(len(handlers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(answers)
    return answers


def test_two_nodes_get_different_ranks_and_one_store(node: Callable[..., Any]) -> None:
    first, second = meet(node(), node())
    assert {first.rank, second.rank} == {0, 1}
    assert first.world_size == second.world_size == 2
    first.store.set("greeting", "hello")
    assert second.store.get("greeting") == b"hello"


def test_each_round_has_a_store_of_its_own(node: Callable[..., Any]) -> None:
    nodes = [node(), node()]
    before, _ = meet(*nodes)
    before.store.set("address", "old")
    after, _ = meet(*nodes)
    assert not after.store.check(["address"])


def test_a_node_that_comes_again_is_seen_waiting_and_admitted(node: Callable[..., Any]) -> None:
    staying, leaving = node(), node()
    meet(staying, leaving)
    assert staying.num_nodes_waiting() == 0
    again = node()
    got: list[Any] = []
    joining = threading.Thread(target=lambda: got.append(again.next_rendezvous()))
    joining.start()
    eventually(lambda: staying.num_nodes_waiting() == 1, what="the node that waits")
    assert staying.next_rendezvous()[1] != eventually(lambda: got)[0][1]
    joining.join(10)
    assert staying.num_nodes_waiting() == 0


def test_a_node_left_alone_times_out_and_closes_the_rendezvous(node: Callable[..., Any]) -> None:
    with pytest.raises(RendezvousTimeoutError):
        node(join_timeout="0.2").next_rendezvous()
    other = node(nodes=3)
    assert other.is_closed()
    with pytest.raises(RendezvousClosedError):
        other.next_rendezvous()


def test_one_node_needs_no_path_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with forgetting_imports(EXAMPLES):
        params = RendezvousParameters("myrdzv", "", "run", 1, 1)
        handler = create_rendezvous_handler(REFERENCE, params, [FOLDER])
        (alone,) = meet(handler)
        assert (alone.rank, alone.world_size) == (0, 1)
        assert list(tmp_path.iterdir())
        assert handler.shutdown()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bounds", [(1, 2), (2, 2)])
def test_what_it_cannot_do_it_says_before_the_run(bounds: tuple[int, int]) -> None:
    with forgetting_imports(EXAMPLES), pytest.raises(PluginError) as caught:
        create_rendezvous_handler(
            REFERENCE, RendezvousParameters("myrdzv", "", "run", *bounds), [FOLDER]
        )
    assert caught.value.reason is PluginFault.CONSTRUCTOR_RAISED
    assert "ValueError" in caught.value.message


def test_the_launcher_trains_with_it(launch: Callable[..., Finished]) -> None:
    finished = launch(
        [f"--rdzv_handler={REFERENCE}", "--nproc-per-node=2", EXAMPLES / "train_ddp.py"],
        cwd=FOLDER,
    )
    assert finished.returncode == 0, finished
    assert "epoch 2/2" in finished.stdout


def test_a_file_store_reaches_the_workers_of_two_nodes(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    script = tmp_path / "sum_ranks.py"
    script.write_text(SUM_RANKS)
    argv = [
        f"--rdzv_handler={REFERENCE}",
        "--nnodes=2",
        "--rdzv-id=job42",
        f"--rdzv-conf=path={tmp_path / 'shared'}",
        "--nproc-per-node=2",
        script,
    ]
    nodes = [start(argv, cwd=FOLDER) for _ in range(2)]
    for running in nodes:
        finished = running.finish(60)
        assert finished.returncode == 0, finished
        assert finished.stdout == "6\n6\n"
