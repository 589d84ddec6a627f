"""Who replaces a node: the extension point of the job's manager, as DLRover's guide has it.

Registered through the entry point group `dlrover.unified.extension`, or with
`ManagerExtension.register_extension` as a decorator.
"""

from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

_Extension = TypeVar("_Extension", bound="type[ManagerExtension]")


@dataclass(frozen=True)
class NodeInfo:
    """One node, as the platform knows it."""

    id: str
    hostname: str | None = None
    ip_address: str | None = None
    envs: dict[str, str] = field(default_factory=dict)


class ManagerExtension:
    """Override what the platform can do; what is not overridden is ignored by the manager."""

    _registered: ClassVar[list[type["ManagerExtension"]]] = []

    async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
        """Replace `nodes`; return those that were replaced. By default none is."""
        return []

    @classmethod
    def register_extension(cls, extension: _Extension) -> _Extension:
        """Register a subclass; usable as a decorator."""
        if extension not in cls._registered:
            cls._registered.append(extension)
        return extension

    @classmethod
    def extensions(cls) -> list[type["ManagerExtension"]]:
        """The registered subclasses, in the order of their registration."""
        return list(cls._registered)
