"""Users' handlers in real runs: workers meet whatever the store, and no handler stops a job.

What "the store reaches the workers" means: agents talk over the store that the handler returns,
whatever kind it is, and settle there where the workers meet. The workers' own store speaks TCP. It
is the handler's very store where that is offered as torch does it, by `bootstrap_store_info` and
`use_agent_store`, in the first attempt; later attempts get a store that holds nothing.
"""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore

from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts
from tests.integration.jobs import Job, run_in

Launch = Callable[..., Finished]
Start = Callable[..., Running]

HANDLERS = '''
import os, time
from torch.distributed import FileStore, HashStore, PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler, RendezvousInfo, RendezvousParameters, RendezvousStoreInfo,
)


class Meeting(RendezvousHandler):
    """Nodes count themselves in a file; every `nodes` arrivals are a round."""

    def __init__(self, params: RendezvousParameters):
        self.nodes = params.max_nodes
        self.port = params.get_as_int("port")
        self.me = params.get_as_int("rank")
        self.file = FileStore(os.path.join(params.get("path"), "store"))
        self.round = -1

    def meet(self):
        number = self.file.add("arrivals", 1) - 1
        self.round, rank = divmod(number, self.nodes)
        deadline = time.monotonic() + 60
        while self.file.add("arrivals", 0) < (self.round + 1) * self.nodes:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return rank

    def next_rendezvous(self):
        rank = self.meet()
        return self.store(), rank, self.nodes

    def store(self):
        return self.file

    def get_backend(self): return "meeting"
    def is_closed(self): return False
    def set_closed(self): pass
    def num_nodes_waiting(self): return 0
    def get_run_id(self): return "meeting-run"
    def shutdown(self): return True


class File(Meeting):
    """The old tuple with a FileStore."""


class Prefix(Meeting):
    def store(self):
        return PrefixStore("mine", self.file)


class Hash(Meeting):
    def store(self):
        return HashStore()


class Wrapped(Store):
    """A store that is written in Python, and has only what agents need."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def set(self, key, value): self.inner.set(key, value)
    def get(self, key): return self.inner.get(key)
    def add(self, key, amount): return self.inner.add(key, amount)
    def check(self, keys): return self.inner.check(keys)
    def wait(self, keys, timeout=None):
        self.inner.wait(keys) if timeout is None else self.inner.wait(keys, timeout)


class Python(Meeting):
    def store(self):
        return Wrapped(self.file)


class Offered(Meeting):
    """A TCP store of one's own, offered to the workers; ranks change places in every round."""

    use_agent_store = True

    def next_rendezvous(self):
        self.meet()
        rank = self.me if self.round % 2 == 0 else self.nodes - 1 - self.me
        store = TCPStore("localhost", self.port)
        store.set("greeting", "from the handler")
        return RendezvousInfo(store, rank, self.nodes, RendezvousStoreInfo("localhost", self.port))


class Kept(Meeting):
    """A TCP store that the handler returns and keeps to itself."""

    def store(self):
        return TCPStore("localhost", self.port)


class Slow(Meeting):
    def num_nodes_waiting(self):
        time.sleep(600)


class Raising(Meeting):
    def num_nodes_waiting(self):
        with open("asked", "a") as file:
            file.write("x")
        raise ConnectionError("no server")

    def shutdown(self):
        raise ConnectionError("no server either")


def create(params):
    return File(params)
'''

METRICS = """
import os, time
from torch.distributed.elastic.metrics.api import MetricHandler


class Noting(MetricHandler):
    def __init__(self, path): self.path = path
    def emit(self, data):
        with open(self.path, "a") as file:
            file.write(f"{data.group_name} {data.name} {data.value}\\n")


class Raising(MetricHandler):
    def emit(self, data): raise ConnectionError("no server")


class Blocking(MetricHandler):
    def emit(self, data): time.sleep(600)
"""

