"""torch's WorkerSpec, with the role optional as torchelastic's own documentation has it."""

from typing import Any

from torch.distributed.elastic.agent.server import api


class WorkerSpec(api.WorkerSpec):
    """What the workers of one node are; see torch's class of the same name."""

    def __init__(self, role: str = api.DEFAULT_ROLE, *args: Any, **kwargs: Any) -> None:
        super().__init__(role, *args, **kwargs)
