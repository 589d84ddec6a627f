"""A user's rendezvous handler is created from a class or a function; its answers are checked."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import FileStore, HashStore, PrefixStore, Store
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from dlrover_cli.errors import ConfigError, PluginError
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.rendezvous.loading import (
    as_rendezvous_info,
    check_rendezvous_backend,
    create_rendezvous_handler,
    known_rendezvous_backends,
)
from tests.plugins.user_code import UserCode, forgetting_imports

HANDLER = """
from torch.distributed.elastic.rendezvous import RendezvousHandler

class Base(RendezvousHandler):
    def get_backend(self): return "mine"
    def next_rendezvous(self): raise NotImplementedError
    def is_closed(self): return False
    def set_closed(self): pass
    def num_nodes_waiting(self): return 0
    def get_run_id(self): return "run"
    def shutdown(self): return True

class WithParams(Base):
    def __init__(self, params): self.params = params

class KeywordOnly(Base):
    def __init__(self, *, params): self.params = params

class WithoutParams(Base):
    params = None

class TwoParams(Base):
    def __init__(self, params, store): pass

class Raises(Base):
    def __init__(self, params): raise ConnectionError(params.endpoint)

class Half(RendezvousHandler):
    def get_backend(self): return "half"

class Unrelated: pass

def create(params): return WithParams(params)
def create_nothing(params): return None
def create_class(params): return WithParams
async def create_later(params): return WithParams(params)
number = 3
"""
PARAMS = RendezvousParameters("mine", "host:29400", "run", 1, 2, timeout="5")


class Handler(RendezvousHandler):
    """Only its class name matters here."""

    def get_backend(self) -> str:
        return "mine"

    def next_rendezvous(self) -> RendezvousInfo:
        raise NotImplementedError

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None: ...

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return "run"

    def shutdown(self) -> bool:
        return True


def refusal(call: Callable[[], object], reason: PluginFault) -> PluginError:
    with pytest.raises(PluginError) as caught:
        call()
    assert caught.value.reason is reason, caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.fixture
def user(tmp_path: Path) -> Iterator[UserCode]:
    with forgetting_imports(tmp_path):
        yield UserCode(tmp_path)


@pytest.fixture
def create(user: UserCode) -> Callable[[str], Any]:
    user.write("myrdzv.py", HANDLER)
    return lambda name: create_rendezvous_handler(f"myrdzv::{name}", PARAMS, user.roots)


class TestCreating:
    @pytest.mark.parametrize("name", ["WithParams", "KeywordOnly", "create"])
    def test_a_class_or_a_creator_gets_the_parameters(
        self, create: Callable[[str], Any], name: str
    ) -> None:
        assert create(name).params is PARAMS

    def test_a_constructor_without_parameters_gets_none(self, create: Callable[[str], Any]) -> None:
        assert create("WithoutParams").params is None

    @pytest.mark.parametrize(
        "name,reason,words",
        [
            ("TwoParams", PluginFault.WRONG_SIGNATURE, "takes (params, store)"),
            ("Raises", PluginFault.CONSTRUCTOR_RAISED, "ConnectionError: host:29400 (at "),
            ("Half", PluginFault.ABSTRACT_METHODS, "next_rendezvous"),
            ("Unrelated", PluginFault.WRONG_BASE, "derive from RendezvousHandler"),
            ("number", PluginFault.NOT_CALLABLE, "type int"),
            ("create_nothing", PluginFault.WRONG_RESULT, "returned None"),
            ("create_class", PluginFault.WRONG_RESULT, "the class WithParams itself"),
            ("create_later", PluginFault.WRONG_RESULT, "a coroutine"),
            ("WithParam", PluginFault.NO_ATTRIBUTE, "no 'WithParam'"),
        ],
    )
    def test_what_cannot_be_used_is_refused(
        self, create: Callable[[str], Any], name: str, reason: PluginFault, words: str
    ) -> None:
        error = refusal(lambda: create(name), reason)
        assert words in error.message
        assert error.message.startswith(f"--rdzv_handler=myrdzv::{name}: ")


class PythonStore(Store):
    """A store written in Python, as a handler may bring."""


class TestAnswers:
    def test_rendezvous_info_is_taken_as_it_is(self) -> None:
        info = RendezvousInfo(HashStore(), 1, 2, RendezvousStoreInfo("host", 29500))
        assert as_rendezvous_info(info, Handler()) is info

    @pytest.mark.parametrize("kind", [tuple, list])
    def test_the_old_tuple_is_as_good(self, kind: Callable[[object], object]) -> None:
        store = HashStore()
        info = as_rendezvous_info(kind((store, 1, 2)), Handler())
        assert info.store is store
        assert (info.rank, info.world_size, info.bootstrap_store_info) == (1, 2, None)

    def test_any_store_of_torch_or_python_will_do(self, tmp_path: Path) -> None:
        file_store = FileStore(str(tmp_path / "store"), 1)
        for store in (file_store, PrefixStore("p", file_store), PythonStore()):
            assert as_rendezvous_info((store, 0, 1), Handler()).store is store

    def test_integers_of_numpy_are_integers(self) -> None:
        numpy = pytest.importorskip("numpy")
        info = as_rendezvous_info((HashStore(), numpy.int64(0), numpy.int64(3)), Handler())
        assert type(info.rank) is int
        assert type(info.world_size) is int

    @pytest.mark.parametrize(
        "answer,words",
        [
            (None, "returned None"),
            ((), "a tuple of 0"),
            ((HashStore(), 0), "a tuple of 2"),
            ((HashStore(), 0, 1, None), "a tuple of 4"),
            ("abc", "'abc'"),
            ({"store": 1}, "type dict"),
            (RendezvousInfo, "the class RendezvousInfo itself"),
            ((None, 0, 1), "the store that it returned is None"),
            (({}, 0, 1), "the store that it returned is an object of type dict"),
            ((HashStore, 0, 1), "the class HashStore itself"),
            ((HashStore(), "0", 1), "the rank that it returned is '0'"),
            ((HashStore(), 0, 1.0), "the world size that it returned is 1.0"),
            ((HashStore(), True, 2), "the rank that it returned is True"),
            ((HashStore(), 2, 2), "rank 2 of world size 2"),
            ((HashStore(), -1, 2), "rank -1 of world size 2"),
            ((HashStore(), 0, 0), "rank 0 of world size 0"),
            (RendezvousInfo(HashStore(), 5, 2, RendezvousStoreInfo("h", 1)), "rank 5"),
        ],
    )
    def test_all_else_is_refused_with_a_sentence(self, answer: object, words: str) -> None:
        error = refusal(lambda: as_rendezvous_info(answer, Handler()), PluginFault.WRONG_RESULT)
        assert words in error.message
        assert error.message.startswith("next_rendezvous of ")
        assert "::Handler: " in error.message

    def test_a_coroutine_is_refused_without_a_warning(
        self, recwarn: pytest.WarningsRecorder
    ) -> None:
        async def later() -> None: ...

        error = refusal(lambda: as_rendezvous_info(later(), Handler()), PluginFault.WRONG_RESULT)
        assert "coroutine" in error.message
        assert not recwarn


class TestBackends:
    def test_torchs_own_are_known(self) -> None:
        assert {"c10d", "etcd", "etcd-v2", "static"} <= set(known_rendezvous_backends())
        check_rendezvous_backend("c10d")

    def test_a_wrong_name_is_refused_with_the_near_one(self) -> None:
        with pytest.raises(ConfigError) as caught:
            check_rendezvous_backend("c10")
        assert caught.value.setting == "rdzv_backend"
        assert caught.value.hint == "did you mean 'c10d'?"

    def test_a_wrong_name_is_refused_with_all_there_are(self) -> None:
        with pytest.raises(ConfigError) as caught:
            check_rendezvous_backend("zzzz")
        assert "c10d, dlrover, etcd, etcd-v2" in (caught.value.hint or "")

    @pytest.mark.parametrize(
        "value,reason",
        [
            ("nowhere_at_all:get", PluginFault.NO_MODULE),
            ("myrdzv:number", PluginFault.NOT_CALLABLE),
            ("myrdzv:create", PluginFault.WRONG_SIGNATURE),
            ("myrdzv:Base", PluginFault.WRONG_RESULT),
        ],
    )
    def test_an_installed_backend_that_torch_could_not_load_says_why(
        self, user: UserCode, monkeypatch: pytest.MonkeyPatch, value: str, reason: PluginFault
    ) -> None:
        user.write("myrdzv.py", HANDLER)
        user.write("my_rdzv-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: my-rdzv\n")
        user.write(
            "my_rdzv-1.0.dist-info/entry_points.txt", f"[torchrun.handlers]\nmine = {value}\n"
        )
        monkeypatch.syspath_prepend(user.root)
        assert "mine" in known_rendezvous_backends()
        error = refusal(lambda: check_rendezvous_backend("mine"), reason)
        assert error.message.startswith(f"--rdzv-backend=mine ({value} of my-rdzv): ")
