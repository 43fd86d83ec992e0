"""What gputopo has written on nodes and pods, shown and removed.

That is all under the prefixes of the agent and the extender. It includes our conditions of nodes and pods, our scheduling
gate, and pods that features have created. What users wrote under `gputopo.dev/` stays: it is part of
their manifests. While agents or extenders run nothing is removed: they would write again, and a node without its ledger
takes no pods before it is rebuilt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from extender.cluster.objects.gpu_pods import has_ended
from extender.cluster.objects.kinds import (
    Node,
    NodeCondition,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from extender.kubernetes.documents import decoder, message_of
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Listed, Unavailable, list_objects
from extender.kubernetes.rest import Request
from topology.annotations import keys

if TYPE_CHECKING:
    from extender.core.feature import Removal  # no other verb needs what features import

PREFIXES: Final = (keys.AGENT_PREFIX, keys.EXTENDER_PREFIX)
OURS: Final = ("app.kubernetes.io/name", "gputopo")
"""The label of the pods that write them."""
AT_ONCE: Final = 16

Kind = TypeVar("Kind", Node, Pod)
Condition = TypeVar("Condition", NodeCondition, PodCondition)


@dataclass(frozen=True, slots=True)
class Leftover:
    """One node or pod with annotations, a condition or a scheduling gate of ours; or a pod that a feature has created."""

    kind: str
    namespace: str
    name: str
    uid: str
    keys: tuple[str, ...]
    """Of annotations."""
    conditions: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    """Scheduling gates of ours; gates of others stay."""
    whole: Request | None = None
    """The request that removes all of it, where a feature has created it."""

    @property
    def removals(self) -> tuple[Request, ...]:
        """The requests that take them away, from this object and no namesake of it."""
        if self.whole:
            return (self.whole,)
        within = f"/namespaces/{quote(self.namespace, safe='')}/pods" if self.kind == "pod" else "/nodes"
        path = f"/api/v1{within}/{quote(self.name, safe='')}"
        annotations = {"metadata": {"uid": self.uid, "annotations": dict.fromkeys(self.keys)}}
        gone = [{"$patch": "delete", "type": condition} for condition in self.conditions]
        conditions = {"metadata": {"uid": self.uid}, "status": {"conditions": gone}}
        open_gates = [{"$patch": "delete", "name": gate} for gate in self.gates]
        gates = {"metadata": {"uid": self.uid}, "spec": {"schedulingGates": open_gates}}
        return (
            *((_patch(path, gates, "strategic-merge"),) if self.gates else ()),
            *((_patch(path, annotations, "merge"),) if self.keys else ()),
            *((_patch(f"{path}/status", conditions, "strategic-merge"),) if gone else ()),
        )


@dataclass(frozen=True, slots=True)
class ClusterLeftovers:
    """What there is in a cluster."""

    leftovers: tuple[Leftover, ...]
    running: tuple[str, ...]
    """Pods of ours that may write, as `namespace/name`."""
    unread: tuple[str, ...]
    """Objects too large to be looked at."""


async def find(config: Kubeconfig) -> ClusterLeftovers:
    """Look at all nodes and pods; raises as `list_objects` does."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        nodes = await list_objects(api.resource("/api/v1/nodes"), decoder(Node), _bare_node)
        pods = await list_objects(api.resource("/api/v1/pods"), decoder(Pod), _bare_pod)
    label, name = OURS
    writers = (pod.metadata for pod in pods.objects if (pod.metadata.labels or {}).get(label) == name)
    return ClusterLeftovers(
        (*_leftovers("node", nodes), *_leftovers("pod", pods)),
        tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in writers)),
        tuple(item.metadata.name for listed in (nodes, pods) for item in listed.unread),
    )


