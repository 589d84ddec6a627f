"""`--dynamic_failover_extension` is loaded, checked and constructed before anything starts."""

from collections.abc import Callable

import pytest

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.failover_extension import FailoverExtension, load_failover_extension
from dlrover_cli.plugins.faults import PluginFault
from tests.plugins.user_code import UserCode

Load = Callable[[str], FailoverExtension]


@pytest.fixture
def load(user: UserCode) -> Load:
    """Loads `MyExtension` with the given body from a module that was just written."""

    def load(body: str, base: str = "DynamicAgentFailoverExtension") -> FailoverExtension:
        user.write(
            "myext.py",
            f"from dlrover_cli.contracts import *\nclass MyExtension({base}):\n{body}\n",
        )
        return load_failover_extension("myext::MyExtension", user.roots)

    return load


ANSWER = "    def get_user_failover_strategy(self, info): return FailoverStrategy.NODE_FAILOVER"


def refusal(call: Callable[[], object], reason: PluginFault) -> PluginError:
    with pytest.raises(PluginError) as caught:
        call()
    assert caught.value.reason is reason, caught.value.message
    assert caught.value.message.startswith("--dynamic_failover_extension=myext::MyExtension: ")
    return caught.value


def test_an_extension_is_constructed_and_answers(load: Load) -> None:
    extension = load(ANSWER)
    answer = extension.get_user_failover_strategy(AgentFailureInfo())
    assert answer is FailoverStrategy.NODE_FAILOVER


def test_the_plain_base_class_will_do(load: Callable[..., FailoverExtension]) -> None:
    assert load(ANSWER, "DynamicFailoverExtension")


def test_a_constructor_with_defaults_is_called_without_arguments(load: Load) -> None:
    assert load(f"    def __init__(self, folder='/etc'): self.folder = folder\n{ANSWER}")


def test_a_constructor_that_needs_something_is_shown_with_what_it_takes(load: Load) -> None:
    error = refusal(
        lambda: load(f"    def __init__(self, url: str): pass\n{ANSWER}"),
        PluginFault.WRONG_SIGNATURE,
    )
    assert "is called with () and takes (url)" in error.message


def test_a_constructor_that_raises_is_shown_with_the_users_line(load: Load, user: UserCode) -> None:
    body = f"    def __init__(self):\n        raise OSError('no route to policy server')\n{ANSWER}"
    error = refusal(lambda: load(body), PluginFault.CONSTRUCTOR_RAISED)
    assert "raised OSError: no route to policy server" in error.message
    assert f"{user.root / 'myext.py'}:4, in __init__" in error.message
    assert isinstance(error.__cause__, OSError)


def test_a_constructor_that_exits_does_not_end_the_launcher(load: Load) -> None:
    body = f"    def __init__(self): raise SystemExit('bye')\n{ANSWER}"
    error = refusal(lambda: load(body), PluginFault.CONSTRUCTOR_RAISED)
    assert "sys.exit('bye')" in error.message


def test_a_type_error_inside_the_constructor_is_not_taken_for_its_signature(load: Load) -> None:
    refusal(
        lambda: load(f"    def __init__(self): len(5)\n{ANSWER}"), PluginFault.CONSTRUCTOR_RAISED
    )


def test_ctrl_c_in_the_constructor_is_ctrl_c(load: Load) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(f"    def __init__(self): raise KeyboardInterrupt\n{ANSWER}")


@pytest.mark.parametrize("parameters", ["self", "self, info, level"])
def test_a_method_that_cannot_take_one_failure_is_refused_now_and_not_at_the_first_failure(
    load: Load, parameters: str
) -> None:
    body = f"    def get_user_failover_strategy({parameters}): pass"
    error = refusal(lambda: load(body), PluginFault.WRONG_SIGNATURE)
    assert "(self, failure_info)" in (error.hint or "")


def test_a_class_with_another_base_is_refused(load: Callable[..., FailoverExtension]) -> None:
    refusal(lambda: load(ANSWER, "dict"), PluginFault.WRONG_BASE)


def test_a_method_with_a_typo_is_refused(load: Load) -> None:
    error = refusal(
        lambda: load("    def get_strategy(self, i): pass"), PluginFault.ABSTRACT_METHODS
    )
    assert "get_user_failover_strategy" in error.message
