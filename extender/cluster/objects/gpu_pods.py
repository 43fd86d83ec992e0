"""Read from a pod how many GPUs it requests, which ones its record gives it, and whether it can still use them."""

from __future__ import annotations

from dataclasses import dataclass

from extender.cluster.objects.group_words import ALL_WORDS, GroupWords, restart_group_of
from extender.cluster.objects.kinds import MAX_POD_BYTES, ContainerStatus, Pod, PodCondition
from extender.cluster.objects.parts import Part, Parts, of_record
from extender.cluster.objects.pod_demand import asked_by, containers_of
from extender.cluster.objects.quantities import cpu_milli
from extender.cluster.objects.stands_for import NEVER_PLACED, is_stand_in
from topology.annotations import keys
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import Claim, PlacementRecord, can_be_named, decode_placement
from topology.errors import PayloadError, RequestError
from topology.request.domains import GroupRequest
from topology.request.gpu_request import PodRequest, pod_request
from topology.request.shares import gib_of
from topology.request.words import duration, name, percent
from topology.value.fragmentation import PodKind

ALLOCATED_BY_DRA = "the pod's GPUs are allocated by a ResourceClaim, not by gputopo"
MAX_ANNOTATION_BYTES = 256 * 1024
"""Keys and values of one object together; the API server refuses all writes that leave more, but for a Binding."""
MAX_MODELS_CHARACTERS = 256
"""Of `gpu-model`; a pod that says more is not placed."""
_OF_SHARES = (keys.COMPUTE_PERCENT, keys.SAME_GPU)
"""What says nothing of groups, and is refused where no container asks for a share: `read_group` reads no containers."""
_OURS = (keys.PLACEMENT, keys.FENCE, keys.NOMINATED, keys.PLANNED)
_OURS_BYTES = MAX_BYTES + 1024
"""Of the largest record, the mark of a fence, the name of a node, and their keys."""
_FENCED_POD_BYTES = MAX_POD_BYTES + MAX_POD_BYTES // 4
"""etcd refuses 1.5 MiB, by default; what is stored there is hardly ever longer than the JSON."""
EVICTED = "DisruptionTarget"
"""The condition that eviction, preemption, taints and the kubelet leave."""
NEVER = "Never"
"""The `preemptionPolicy` of a pod that waits for room in any case."""
GATED = PodCondition("PodScheduled", "False", "SchedulingGated")
"""The condition of a pod with scheduling gates; it stays until kube-scheduler has tried the pod."""