async def find_gated(config: Kubeconfig) -> list[Leftover]:
    """Return the pods behind our scheduling gate, each with that gate alone; raises as `list_objects` does."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        pods = await list_objects(api.resource("/api/v1/pods"), decoder(Pod), _bare_gated)
    return [leftover for leftover in _leftovers("pod", pods) if leftover.gates]


async def remove(config: Kubeconfig, leftovers: Iterable[Leftover]) -> dict[Leftover, str]:
    """Take all of it away, a few objects at once; returns where that failed, and why. What is gone is no failure."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(leftover: Leftover) -> str | None:
        for removal in leftover.removals:
            async with places:
                try:
                    status, body = await api.send(removal)
                except Unavailable as error:
                    return str(error)
            if status >= 300 and status != 404:
                return f"{status}: {message_of(body)}"
        return None

    objects = tuple(leftovers)
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        answers = await asyncio.gather(*map(one, objects))
    return {leftover: why for leftover, why in zip(objects, answers, strict=True) if why is not None}


def _patch(path: str, body: object, kind: str) -> Request:
    content_type = f"application/{kind}-patch+json"
    return Request("PATCH", f"{path}?fieldManager=kubectl-gputopo", msgspec.json.encode(body), content_type)


def _bare_node(node: Node) -> Node | None:
    metadata, ours = _bare(node.metadata), _of_type(keys.GPUS_HEALTHY, node.status.conditions)
    if metadata is None and not ours:
        return None
    return Node(metadata or _identity(node.metadata), NodeStatus(conditions=ours))


def _bare_pod(pod: Pod) -> Pod | None:
    if _removal(pod):
        return Pod(pod.metadata)
    metadata, gated = _bare(pod.metadata, may_write=not has_ended(pod)), _bare_gated(pod)
    ours = _of_type(keys.PLANNED_CONDITION, pod.status.conditions)
    if metadata is None and gated is None and not ours:
        return None
    return Pod(metadata or _identity(pod.metadata), gated.spec if gated else PodSpec(), PodStatus(conditions=ours))


def _bare_gated(pod: Pod) -> Pod | None:
    """Keep only name and gate, and only of a pod with our gate."""
    if not any(gate.get("name") == keys.PLAN_GATE for gate in pod.spec.scheduling_gates or ()):
        return None
    return Pod(_identity(pod.metadata), PodSpec(scheduling_gates=[{"name": keys.PLAN_GATE}]))


def _of_type(kind: str, conditions: Iterable[Condition] | None) -> list[Condition]:
    return [condition for condition in conditions or () if condition.type == kind]


def _identity(metadata: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(metadata.name, metadata.namespace, metadata.uid)


def _removal(pod: Pod) -> Removal | None:
    """Return how to remove a pod that a feature has created."""
    from extender.features.registry import FEATURES  # see above

    return next((removal for feature in FEATURES if (removal := feature.removal(pod))), None)


def _bare(metadata: ObjectMeta, *, may_write: bool = False) -> ObjectMeta | None:
    """Keep only what is read, of an object that has to do with us. The label counts only of a pod that may write."""
    ours = {key: "" for key in metadata.annotations or {} if key.startswith(PREFIXES)}
    labels = {key: value for key, value in (metadata.labels or {}).items() if may_write and (key, value) == OURS}
    if not ours and not labels:
        return None
    return ObjectMeta(metadata.name, metadata.namespace, metadata.uid, labels=labels, annotations=ours)


def _leftovers(kind: str, listed: Listed[Kind]) -> Iterable[Leftover]:
    for item in sorted(listed.objects, key=lambda item: (item.metadata.namespace, item.metadata.name)):
        conditions = tuple(condition.type for condition in item.status.conditions or ())
        annotations, metadata = tuple(sorted(item.metadata.annotations or ())), item.metadata
        gates = (keys.PLAN_GATE,) if isinstance(item, Pod) and item.spec.scheduling_gates else ()
        if removal := _removal(item) if isinstance(item, Pod) else None:
            ours = tuple(key for key in annotations if key.startswith(keys.USER_PREFIX))
            identity = metadata.namespace, metadata.name, metadata.uid
            yield Leftover(removal.kind, *identity, ours, whole=removal.request)
        elif annotations or conditions or gates:
            yield Leftover(kind, metadata.namespace, metadata.name, metadata.uid, annotations, conditions, gates)
