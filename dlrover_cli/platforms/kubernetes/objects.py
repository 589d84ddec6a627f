"""The objects of one run in a cluster: made together, found again by anybody, deleted together."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dlrover_cli.platforms.kubernetes.client import POD, Client, Json, Kind, kind_of
from dlrover_cli.platforms.kubernetes.faults import KubernetesError
from dlrover_cli.platforms.kubernetes.manifests import manifests
from dlrover_cli.platforms.kubernetes.names import run_slug
from dlrover_cli.platforms.kubernetes.pods import (
    BAR,
    NODE,
    ROLE_LABEL,
    RUN_LABEL,
    Run,
    bar_pod,
)
from dlrover_cli.platforms.kubernetes.request import Request

_LOOK_AGAIN_SECONDS = 0.5
_MARGIN_SECONDS = 30.0
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class RunObjects:
    """What a run consists of; known from its request and its id alone."""

    client: Client
    request: Request
    run_id: str
    manifests: Sequence[Json] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifests", manifests(self.request, self.run_id))

    @property
    def name(self) -> str:
        return str(self.manifests[0]["metadata"]["name"])

    @property
    def main_kind(self) -> Kind:
        """Of the object that owns the others, and whose state is the job's."""
        return kind_of(self.manifests[0])

    @property
    def selector(self) -> str:
        return f"{RUN_LABEL}={run_slug(self.run_id)}"

    def create(self) -> None:
        """Make all of them; if one cannot be made, none is left. Raises KubernetesError."""
        owner: Json | None = None
        made: list[Json] = []
        try:
            for manifest in self.manifests:
                made.append(manifest)  # also one whose making got no answer
                answer = self.client.create(_owned(manifest, owner))
                owner = owner or answer
        except BaseException as error:
            if isinstance(error, KubernetesError) and error.status is not None:
                made.pop()  # it was refused, and may be somebody else's
            with suppress(KubernetesError):
                self._delete_these(made)
            raise

    def main(self) -> Json | None:
        """The job itself; None if it is gone."""
        return self.client.get(self.main_kind, self.request.namespace, self.name)

    def pods(self, role: str | None = NODE) -> list[Json]:
        selector = self.selector if role is None else f"{self.selector},{ROLE_LABEL}={role}"
        return self.client.list(POD, self.request.namespace, selector)

    def delete(self, grace: float | None = None) -> list[str]:
        """Have everything go, and wait until it has; the names of pods that would not.

        ``grace`` are the seconds that pods get to end; by default what they were made with.
        """
        self._delete_these(self.manifests)
        self.lift_bars()
        if grace is not None:
            for pod in self.pods(role=None):
                self.client.delete(
                    POD, self.request.namespace, pod["metadata"]["name"], grace=grace
                )
        patience = self.request.grace if grace is None else grace
        deadline = time.monotonic() + patience + _MARGIN_SECONDS
        while left := self.pods(role=None):
            if time.monotonic() >= deadline:
                return [pod["metadata"]["name"] for pod in left]
            time.sleep(_LOOK_AGAIN_SECONDS)
        return []

    def replace_node(self, pod: str) -> bool:
        """Take a pod from its node; its job makes another one, at no cost. False if it is gone."""
        return self.client.evict(self.request.namespace, pod)

    def bar(self, machine: str) -> None:
        """Let no node of the run be scheduled on this machine from now on."""
        bar = bar_pod(Run(self.request, self.run_id), machine)
        try:
            self.client.create(_owned(bar, self.main()))
        except KubernetesError as error:
            if error.status != _CONFLICT:  # it is there already
                raise

    def lift_bars(self) -> None:
        """Machines may be used again."""
        for pod in self.pods(role=BAR):
            self.client.delete(POD, self.request.namespace, pod["metadata"]["name"])

    def _delete_these(self, manifests: Sequence[Json]) -> None:
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            self.client.delete(kind_of(manifest), self.request.namespace, name)


def delete_command(manifests: Sequence[Json]) -> str:
    """For a person, where nobody of us does it."""
    plurals = [
        kind.plural if "." not in kind.api_version else "jobs.batch.volcano.sh"
        for kind in map(kind_of, manifests)
    ]
    metadata = manifests[0]["metadata"]
    selector = f"{RUN_LABEL}={metadata['labels'][RUN_LABEL]}"
    what = ",".join(dict.fromkeys(plurals))
    return f"kubectl delete {what} -n {metadata['namespace']} -l {selector}"


def _owned(manifest: Json, owner: Json | None) -> Json:
    """The object with its owner in it: when that one goes, so does this."""
    if owner is None:
        return manifest
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return manifest | {"metadata": manifest["metadata"] | {"ownerReferences": [reference]}}
