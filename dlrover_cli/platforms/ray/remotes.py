"""All that is sent to the cluster's nodes: questions to a node, and the actor of an agent."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from dlrover_cli.platforms.ray import host
from dlrover_cli.platforms.ray.resources import actor_options

_CALLS_AT_ONCE = 4
"""One waits for the agent's end."""


class Remotes:
    """Each goes to the node that is named, and nowhere else. Nothing here waits."""

    def __init__(self, ray: ModuleType, resources: Mapping[str, float]) -> None:
        from ray import cloudpickle
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        cloudpickle.register_pickle_by_value(host)
        self._affinity = NodeAffinitySchedulingStrategy
        self._look_around = ray.remote(num_cpus=0, max_retries=0)(host.look_around)
        self._answer = ray.remote(num_cpus=0, max_retries=0)(host.answer)
        self._host = ray.remote(host.AgentHost)
        self._resources = resources

    def look_around(self, node: str, wanted: Mapping[str, Any]) -> Any:
        """Its answer will be what `host.look_around` returns."""
        return self._look_around.options(**self._on(node)).remote(dict(wanted))

    def answer(self, node: str) -> Any:
        return self._answer.options(**self._on(node)).remote()

    def agent_host(self, node: str) -> Any:
        """An actor that ends with this driver. Never restarted: its agent would be another."""
        return self._host.options(
            max_concurrency=_CALLS_AT_ONCE,
            max_restarts=0,
            max_task_retries=0,
            **actor_options(self._resources),
            **self._on(node),
        ).remote()

    def _on(self, node: str) -> dict[str, Any]:
        return {"scheduling_strategy": self._affinity(node, soft=False)}
