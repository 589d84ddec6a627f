"""Classes of a plugin author, at the top of a module as they have to be."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from dlrover_cli.contracts import (
    AbstractJobHandler,
    BaseJob,
    BaseJobConfig,
    JobContext,
    Jsonable,
    ProjectDesc,
)


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Paint(Jsonable):
    """Every kind of attribute that there may be."""

    def __init__(self) -> None:
        super().__init__()
        self.colour = Colour.BLUE
        self.text, self.whole, self.part = "a \u2603 \n", 3, 0.25
        self.yes, self.nothing = True, None
        self.listed = [1, [Colour.RED], {"deep": [None]}]
        self.mapped: dict[str, Any] = {"": {}, "colour": Colour.RED}
        self.other = Layer(2)
        self._handle = object()


class Layer(Jsonable):
    """Constructed with an argument, which reading it back does not need."""

    def __init__(self, thickness: int) -> None:
        super().__init__()
        self.thickness = thickness


class PaintConfig(BaseJobConfig):
    """Has parameters of its own, with defaults."""

    def __init__(self, coats: int = 2, colour: Colour = Colour.RED, **more: Any) -> None:
        super().__init__(**more)
        self.coats = coats
        self.colour = colour


class PaintJob(BaseJob):
    """Has more than its base."""

    def __init__(self, job_context: JobContext, job_config: BaseJobConfig) -> None:
        super().__init__(job_context, job_config)
        self.layers = [Layer(1), Layer(2)]


class PaintHandler(AbstractJobHandler):
    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid


class Forgetful(Jsonable):
    """Does not write what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 1

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Forgetful":
        again = cls()
        again.count = 2
        return again


class Fragile(Jsonable):
    """Cannot be read back."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Fragile":
        raise KeyError("pid")


class ReadOnly(Jsonable):
    """Writes what it cannot set."""

    @property
    def size(self) -> int:
        return 3

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size}


class Shy(Jsonable):
    """Cannot be written."""

    def to_json(self) -> dict[str, Any]:
        raise RuntimeError("not now")


class WritesBytes(Jsonable):
    """Writes what JSON has no form for."""

    def to_json(self) -> dict[str, Any]:
        return {"data": b"x"}


class Numbered(Jsonable):
    """Has numbers for keys, and sees to it itself that they come back."""

    def __init__(self, ranks: dict[int, str] | None = None) -> None:
        super().__init__()
        self._ranks = {0: "a", 1: "b"} if ranks is None else ranks

    def to_json(self) -> dict[str, Any]:
        return {"ranks": self._ranks}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Numbered":
        return cls({int(rank): name for rank, name in data["ranks"].items()})


def paint_job() -> PaintJob:
    context = JobContext(ProjectDesc("house", "/srv/house", {"floors": 2}))
    config = PaintConfig(job_name="paint", platform="local", properties={"walls": [1, 2]})
    return PaintJob(context, config)