@dataclass(frozen=True, slots=True)
class ClaimedRequest:
    """What a pod requests by ResourceClaims that a feature allocates, as of one version of the pod and of its claims."""

    request: PodRequest | None
    """`None`: nobody can serve it as it is."""
    refusal: str = ""
    """Why not."""
    is_allocated: bool = False
    """Whether all of these claims have devices; kube-scheduler cannot place the pod before."""
    allocated: int = 0
    """How many these are, where all of them have some."""

    @property
    def gpus(self) -> int:
        """How many GPUs it has, or requests at first."""
        return self.allocated or (self.request.request.gpus if self.request else 0)

    @property
    def profile(self) -> str:
        """The MIG profile of which it requests devices; empty: it requests GPUs."""
        return self.request.request.profile if self.request else ""


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A pod that asks for GPUs, as of one version of it."""

    pod: Pod
    gpus: int | None
    """How many GPUs or slices it asks for; `None`: it asks in a way that nobody can read."""
    placed: Parts | None
    """What its placement record gives it of GPUs; `None`: it has none, or none that can be read."""
    stopped: bool = False
    """None of its containers runs or will run again."""
    profile: str = ""
    """The MIG profile that it asks for slices of; empty: it asks for GPUs."""
    shares: tuple[int, ...] = ()
    """GiB of each share of a GPU that it asks for, side by side; empty: it asks for none."""
    init_share: Part | None = None
    """What of them an init container needs beyond the containers after it; its kubelet does not list that."""
    cpu_milli: int = 0
    """What it takes of its node's CPU."""
    claimed: ClaimedRequest | None = None
    """What it requests by ResourceClaims; `None`: nothing."""

    @property
    def uid(self) -> str:
        """The pod's identity; a namesake has another."""
        return self.pod.metadata.uid

    @property
    def ended(self) -> bool:
        """Whether somebody has called it ended; its containers may run."""
        return has_ended(self.pod)

    @property
    def is_alive(self) -> bool:
        """Whether it is anywhere, or will be: it has not ended, and nobody has asked for its end."""
        return not has_ended(self.pod) and self.pod.metadata.deletion_timestamp is None

    @property
    def awaits_allocation(self) -> bool:
        """Whether it has claims without devices that only a feature allocates: that keeps it back as a gate of ours does."""
        return self.claimed is not None and not self.claimed.is_allocated and self.node is None

    @property
    def is_gated(self) -> bool:
        """Whether somebody keeps it from being scheduled."""
        is_kept_back = bool(self.pod.spec.scheduling_gates) or self.awaits_allocation
        return self.is_alive and self.node is None and is_kept_back

    @property
    def has_plan_gate(self) -> bool:
        """Whether it waits in the queue, perhaps behind gates of others, too."""
        return self.is_gated and (keys.PLAN_GATE in _gates(self.pod) or self.awaits_allocation)

    @property
    def awaits_plan(self) -> bool:
        """Whether nothing but the queue keeps it from being scheduled."""
        return self.has_plan_gate and _gates(self.pod) <= {keys.PLAN_GATE}

    @property
    def waits_for_plan(self) -> str:
        """Why it waits in the queue, as its condition says it; empty: it has none, or has been planned since."""
        conditions = self.pod.status.conditions or ()
        waits = (each for each in conditions if each.type == keys.PLANNED_CONDITION and each.status == "False")
        return next((each.reason for each in waits), "")

    @property
    def directed_to(self) -> str | None:
        """The node that the queue has sent it to, when it opened the gate, unless it waits for another plan since."""
        is_kept_back = bool(self.pod.spec.scheduling_gates) or self.awaits_allocation
        return None if is_kept_back else (self.pod.metadata.annotations or {}).get(keys.PLANNED)

    @property
    def pinned_to(self) -> str | None:
        """The same node where the pod may go to no other one: the queue opens no pod that has an affinity of its own."""
        affinity = self.pod.spec.affinity
        return self.directed_to if affinity and affinity.node_affinity and affinity.node_affinity.required else None

    @property
    def nominated_by_us(self) -> str | None:
        """The node that an extender has nominated it for while it waits, unless somebody else has nominated it since."""
        node = self.pod.status.nominated_node_name
        return node if node and (self.pod.metadata.annotations or {}).get(keys.NOMINATED) == node else None

    @property
    def asks_for_eviction(self) -> bool:
        """Whether its owner would rather have it ended than see it go on with sick GPUs."""
        return (self.pod.metadata.annotations or {}).get(keys.EVICT_WHEN_SICK) == "true"

    @property
    def node(self) -> str | None:
        """Where it is bound."""
        return self.pod.spec.node_name or None

    @property
    def waits_for_its_own(self) -> bool:
        """Whether it asks for the planned GPUs or none, and no container of it has started yet."""
        return takes_no_others(self.pod) and not _any_started(self.pod)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.pod.metadata.namespace, self.pod.metadata.name

    @property
    def listed_gib(self) -> int:
        """What its shares add up to as its kubelet lists them."""
        return sum(self.shares) - (self.init_share.memory_gib or 0 if self.init_share else 0)

    @property
    def is_placed_by_plan(self) -> bool:
        """Whether its record was written before its Binding."""
        record = read_placement(self.pod)
        return record is not None and bool(record.planned_node)

    def is_placed_on(self, parts: Parts) -> bool:
        """Whether its record names these GPUs, and these shares of them; of a whole GPU any container may have it."""
        if self.placed is None or self.placed.keys() != parts.keys():
            return False
        return not self.shares or self.placed == parts


def read_request(pod: Pod, resource: str = keys.GPU_RESOURCE, words: GroupWords = ALL_WORDS) -> PodRequest:
    """Return what the pod asks for; `words` are those by which it may say which group it is in.

    Raises `RequestError`, also for a pod without room for what is written to it, or whose placement no record can hold.
    It is raised for a stand-in, too, which is never placed.
    """
    if is_stand_in(pod):
        raise RequestError(keys.PLACEHOLDER_FOR, NEVER_PLACED)
    annotations, group = pod.metadata.annotations or {}, words.group_of(pod)
    asked = pod_request(annotations, containers_of(pod, resource), cpu_milli(pod), group)
    if not can_be_named({container.name: container.gpus or 1 for container in asked.containers}):
        count = len(asked.containers)
        raise RequestError(resource, f"{count} containers share the GPUs, no placement can name them all")
    if asked.request.asks and pod.json_bytes:
        raise RequestError("$", f"a pod of more than {MAX_POD_BYTES} bytes has no place for the placement")
    if asked.request.asks and not has_place_for_ours(pod):
        most = MAX_ANNOTATION_BYTES - _OURS_BYTES
        raise RequestError("metadata.annotations", f"more than {most} bytes leave no place for the placement")
    return asked


def read_group(pod: Pod, words: GroupWords) -> GroupRequest | None:
    """Return what a pod says of its group, `None` when it has none or cannot be read."""
    group = words.group_of(pod)
    if group is None:
        return None
    try:
        annotations = (pod.metadata.annotations or {}).items()
        return pod_request({key: text for key, text in annotations if key not in _OF_SHARES}, (), group=group).group
    except RequestError:
        return None


