"""The parts of Kubernetes objects that we read, as msgspec structs; everything else in an object is skipped unparsed.

They are read from JSON and frozen, so none can be part of a cycle. So the garbage collector does not look at them: there are
hundreds of thousands.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_POD_BYTES: Final = 1 << 20
"""Of JSON: of a larger pod, writes may be refused (`extender.cluster.objects.gpu_pods.has_place_for_ours`)."""


KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods from a node; others only have it come last."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """Who made an object."""

    uid: str = ""
    controller: bool | None = None
    """At most one owner is."""
    kind: str = ""
    name: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`metadata` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that creates another object in its place, if there is one."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class ResourceRequirements(msgspec.Struct, frozen=True, gc=False):
    """Quantities as Kubernetes writes them."""

    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An app, init or sidecar container."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The PodGroup that a pod belongs to; Kubernetes 1.36 and later."""

    pod_group_name: str | None = None


class WorkloadReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The group of a Workload that a pod belongs to; Kubernetes 1.35."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class Present(msgspec.Struct, frozen=True, gc=False):
    """Something of which only counts that it is there."""


class NodeAffinityRules(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"required": "requiredDuringSchedulingIgnoredDuringExecution"},
):
    """Whether a pod says on which nodes it has to be."""

    required: Present | None = None


class AffinityRules(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Where a pod has to be or had better be, beside which others."""

    node_affinity: NodeAffinityRules | None = None


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Where a volume comes from, if it may be bound to some nodes only."""

    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodClaim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A ResourceClaim of a pod: an existing one, or one that is made for the pod from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodClaimStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Which ResourceClaim was made for a pod from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a pod asks for and where it is."""

    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[dict[str, object]] | None = None
    priority: int | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    resources: ResourceRequirements = ResourceRequirements()
    """What is asked for the pod as a whole; for the resources that it names, containers do not count."""
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    overhead: dict[str, str | int] | None = None
    """What its runtime takes beside the containers."""
    preemption_policy: str | None = None
    """Kept of pods that wait, and only if they never preempt others."""
    node_selector: dict[str, str] | None = None
    """This, and what follows, is kept of pods that wait only, and read where the queue is planned ahead."""
    tolerations: list[Toleration] | None = None
    affinity: AffinityRules | None = None
    topology_spread_constraints: list[Present] | None = None
    resource_claims: list[PodClaim] | None = None
    volumes: list[Volume] | None = None
    termination_grace_period_seconds: int | None = None
    """Kept of pods with ResourceClaims, and of those that may move."""
    priority_class_name: str | None = None
    """This, and what follows, is kept of pods that may move only."""
    restart_policy: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """Exactly one is set; only `terminated` is a proof of anything."""

    waiting: dict[str, object] | None = None
    running: dict[str, object] | None = None
    terminated: dict[str, object] | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    """One container's state as the kubelet reported it."""

    name: str = ""
    state: ContainerState = ContainerState()
    ready: bool = False


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """These matter: `DisruptionTarget`, by which somebody has the pod go; `PodScheduled`; an agent's `Ready`."""

    type: str = ""
    status: str = ""
    reason: str = ""


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What the kubelet says of a pod."""

    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: list[PodCondition] | None = None
    extended_resource_claim_status: dict[str, object] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    start_time: str | None = None
    """When its kubelet has taken it."""
    resource_claim_statuses: list[PodClaimStatus] | None = None
    """Kept only where a feature allocates ResourceClaims."""


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    json_bytes: int = 0
    """How long the text was that this was read from, where that is more than `MAX_POD_BYTES`; no field of Kubernetes."""


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    """`Ready` is the one that matters; others are what health agents say."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """Capacity and conditions."""

    allocatable: dict[str, str] | None = None
    conditions: list[NodeCondition] | None = None


class Taint(msgspec.Struct, frozen=True, gc=False):
    """What keeps pods away that do not tolerate it; kube-scheduler sees to that."""

    key: str = ""
    effect: str = ""
    value: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """What others ask of a node."""

    taints: list[Taint] | None = None
    unschedulable: bool = False
    """`kubectl cordon` sets it; a controller adds the taint a moment later."""


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()
    spec: NodeSpec = NodeSpec()

    def offers(self, resource: str) -> bool:
        """Whether a device plugin offers the resource there, to kube-scheduler's eyes."""
        return (self.status.allocatable or {}).get(resource, "0") != "0"

    def offers_any_of(self, beginnings: tuple[str, ...]) -> bool:
        """Whether a device plugin offers a resource there whose name begins so."""
        offered = self.status.allocatable or {}
        return any(name.startswith(beginnings) and amount != "0" for name, amount in offered.items())

    def offers_none_of(self, beginnings: tuple[str, ...]) -> bool:
        """Whether the node says what is allocatable, and nothing of it has a name that begins so."""
        return self.status.allocatable is not None and not self.offers_any_of(beginnings)


def bare(node: Node) -> Node:
    """Return a node with the one condition that decides, and the taints that do, without the words of others.

    There are thousands of nodes.


    >>> bare(Node(status=NodeStatus(None, [NodeCondition("Ready", "True", "KubeletReady", "kubelet is posting")])))
    Node(metadata=..., status=NodeStatus(allocatable=None, conditions=[NodeCondition(type='Ready', status='True', reason='', ...
    """
    conditions = node.status.conditions
    ready = conditions and [NodeCondition(each.type, each.status) for each in conditions if each.type == "Ready"]
    taints = node.spec.taints and [taint for taint in node.spec.taints if taint.effect in KEEPS_AWAY]
    return Node(
        node.metadata, NodeStatus(node.status.allocatable, ready), NodeSpec(taints or None, node.spec.unschedulable)
    )