SUM = """
import torch
import torch.distributed as dist

port = os.environ["MASTER_PORT"]
store = dist.TCPStore(
    os.environ["MASTER_ADDR"], int(port), is_master=False
) if os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True" else None
greeting = store.get("greeting").decode() if store and store.check(["greeting"]) else None
dist.init_process_group("gloo")
total = torch.tensor([float(rank)])
dist.all_reduce(total)
leave("sum", sum=total.item(), port=port, greeting=greeting)
if attempt == 0 and rank == 1:
    os._exit(3)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    (tmp_path / "mymetrics.py").write_text(METRICS)


class TestStores:
    """Two gloo workers meet, one fails, they meet again."""

    @pytest.mark.parametrize(
        "handler,nodes",
        [
            ("Python", 2),
            pytest.param("create", 1, marks=pytest.mark.full),
            pytest.param("File", 2, marks=pytest.mark.full),
            pytest.param("Prefix", 2, marks=pytest.mark.full),
            pytest.param("Hash", 1, marks=pytest.mark.full),
            pytest.param("Kept", 2, marks=pytest.mark.full),
        ],
    )
    def test_workers_meet_whatever_store_the_handler_returns(
        self, start: Start, scripts: Scripts, tmp_path: Path, handler: str, nodes: int
    ) -> None:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        job = meeting(start, tmp_path, handler, nodes, store.port)
        script = scripts.write("sum.py", SUM)
        for _ in range(nodes):
            job.node(f"--nproc-per-node={2 // nodes}", script)
        job.assert_all_exit_with(0)
        sums = scripts.facts("sum")
        assert [(fact["attempt"], fact["rank"], fact["sum"]) for fact in sums] == [
            (attempt, rank, 1.0) for attempt in (0, 1) for rank in (0, 1)
        ]
        assert len({fact["port"] for fact in sums if fact["attempt"] == 0}) == 1
        for node in job:
            assert node.run.numbers() == [(0, 0, 0), (1, 1, 0)]

    def test_an_offered_store_is_used_once(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        job = meeting(start, tmp_path, "Offered", 2, store.port)
        script = scripts.write(
            "port.py",
            """
            leave("port", port=int(os.environ["MASTER_PORT"]))
            if attempt == 0 and rank == 1:
                sys.exit(3)
            while attempt == 0:
                time.sleep(0.01)
            """,
        )
        for node_rank in range(2):
            job.node(f"--node-rank={node_rank}", script)
        job.assert_all_exit_with(0)
        ports = [fact["port"] for fact in scripts.facts("port")]
        assert ports[:2] == [store.port] * 2
        assert ports[2] == ports[3] != store.port, "the next attempt gets a store without old keys"

    def test_an_offered_store_is_the_workers_own(
        self, start: Start, scripts: Scripts, tmp_path: Path
    ) -> None:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        job = meeting(start, tmp_path, "Offered", 1, store.port)
        job.node("--nproc-per-node=2", scripts.write("sum.py", SUM))
        job.assert_all_exit_with(0)
        first, second = (
            [
                (fact["port"], fact["greeting"])
                for fact in scripts.facts("sum")
                if fact["attempt"] == n
            ]
            for n in (0, 1)
        )
        assert first == [(str(store.port), "from the handler")] * 2
        assert {greeting for _, greeting in second} == {None}
        assert str(store.port) not in {port for port, _ in second}


class TestTroublesomeHandlers:
    """A handler that is slow, raises or blocks: the job goes on, and one line says so."""

    def test_a_handler_that_never_answers_delays_nothing(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        finished = launch([*handled(tmp_path, "Slow"), scripts.crash()])
        assert finished.returncode == 0, finished
        assert finished.duration < 30

    def test_a_handler_that_raises_is_named_once(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.write(
            "until_asked.py",
            """
            while not os.path.exists("asked") or os.path.getsize("asked") < 5:
                time.sleep(0.01)
            """,
        )
        finished = launch([*handled(tmp_path, "Raising"), script])
        assert finished.returncode == 0, finished
        said = [line for line in finished.stderr.splitlines() if line.startswith("dlrover-run")]
        assert [line for line in said if "num_nodes_waiting" in line] == [said[0]]
        assert [line for line in said if "shutdown" in line] == [said[1]]
        assert len(said) == 2
        methods = [
            event["data"]["method"]
            for event in run_in(tmp_path / "state").events("rendezvous_handler_error")
        ]
        assert methods == ["num_nodes_waiting", "shutdown"]

    def test_metrics_handlers_get_every_metric_whatever_the_others_do(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        noted = tmp_path / "noted"
        finished = launch(
            [
                "--metrics_handler=mymetrics::Raising",
                "--metrics_handler=mymetrics::Noting",
                f"--metrics_cfg=path={noted}",
                "--max-restarts=1",
                scripts.crash(),
            ]
        )
        assert finished.returncode == 0, finished
        lines = [line for line in finished.stderr.splitlines() if "mymetrics::Raising" in line]
        assert len(lines) == 1
        assert "ConnectionError: no server" in lines[0]
        assert "the job goes on" in lines[0]
        metrics = noted.read_text().splitlines()
        for metric in (
            "torchelastic workers.default.run_success_with_retries 1",
            "torchelastic workers.default.run_failed_no_retries 0",
            "torchelastic workers.default.flakiness 50",
            "torchelastic workers.default.failed 1",
            "torchelastic workers.default.succeeded 1",
            "torchelastic workers.default.remaining_restarts 0",
            "torchelastic SimpleElasticAgent.run.success 1",
        ):
            assert metric in metrics, metrics

    @pytest.mark.full
    def test_a_metrics_handler_that_blocks_costs_its_metrics_and_some_seconds(
        self, launch: Launch, scripts: Scripts
    ) -> None:
        finished = launch(["--metrics_handler=mymetrics::Blocking", scripts.hello()])
        assert finished.returncode == 0, finished
        [line] = [line for line in finished.stderr.splitlines() if "mymetrics" in line]
        assert "did not get" in line


class TestInstalledPlugins:
    """Entry points of an installed distribution, as torchrun has them."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> dict[str, str]:
        """The environment in which a tiny distribution is installed."""
        site = tmp_path / "site"
        info = site / "tiny-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[torchrun.handlers]\ntiny = tiny:get_creator\n"
            "[torchrun.logs_specs]\ntiny = tiny:Logs\n"
        )
        code = """
        from handlers import File
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

        class Tiny(File):
            def get_backend(self):
                return "tiny"

        def get_creator():
            return Tiny

        class Logs(DefaultLogsSpecs):
            def reify(self, envs):
                for env in envs.values():
                    env["TINY"] = "was here"
                return super().reify(envs)
        """
        (site / "tiny.py").write_text(textwrap.dedent(code))
        return {"PYTHONPATH": f"{site}:{tmp_path}"}

    @pytest.mark.full
    def test_a_backend_and_logs_specs(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, site: dict[str, str]
    ) -> None:
        argv = ["--rdzv-backend=tiny", "--rdzv-endpoint=anywhere", "--logs-specs=tiny", "-r3"]
        argv += [f"--rdzv-conf=path={tmp_path}", f"--log-dir={tmp_path}/logs"]
        finished = launch([*argv, scripts.environment()], env=site)
        assert finished.returncode == 0, finished
        [seen] = scripts.facts("environment")
        assert seen["env"]["TORCHELASTIC_RUN_ID"] == "meeting-run"
        assert seen["env"]["TINY"] == "was here"
        assert list(tmp_path.glob("logs/meeting-run_*/attempt_0/0/stdout.log"))

    @pytest.mark.full
    def test_the_plan_says_where_they_came_from(
        self, launch: Launch, scripts: Scripts, tmp_path: Path, site: dict[str, str]
    ) -> None:
        argv = ["--rdzv-backend=tiny", "--rdzv-endpoint=anywhere", "--logs-specs=tiny"]
        finished = launch([*argv, "--dry_run", "--json", scripts.hello()], env=site)
        assert finished.returncode == 0, finished
        plugins = {each["kind"]: each for each in json.loads(finished.stdout)["plugins"]}
        assert plugins["rendezvous backend"]["loaded_from"] == str(tmp_path / "site/tiny.py")
        assert plugins["logs specs"]["loaded_from"] == str(tmp_path / "site/tiny.py")


def handled(directory: Path, handler: str, port: int = 0) -> list[str]:
    return [
        f"--rdzv_handler=handlers::{handler}",
        f"--rdzv-conf=path={directory},port={port}",
        "--monitor-interval=0.01",
        "--max-restarts=1",
    ]


def meeting(start: Start, directory: Path, handler: str, nodes: int, port: int) -> Job:
    def start_here(argv: list[Any], **options: Any) -> Running:
        return start(argv, cwd=directory, **options)

    options = (*handled(directory, handler, port), f"--nnodes={nodes}", "--local-addr=localhost")
    return Job(start_here, directory, options)