def has_place_for_ours(pod: Pod) -> bool:
    """Whether the pod and its annotations have place for a record and a fence; no Binding of ours is sent for one without.

    That a fence was refused as too large does not prove that a Binding would be. A fence puts a short condition in the
    place of the scheduler's long one, and may leave the pod smaller than before. So it is decided before, by what
    everybody reads alike.
    """
    return not pod.json_bytes and _annotations_have_place(pod)


def may_have_been_bound_by_us(pod: Pod) -> bool:
    """Whether a Binding of ours may have been sent for this version of the pod.

    Servers of two versions may write the same pod down in texts that differ a little, never by a quarter. A pod of that size can
    still be fenced.
    """
    return pod.json_bytes <= _FENCED_POD_BYTES and _annotations_have_place(pod)


def _annotations_have_place(pod: Pod) -> bool:
    others = ((key, text) for key, text in (pod.metadata.annotations or {}).items() if key not in _OURS)
    return sum(len(key.encode()) + len(text.encode()) for key, text in others) <= MAX_ANNOTATION_BYTES - _OURS_BYTES


def read_gpu_pod(
    pod: Pod, resource: str = keys.GPU_RESOURCE, *, stopped: bool = False, claimed: ClaimedRequest | None = None
) -> GpuPod | None:
    """Return the pod's facts, `None` when it asks for no GPU; requests that cannot be read do not matter here."""
    asked = asked_by(pod, resource)
    if claimed is not None and not (asked.names_gpus and pod.spec.node_name):  # a plugin's GPUs count in any case
        return GpuPod(
            pod, claimed.gpus, _placed(pod), stopped, claimed.profile, cpu_milli=asked.cpu_milli, claimed=claimed
        )
    if asked.gpus is None and asked.is_readable:
        by_claim = is_stand_in(pod) and bool(pod.spec.resource_claims)  # whatever its claim holds, the node's view has
        return GpuPod(pod, 0, None, stopped, cpu_milli=asked.cpu_milli) if by_claim else None
    return GpuPod(
        pod, asked.gpus, _placed(pod), stopped, asked.profile, asked.shares, asked.init_share, asked.cpu_milli
    )


def _gates(pod: Pod) -> set[object]:
    return {gate.get("name") for gate in pod.spec.scheduling_gates or ()}


def read_placement(pod: Pod) -> PlacementRecord | None:
    """Return the pod's placement record, if it has one that can be read and that holds for the pod as it is."""
    annotations = pod.metadata.annotations or {}
    text = annotations.get(keys.PLACEMENT)
    if text is None:
        return None
    try:
        record = decode_placement(text)
    except PayloadError:
        return None
    if not record.planned_node:
        return record
    # Claims of a pod that is not bound leave a ledger only after a fence, but for one that is rebuilt: see `holdings_of`.
    is_fenced = annotations.get(keys.FENCE, "") != record.planned_fence
    return None if is_fenced or pod.spec.node_name != record.planned_node else record


def claims_for(pod: Pod, parts: Parts, sharing_class: str = "") -> tuple[Claim, ...]:
    """Return one claim for each GPU or share, by UUID and container, for the pod as it is in this version."""
    metadata, exact, most = pod.metadata, takes_no_others(pod), _compute_percent(pod)
    return tuple(
        Claim(gpu, metadata.uid, metadata.namespace, metadata.name, part.container, metadata.resource_version, exact)
        if part.memory_gib is None
        else Claim(
            gpu, metadata.uid, metadata.namespace, metadata.name, part.container, metadata.resource_version, exact,
            part.memory_gib, sharing_class, most,
        )
        for gpu in sorted(parts)
        for part in parts[gpu]
    )  # fmt: skip


def planned_parts(pod: Pod, record: PlacementRecord) -> Parts:
    """Return what a record gives the pod of GPUs, each to the container that has it last."""
    init = [(each.name, each.restart_policy != "Always") for each in pod.spec.init_containers or ()]
    return of_record(record, (*init, *((each.name, False) for each in pod.spec.containers)))


def gib_by_container(pod: Pod) -> dict[str, int]:
    """Return container → GiB of the share that it asks for; raises `RequestError`."""
    every = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    asked = {each.name: gib_of(each.name, each.resources.limits, each.resources.requests) for each in every}
    return {name: gib for name, gib in asked.items() if gib}


def sharing_class_of(pod: Pod) -> str:
    """Return the class of the pod's shares, as it says it now; one that cannot be read is none: no ledger could hold it."""
    said = (pod.metadata.annotations or {}).get(keys.SHARING_CLASS)
    try:
        return "" if said is None else name(keys.SHARING_CLASS, said)
    except RequestError:
        return ""


