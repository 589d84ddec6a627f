"""AgentFailureInfo: DLRover's constructor, our facts, and a JSON form that comes back the same."""

import json
import subprocess
import sys
import time
from abc import ABC
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.contracts import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
    DynamicFailoverExtension,
    FailoverStrategy,
    FailureInfo,
    FailureKind,
    WorkerFailure,
)
from dlrover_cli.errors import UsageError

SEGFAULT = WorkerFailure(
    global_rank=5,
    local_rank=1,
    pid=4711,
    signal=11,
    message="Segmentation fault",
    traceback="Current thread …",
    time_ns=1_700_000_000_123_456_789,
    root_cause=True,
)
COLLATERAL = WorkerFailure(
    global_rank=4, local_rank=0, pid=4710, exit_code=1, exception_type="RuntimeError"
)


def failure(**changes: Any) -> AgentFailureInfo:
    facts: dict[str, Any] = {
        "node_rank": 2,
        "timestamp": 1_700_000_000,
        "log_content": "rank 5: Segmentation fault",
        "extra_info": {"rack": "b7", "temperatures": [61, 93]},
        "kind": FailureKind.SIGNAL,
        "workers": (COLLATERAL, SEGFAULT),
        "attempt": 3,
        "restart_count": 2,
        "restarts_left": 1,
        "steps": 1200,
        "run_id": "run-1",
        "host": "node-2",
        "generation": 1,
    }
    return AgentFailureInfo(**facts | changes)


class TestAsDlroverHasIt:
    def test_positional_construction_has_dlrovers_order(self) -> None:
        info = AgentFailureInfo(1_700_000_000, "log", {"k": "v"}, 3)
        assert (info.timestamp, info.log_content, info.extra_info, info.node_rank) == (
            1_700_000_000,
            "log",
            {"k": "v"},
            3,
        )

    def test_what_dlrover_does_not_have_is_given_by_keyword_only(self) -> None:
        with pytest.raises(TypeError):
            AgentFailureInfo(1, "log", {}, 3, FailureKind.EXIT)  # type: ignore[misc]

    def test_the_agents_own_call_works(self) -> None:
        info = AgentFailureInfo(node_rank=0, log_content="{}")
        assert info.extra_info == {}

    def test_everything_has_a_default_and_the_timestamp_is_now(self) -> None:
        before = int(time.time())
        info = AgentFailureInfo()
        assert before <= info.timestamp <= time.time()
        assert info.node_rank == -1
        assert isinstance(info, FailureInfo)

    def test_no_two_failures_share_their_extra_info(self) -> None:
        AgentFailureInfo().extra_info["seen"] = True
        assert AgentFailureInfo().extra_info == {}

    def test_a_plain_dataclass_may_derive_from_it(self) -> None:
        @dataclass
        class MyInfo(AgentFailureInfo):
            team: str = "search"

        info = MyInfo(1, "log")
        info.team = "ads"
        info.node_rank = 9
        assert info.node_rank == 9

    def test_strategies_are_worth_their_names(self) -> None:
        assert [strategy.value for strategy in FailoverStrategy] == [
            "NORMAL_FAILOVER",
            "NODE_FAILOVER",
            "GLOBAL_FAILOVER",
            "ABORTION_FAILOVER",
        ]
        assert all(strategy.value == strategy.name for strategy in FailoverStrategy)

    def test_extensions_are_abstract_and_normal_by_default(self) -> None:
        assert issubclass(DynamicAgentFailoverExtension, DynamicFailoverExtension)
        assert issubclass(DynamicFailoverExtension, ABC)
        with pytest.raises(TypeError, match="abstract"):
            DynamicAgentFailoverExtension()  # type: ignore[abstract]

        class Default(DynamicAgentFailoverExtension):
            def get_user_failover_strategy(
                self, failure_info: AgentFailureInfo
            ) -> FailoverStrategy:
                return super().get_user_failover_strategy(failure_info)

        answer = Default().get_user_failover_strategy(failure())
        assert answer is FailoverStrategy.NORMAL_FAILOVER


def test_the_root_cause_is_the_worker_marked_as_such() -> None:
    assert failure().root_cause is SEGFAULT
    assert failure(workers=(COLLATERAL,)).root_cause is None


