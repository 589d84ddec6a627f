"""Tasks, nodes, jobs and queues on the wire, in two dialects at once.

Volcano's documentation writes `{"name", "resources": {"cpu": 2}}`; its code writes the names of
Go's fields, `{"Name", "Resreq": {"MilliCPU": 2000}}`. Every object here holds both, so that a
service written to either finds what it looks for. Go reads names without regard to case, and gets
the same value twice. What is not known here is left out.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Amount = int | float


class Wire(BaseModel):
    """Reads names as Go does: without regard to case, the exact one first, null as if absent."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    _by_folded_name: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        names: dict[str, tuple[str, ...]] = {}
        for name, field in cls.model_fields.items():
            written = field.alias or name
            names[written.casefold()] = (*names.get(written.casefold(), ()), written)
        cls._by_folded_name = names

    @model_validator(mode="before")
    @classmethod
    def _match_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        found: dict[str, Any] = {}
        for key, value in data.items():
            if value is None:
                continue
            for name in cls._by_folded_name.get(str(key).casefold(), (key,)):
                if name == key or name not in data:
                    found[name] = value
        return found


class GoResources(Wire):
    """Amounts as Volcano counts them: memory in bytes, all else in thousandths."""

    milli_cpu: Amount = Field(default=0, alias="MilliCPU")
    memory: Amount = Field(default=0, alias="Memory")
    scalar_resources: dict[str, Amount] = Field(default_factory=dict, alias="ScalarResources")

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> Self:
        others = {name: whole(1000 * n) for name, n in amounts.items() if name not in _NAMED}
        return cls(
            MilliCPU=whole(1000 * amounts.get("cpu", 0)),
            Memory=whole(amounts.get("memory", 0)),
            ScalarResources=others,
        )

    def amounts(self) -> dict[str, Amount]:
        """By name, in cores, bytes and pieces."""
        known = {"cpu": whole(self.milli_cpu / 1000), "memory": self.memory}
        return {
            **{name: amount for name, amount in known.items() if amount},
            **{name: whole(amount / 1000) for name, amount in self.scalar_resources.items()},
        }

    @model_validator(mode="before")
    @classmethod
    def _from_either(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data or _is_go(data):
            return data
        amounts = {name: n for name, n in data.items() if isinstance(n, int | float)}
        return cls.of(amounts).model_dump(by_alias=True)


def whole(amount: float) -> Amount:
    """An integer where it is one: a service may read nothing else."""
    return int(amount) if amount == int(amount) else amount


def quantities(amounts: Mapping[str, float]) -> dict[str, str]:
    """As Kubernetes writes them: `2`, `500m`."""
    return {
        name: str(int(n)) if n == int(n) else f"{round(n * 1000)}m" for name, n in amounts.items()
    }


def _either(data: Any) -> Any:
    """Amounts by name, also from what only Volcano's names are given of."""
    if isinstance(data, dict) and _is_go(data):
        return GoResources.model_validate(data).amounts()
    return data


def _is_go(data: Mapping[str, Any]) -> bool:
    return any(str(key).casefold() in ("millicpu", "scalarresources") for key in data)


_NAMED = frozenset({"cpu", "memory"})
Amounts = Annotated[dict[str, Amount], BeforeValidator(_either)]
"""Of resources by name: cores, bytes, and pieces of all else."""


class Task(Wire):
    """One agent of a job, which Volcano has as a pod."""

    namespace: str = ""
    name: str = ""
    resources: Amounts = Field(default_factory=dict)
    uid: str = Field(default="", alias="UID")
    go_namespace: str = Field(default="", alias="Namespace")
    go_name: str = Field(default="", alias="Name")
    job: str = Field(default="", alias="Job")
    task_role: str = Field(default="", alias="TaskRole")
    resreq: GoResources = Field(default_factory=GoResources, alias="Resreq")
    init_resreq: GoResources = Field(default_factory=GoResources, alias="InitResreq")
    priority: int = Field(default=0, alias="Priority")
    preemptable: bool = Field(default=True, alias="Preemptable")
    best_effort: bool = Field(default=False, alias="BestEffort")
    node_name: str = Field(default="", alias="NodeName")
    status: int = Field(
        default=1, alias="Status", description="1 pending, 2 allocated, 32 running, …"
    )
    pod: dict[str, Any] = Field(default_factory=dict, alias="Pod", description="As Kubernetes'.")

    @model_validator(mode="before")
    @classmethod
    def _resources_from_either(cls, data: Any) -> Any:
        if isinstance(data, dict) and "resources" not in data and data.get("Resreq"):
            return {**data, "resources": data["Resreq"]}
        return data


class Node(Wire):
    """One machine that agents run on."""

    name: str = ""
    allocatable: Amounts = Field(default_factory=dict)
    go_name: str = Field(default="", alias="Name")
    node: dict[str, Any] = Field(default_factory=dict, alias="Node", description="As Kubernetes'.")
    go_allocatable: GoResources = Field(default_factory=GoResources, alias="Allocatable")
    capacity: GoResources = Field(default_factory=GoResources, alias="Capacity")
    idle: GoResources = Field(default_factory=GoResources, alias="Idle")
    used: GoResources = Field(default_factory=GoResources, alias="Used")
    releasing: GoResources = Field(default_factory=GoResources, alias="Releasing")
    pipelined: GoResources = Field(default_factory=GoResources, alias="Pipelined")


class Job(Wire):
    """A gang of tasks; `MinAvailable` of them start together or none does."""

    namespace: str = ""
    name: str = ""
    uid: str = Field(default="", alias="UID")
    go_namespace: str = Field(default="", alias="Namespace")
    go_name: str = Field(default="", alias="Name")
    queue: str = Field(default="", alias="Queue")
    priority: int = Field(default=0, alias="Priority")
    min_available: int = Field(default=0, alias="MinAvailable")
    tasks: dict[str, Task] = Field(default_factory=dict, alias="Tasks")
    allocated: GoResources = Field(default_factory=GoResources, alias="Allocated")
    total_request: GoResources = Field(default_factory=GoResources, alias="TotalRequest")


class Queue(Wire):
    """What jobs of one kind share; `Capability` and `Allocated` are quantities of Kubernetes."""

    name: str = ""
    uid: str = Field(default="", alias="UID")
    go_name: str = Field(default="", alias="Name")
    weight: int = Field(default=1, alias="Weight")
    capability: dict[str, str] = Field(default_factory=dict, alias="Capability")
    allocated: dict[str, str] = Field(default_factory=dict, alias="Allocated")
    reclaimable_flag: bool = Field(default=True, alias="ReclaimableFlag")