def _compute_percent(pod: Pod) -> int | None:
    """Return the ceiling that the pod says; one that cannot be read holds nobody back."""
    said = (pod.metadata.annotations or {}).get(keys.COMPUTE_PERCENT)
    try:
        return None if said is None else percent(keys.COMPUTE_PERCENT, said)
    except RequestError:
        return None


def takes_no_others(pod: Pod) -> bool:
    """Whether the pod would rather fail than run with other GPUs than the planned ones."""
    return (pod.metadata.annotations or {}).get(keys.DEVICE_MISMATCH) == "refuse"


def kind_of(pod: GpuPod) -> PodKind | None:
    """Return what the pod takes of a node, as demand counts it; `None`: GPUs are none of it, or nobody can read what it asks."""
    if pod.profile or not (pod.gpus or pod.shares):
        return None
    models = (pod.pod.metadata.annotations or {}).get(keys.GPU_MODEL, "")
    named = tuple(sorted({each.strip().lower() for each in models[:MAX_MODELS_CHARACTERS].split(",") if each.strip()}))
    return PodKind(pod.gpus or 1, cpu_milli=pod.cpu_milli, models=named, memory_gib=sum(pod.shares))


def expected_seconds_of(pod: Pod) -> float | None:
    """Return how long a pod says that it will run; `None` where it does not say so, or cannot be read."""
    said = (pod.metadata.annotations or {}).get(keys.EXPECTED_DURATION)
    try:
        return None if said is None else duration(keys.EXPECTED_DURATION, said)
    except RequestError:
        return None


def priority_of(pod: Pod) -> int:
    """Return how important a pod is."""
    return pod.spec.priority or 0


def may_preempt(pod: Pod) -> bool:
    """Whether pods of lower priority may end for it."""
    return pod.spec.preemption_policy != NEVER


def has_ended(pod: Pod) -> bool:
    """Whether the phase is final. Others than the kubelet write it too, when a node is lost."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_said_to_be_gated(pod: Pod) -> bool:
    """Whether its condition says so; kube-scheduler has not tried the pod then, also where the gates have gone since."""
    return any((each.type, each.reason) == (GATED.type, GATED.reason) for each in pod.status.conditions or ())


def why_evicted(pod: Pod) -> str:
    """Return by what the pod has to go, as the API tells it; empty where it may stay."""
    found = (each for each in pod.status.conditions or () if each.type == EVICTED and each.status == "True")
    return next((each.reason or "no reason given" for each in found), "")


def has_stopped(pod: Pod) -> bool:
    """Whether this version of the pod proves that none of its containers runs or will run again.

    Proof is a final phase with containers that all report `terminated`. The kubelet waits for them, also before it
    removes a deleted pod (since Kubernetes 1.27). A final phase alone is none. Other programs that end the pods of a lost
    node leave their last statuses as they were. Containers that have just started have no status at all. A kubelet that
    rejects a pod looks the same, and may do so after a restart while earlier containers still run. Then the node's agent
    decides. Without a final phase there is no proof either. A container that crashed is terminated, too, and may run
    again while the status that says so is still under way. That the pod was deleted meanwhile does not make the old
    status true.
    """
    return has_ended(pod) and _all_terminated(pod)


def has_ended_unstarted(pod: Pod) -> bool:
    """Whether the node would not have the pod: it failed before any of its containers started, and nobody asked for its end."""
    return pod.status.phase == "Failed" and pod.metadata.deletion_timestamp is None and not _any_started(pod)


def owner_of(pod: Pod) -> str:
    """Return what made the pod and makes another one in its place, as namespace and UID; empty when nothing does.

    A reference is believed within its namespace only: whoever may write there may also delete the owner's pods.
    """
    owner = pod.metadata.controller
    return f"{pod.metadata.namespace}/{owner.uid}" if owner else ""


def successors_of(pod: Pod) -> str:
    """Return what is equal of a pod and of the next pod in its place: the group that restarts as a whole, or the owner.

    Empty where no other pod comes in its place.
    """
    return restart_group_of(pod) or owner_of(pod)


def _any_started(pod: Pod) -> bool:
    return any(status.state.running is not None or status.state.terminated is not None for status in _statuses(pod))


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))


def _all_terminated(pod: Pod) -> bool:
    statuses = pod.status.container_statuses or []
    terminated = {status.name for status in statuses if status.state.terminated is not None}
    before = pod.status.init_container_statuses or []
    return terminated.issuperset(container.name for container in pod.spec.containers) and all(
        status.state.terminated is not None for status in before
    )


def _placed(pod: Pod) -> Parts | None:
    record = read_placement(pod)
    return None if record is None else planned_parts(pod, record)
