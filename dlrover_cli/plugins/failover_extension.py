"""Loading `--dynamic_failover_extension`: ours, or one written against an installed DLRover."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from dlrover_cli.contracts.failover import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
    DynamicFailoverExtension,
)
from dlrover_cli.plugins.construct import accepts, construct
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.plugins.reference import Found, check_class, resolve

OPTION = "--dynamic_failover_extension"

# DLRover's own base classes, and copies of them from its documentation, are known by their names.
_BASE_NAMES = frozenset({DynamicAgentFailoverExtension.__name__, DynamicFailoverExtension.__name__})
_METHOD = "get_user_failover_strategy"


class FailoverExtension(Protocol):
    """What every loaded extension can do, whoever's base class it has.

    The answer is untyped: it may be DLRover's enum or any mistake, and is judged where it is used.
    """

    def get_user_failover_strategy(self, failure_info: AgentFailureInfo) -> Any: ...


def load_failover_extension(
    reference: str, roots: Sequence[Path], *, option: str = OPTION
) -> FailoverExtension:
    """Import, check and construct (without arguments, as DLRover does) in this process."""
    found = resolve_failover_extension(reference, roots, option=option)
    extension = construct(found)
    method = getattr(extension, _METHOD, None)
    if not callable(method) or not accepts(method, AgentFailureInfo()):
        raise found.subject.fault(
            PluginFault.WRONG_SIGNATURE,
            f"its {_METHOD} cannot be called with one failure",
            hint=f"def {_METHOD}(self, failure_info) -> FailoverStrategy",
        )
    return cast(FailoverExtension, extension)


def resolve_failover_extension(
    reference: str, roots: Sequence[Path], *, option: str = OPTION
) -> Found:
    """Import and check the class without constructing it."""
    found = resolve(reference, option=option, roots=roots)
    check_class(found, DynamicAgentFailoverExtension, also_named=_BASE_NAMES)
    return found
