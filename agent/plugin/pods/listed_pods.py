"""The two sides that have to agree: what the kubelet lists, and what the node's ledger promises.

PodResources knows no UID, so the two are joined by namespace and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agent.plugin.devices.offers import gpu_of
from topology.annotations.records import Claim, Ledger
from topology.node.silicon import Silicon

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """A container as PodResources lists it; ordinary init containers never are."""

    name: str
    gpus: frozenset[str] = frozenset()
    """Device IDs of our resources: UUIDs, and of shares `UUID::number`, one for each GiB."""
    elsewhere: tuple[str, ...] = ()
    """Device IDs of other resources, of whatever kind."""
    cpus: frozenset[int] = frozenset()
    """That are its own."""
    claimed: frozenset[tuple[str, str, str]] = frozenset()
    """ResourceClaim of the pod's namespace, pool and name of each device of NVIDIA's DRA driver."""


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A pod as PodResources lists it; one under admission is listed before it has any device."""

    namespace: str
    name: str
    containers: tuple[ListedContainer, ...] = ()
    """In the order in which they are admitted."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def gpus(self) -> frozenset[str]:
        """What its containers hold."""
        return frozenset(gpu for container in self.containers for gpu in container.gpus)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What the ledger promises to one pod."""

    namespace: str
    name: str
    uid: str
    containers: Mapping[str, frozenset[str]]
    """A GPU that serves an init container first stands with the container that keeps it."""
    exact: bool = False
    """These GPUs or none."""
    former: frozenset[str] = frozenset()
    """Still claimed for elder pods of that name, which are gone; their containers may not be."""
    memory_gib: Mapping[str, int] = field(default_factory=dict)
    """Container → GiB that it gets of its one GPU; empty: the GPUs are the pod's own."""
    former_gib: Mapping[str, int] = field(default_factory=dict)
    """GPU → what of `former` are shares of it."""
    sharing_class: str = ""
    """Of its shares."""
    compute_percent: int | None = None
    """A ceiling on what its shares compute."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """MIG slice → its GPU, of those that are promised or were to elder pods, as the ledger says it."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def gpus(self) -> frozenset[str]:
        """All of them."""
        return frozenset().union(*self.containers.values())

    @property
    def is_share(self) -> bool:
        """Whether it is about shares of GPUs."""
        return bool(self.memory_gib)

    @property
    def size(self) -> int:
        """How many devices the whole pod gets."""
        return sum(self.memory_gib.values()) or len(self.gpus)

    def size_of(self, container: str) -> int:
        """Return how many devices a container gets."""
        return self.memory_gib.get(container) or len(self.containers[container])

    def gib_on(self, gpu: str) -> int:
        """Return how much of a GPU its shares are."""
        return sum(gib for name, gib in self.memory_gib.items() if gpu in self.containers[name])

    def covers(self, devices: frozenset[str]) -> bool:
        """Whether the plan has these devices together."""
        if not self.is_share:
            return devices <= self.gpus
        return all(count <= self.gib_on(gpu) for gpu, count in gib_by_gpu(devices).items())


def plans_of(ledger: Ledger | None) -> dict[Key, PodPlan]:
    """Return the plan of each pod of the ledger; of namesakes, that of the youngest one, for the others are gone."""
    by_uid: dict[str, list[Claim]] = {}
    for claim in ledger.claims if ledger else ():
        by_uid.setdefault(claim.uid, []).append(claim)
    oldest_first = sorted(by_uid.values(), key=lambda claims: max(map(_version, claims)))
    plans: dict[Key, PodPlan] = {}
    for plan in map(_plan, oldest_first):
        elder = plans.get(plan.key)
        plans[plan.key] = _after(elder, plan) if elder else plan
    return plans


def _after(elder: PodPlan, plan: PodPlan) -> PodPlan:
    shares = Counter(elder.former_gib) + Counter({gpu: elder.gib_on(gpu) for gpu in elder.gpus})
    parents = {**elder.parents, **plan.parents}
    return replace(plan, former=elder.former | elder.gpus, former_gib=dict(shares), parents=parents)


def gib_by_gpu(devices: Iterable[str]) -> Mapping[str, int]:
    """Return GPU → how much of it these shares are; a whole GPU counts as one."""
    return Counter(map(gpu_of, devices))


def listed_gpus(pods: Iterable[ListedPod] | None) -> frozenset[str]:
    """Return the GPUs that containers hold, as far as anybody could be asked."""
    return frozenset(gpu for pod in pods or () for gpu in pod.gpus)


def promised_to_others(plans: Iterable[PodPlan], key: Key | None) -> frozenset[str]:
    """Return the GPUs that the ledger promises to any pod but this one, be it gone or not."""
    return frozenset(gpu for plan in plans for gpu in (plan.former if plan.key == key else plan.gpus | plan.former))


def told_by(silicon: Silicon, plans: Iterable[PodPlan]) -> Silicon:
    """Return which devices are the same silicon, with what these plans tell of slices that are gone."""
    return silicon.remembering({device: gpu for plan in plans for device, gpu in plan.parents.items()})


def _plan(claims: list[Claim]) -> PodPlan:
    first = claims[0]
    names = sorted({claim.container for claim in claims})
    containers = {name: frozenset(claim.gpu for claim in claims if claim.container == name) for name in names}
    shares = {claim.container: claim.memory_gib for claim in claims if claim.memory_gib is not None}
    return PodPlan(
        first.namespace,
        first.name,
        first.uid,
        containers,
        any(claim.exact for claim in claims),
        memory_gib=shares,
        sharing_class=first.sharing_class,
        compute_percent=first.compute_percent,
        parents={claim.gpu: claim.parent for claim in claims if claim.parent},
    )


def _version(claim: Claim) -> tuple[int, str]:
    """Order resourceVersions, which are decimal numbers without leading zeros."""
    return len(claim.resource_version), claim.resource_version