_texts = st.text(max_size=20)
_numbers = st.integers(min_value=-(2**60), max_value=2**60)
_workers = st.builds(
    WorkerFailure,
    global_rank=_numbers,
    local_rank=_numbers,
    pid=_numbers,
    exit_code=st.none() | _numbers,
    signal=st.none() | _numbers,
    exception_type=st.none() | _texts,
    message=_texts,
    traceback=_texts,
    time_ns=_numbers,
    root_cause=st.booleans(),
)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)
_failures = st.builds(
    AgentFailureInfo,
    timestamp=_numbers,
    log_content=_texts,
    extra_info=st.dictionaries(_texts, _values, max_size=3),
    node_rank=_numbers,
    kind=st.sampled_from(FailureKind),
    workers=st.lists(_workers, max_size=3).map(tuple),
    attempt=_numbers,
    restart_count=_numbers,
    restarts_left=_numbers,
    steps=st.none() | _numbers,
    run_id=_texts,
    host=_texts,
    generation=_numbers,
)


class TestJson:
    @given(_failures)
    def test_what_was_written_is_read_back(self, info: AgentFailureInfo) -> None:
        assert AgentFailureInfo.from_json(json.loads(json.dumps(info.to_json()))) == info

    def test_a_hand_written_failure_needs_only_what_it_is_about(self) -> None:
        info = AgentFailureInfo.from_json(
            {"kind": "exit", "workers": [{"global_rank": 0, "local_rank": 0, "exit_code": 137}]}
        )
        assert info.kind is FailureKind.EXIT
        assert info.workers[0].exit_code == 137
        assert info.node_rank == -1

    def test_what_json_cannot_hold_is_written_as_text(self) -> None:
        info = failure(extra_info={"path": Path("/x"), 1: {2, 3}.__class__, "pair": (1, b"2")})
        written = json.loads(json.dumps(info.to_json()))["extra_info"]
        assert written == {
            "path": "PosixPath('/x')",
            "1": "<class 'set'>",
            "pair": [1, "b'2'"],
        }

    def test_neither_a_cycle_nor_a_repr_that_raises_stops_the_record(self) -> None:
        class Mute:
            def __repr__(self) -> str:
                raise ValueError

        cycle: dict[str, object] = {"mute": Mute()}
        cycle["self"] = cycle
        written = failure(extra_info=cycle).to_json()["extra_info"]
        assert json.loads(json.dumps(written))["mute"] == "<Mute>"

    @pytest.mark.parametrize(
        "data,complaint",
        [
            (None, "must be a JSON object and is null"),
            ([], "must be a JSON object and is an array"),
            ("x", "must be a JSON object and is a string"),
            ({"schema_version": 2}, "has schema_version 2"),
            ({"schema_version": 0}, "has schema_version 0"),
            ({"schema_version": "1"}, "'schema_version' that must be a whole number"),
            ({"timestamp": "now"}, "'timestamp' that must be a whole number and is a string"),
            ({"timestamp": 1.5}, "is the number 1.5"),
            ({"attempt": True}, "'attempt' that must be a whole number and is true"),
            ({"log_content": None}, "'log_content' that must be a string and is null"),
            ({"extra_info": []}, "'extra_info' that must be an object"),
            ({"extra_info": {1: 2}}, "'extra_info' that must be an object"),
            ({"kind": "explosion"}, "none of: exception, exit, signal, hang, start-up"),
            ({"kind": {}}, "none of"),
            ({"workers": {}}, "'workers' that must be an array"),
            ({"workers": [3]}, "workers[0] must be a JSON object and is the number 3"),
            ({"workers": [{"local_rank": 0}]}, "workers[0] lacks 'global_rank'"),
            (
                {"workers": [{"global_rank": 0, "local_rank": 0, "root_cause": 1}]},
                "'root_cause' that must be true or false",
            ),
        ],
    )
    def test_junk_is_refused_with_a_sentence(self, data: object, complaint: str) -> None:
        with pytest.raises(UsageError) as caught:
            AgentFailureInfo.from_json(data)
        assert complaint in caught.value.message
        assert caught.value.exit_code == 2

    def test_a_misspelt_key_is_refused_with_the_right_one(self) -> None:
        with pytest.raises(UsageError) as caught:
            AgentFailureInfo.from_json({"log_contents": "x"})
        assert caught.value.hint == "did you mean 'log_content'?"


def test_contracts_do_not_import_torch() -> None:
    code = "import sys, dlrover_cli.contracts; sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
