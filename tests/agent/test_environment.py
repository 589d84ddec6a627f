"""The environment of workers: torch's variables with torch's values, and ours."""

import pytest
from torch.distributed import HashStore
from torch.distributed.elastic.agent.server.api import Worker, WorkerSpec

from dlrover_cli.agent.environment import local_rank_environment, worker_environment
from dlrover_cli.agent.ranks import Placement
from dlrover_cli.agent.rounds import Round
from dlrover_cli.errors import UsageError
from dlrover_cli.failover.decide import Counters
from dlrover_cli.rendezvous.local import LocalRendezvous


@pytest.fixture
def spec():
    return WorkerSpec(
        role="trainer",
        local_world_size=4,
        rdzv_handler=LocalRendezvous("the run"),
        entrypoint="python",
        max_restarts=5,
    )


@pytest.fixture
def round_():
    store = HashStore()
    return Round(
        store,
        store,
        1,
        2,
        Placement(4, 8, 4, 8),
        Counters(attempt=3, restart_count=2, generation=1),
        "10.0.0.1",
        29500,
        None,
    )


@pytest.fixture
def worker():
    return Worker(local_rank=2, global_rank=6, role_rank=6, world_size=8, role_world_size=8)


def test_ranks_sizes_and_counters_are_torchs(spec, round_, worker):
    env = worker_environment({}, spec, worker, round_, "")
    assert env == {
        "RANK": "6",
        "LOCAL_RANK": "2",
        "GROUP_RANK": "1",
        "ROLE_RANK": "6",
        "ROLE_NAME": "trainer",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "8",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "the run",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "DLROVER_ATTEMPT": "3",
        "DLROVER_GENERATION": "1",
    }


def test_everything_else_is_inherited_and_never_changed(spec, round_, worker):
    base = {"HOME": "/home/ada", "RANK": "99", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
    env = worker_environment(base, spec, worker, round_, "run-1")
    assert (env["HOME"], env["RANK"]) == ("/home/ada", "6")
    assert env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert env["DLROVER_RUN_ID"] == "run-1"
    assert base["RANK"] == "99"


@pytest.mark.parametrize(
    "base, expected",
    [
        ({}, {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "1"}),
        (
            {"CUDA_VISIBLE_DEVICES": "4, 7"},
            {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "7"},
        ),
    ],
)
def test_with_virtual_local_ranks_everybody_is_rank_0_of_one_device(base, expected):
    assert local_rank_environment(base, 1, virtual=True) == expected


def test_without_them_the_devices_are_left_alone():
    base = {"CUDA_VISIBLE_DEVICES": "4,7"}
    assert local_rank_environment(base, 1, virtual=False) == {"LOCAL_RANK": "1"}


def test_more_virtual_ranks_than_devices_is_a_sentence():
    with pytest.raises(UsageError, match=r"rank 2.*CUDA_VISIBLE_DEVICES=4,7 names 2") as error:
        local_rank_environment({"CUDA_VISIBLE_DEVICES": "4,7"}, 2, virtual=True)
    assert "--nproc-per-node" in error.value.hint
