"""What a pod asks for, read from a plain pod mapping; nothing is guessed and nothing unreadable is ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from topology.annotations import keys
from topology.errors import RequestError
from topology.node.links import Affinity
from topology.node.model import MAX_GPUS
from topology.request import words
from topology.request.counts import asked_of, one_profile
from topology.request.domains import OURS, GroupName, GroupRequest, Level
from topology.request.shares import SameGpu, check, gib_of, same_gpu, side_by_side

MAX_GPUS_PER_POD = MAX_GPUS
MAX_KEY_CHARACTERS = 63
"""After the slash, as Kubernetes has it; what is longer is compared up to there."""


Size = tuple[int, int, int]
"""GPUs, MIG slices and GiB of GPU memory, in this order: any GPU is more than all slices, and any slice more than all GiB."""


def size_of(gpus: int, profile: str, memory_gib: Iterable[int]) -> Size:
    """Return what is requested as one value of a strict order.

    >>> size_of(1, "", ()) > size_of(2, "1g.10gb", ()) > size_of(0, "", (40, 40)) > size_of(0, "", (70,))
    True
    """
    return 0 if profile else gpus, gpus if profile else 0, sum(memory_gib)


class Communication(StrEnum):
    """How much of a training step is collective traffic."""

    HEAVY = "heavy"
    LIGHT = "light"
    NONE = "none"


class NicAffinity(StrEnum):
    """How much a NIC near the GPUs matters."""

    REQUIRED = "required"
    PREFERRED = "preferred"


@dataclass(frozen=True, slots=True)
class ContainerGpus:
    """How many GPUs, slices of a MIG profile, or GiB of a GPU one container asks for, and when it runs."""

    name: str
    gpus: int
    init: bool = False
    """Runs to its end before the app containers start, so its GPUs can serve them again."""
    profile: str = ""
    """As in `GpuRequest`."""
    cpus: int = 0
    """Whole CPUs that a kubelet with static CPUs would give to it alone."""
    memory_gib: int = 0
    """Its share of one GPU."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What one pod asks for, without its identity: equal requests are equal values and share memoised plans."""

    gpus: int
    """GPUs of the whole pod, 0 or more; of one that asks for shares 0."""
    required: Affinity | None = None
    preferred: Affinity | None = None
    min_bandwidth_gb_per_s: float | None = None
    communication: Communication = Communication.HEAVY
    models: tuple[str, ...] = ()
    """Globs, lower case; any may match."""
    min_memory_bytes: int | None = None
    min_compute_capability: tuple[int, int] | None = None
    min_driver: tuple[int, ...] | None = None
    min_cuda: tuple[int, ...] | None = None
    ecc: bool | None = None
    nic: NicAffinity | None = None
    """Whether every GPU must, or should, have an RDMA NIC under the same PCIe switch."""
    cpu_milli: int = 0
    profile: str = ""
    """The MIG profile that its GPUs are slices of, as the resource's name has it; empty: it asks for GPUs."""
    by_container: tuple[ContainerGpus, ...] = ()
    """What a kubelet aligns by NUMA nodes, without names; empty: one container with all GPUs and no CPU of its own."""
    memory_gib: tuple[int, ...] = ()
    """GiB of each share, container by container as they run side by side; empty: it asks for no share."""
    sharing_class: str = ""
    """Of its shares: those of other classes are on other GPUs."""
    same_gpu: SameGpu = SameGpu.PREFERRED
    """Whether several shares are on one GPU."""
    by_claim: bool = False
    """Its GPUs are devices that ResourceClaims request (DRA); only nodes whose GPUs are such devices have them."""
    alternative: int = 0
    """Which of the requests it is that the ResourceClaims accept, in their order; 0: the first or only one."""

    @classmethod
    @lru_cache(maxsize=128)
    def plain(cls, gpus: int) -> GpuRequest:
        """Return what a pod of so many GPUs asks for that says nothing else."""
        if gpus > 1:
            return cls(gpus, preferred=Affinity.NVLINK)
        return cls(gpus, communication=Communication.NONE)

    @property
    def is_share(self) -> bool:
        """Whether it asks for parts of GPUs, and not for whole ones."""
        return bool(self.memory_gib)

    @property
    def size(self) -> Size:
        """How much it asks for, of whatever kind."""
        return size_of(self.gpus, self.profile, self.memory_gib)

    @property
    def asks(self) -> bool:
        """Whether it asks for anything of a GPU."""
        return bool(self.gpus or self.memory_gib)

    @property
    @lru_cache(maxsize=1024)  # noqa: B019 - a value; a look-up takes a third of the time
    def of_links(self) -> GpuRequest:
        """The same without what links know nothing of."""
        has_more = self.cpu_milli or self.by_container or self.alternative
        return replace(self, cpu_milli=0, by_container=(), alternative=0) if has_more else self

    @property
    def aligned(self) -> tuple[ContainerGpus, ...]:
        """What a kubelet aligns by NUMA nodes, in the order in which it does so."""
        return self.by_container or (ContainerGpus("", self.gpus),)

    def is_content_with(self, affinity: Affinity | None) -> bool:
        """Whether a set with this affinity is as near as the pod prefers; where it prefers nothing none is."""
        return self.preferred is not None and affinity is not None and affinity.meets(self.preferred)

    def relaxed(self) -> GpuRequest:
        """Return the same with its required affinity as a preference and no bandwidth floor."""
        return replace(self, required=None, preferred=self.required or self.preferred, min_bandwidth_gb_per_s=None)


class AcceptedDevices(NamedTuple):
    """What ResourceClaims accept as a GPU."""

    selectors: tuple[str, ...] = ()
    """CEL expressions; each device has to match all."""
    match_attributes: tuple[str, ...] = ()
    """Of which all devices of the pod have the same value."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a pod asks for, and how its GPUs are shared out among its containers."""

    request: GpuRequest
    containers: tuple[ContainerGpus, ...] = ()
    """Only those that ask for GPUs or shares, in the order in which they start."""
    relax_after_seconds: float | None = None
    group: GroupRequest | None = None
    compute_percent: int | None = None
    """A ceiling on what its shares compute."""
    expected_seconds: float | None = None
    """How long it will run; `None`: it does not say."""
    fallbacks: tuple[PodRequest, ...] = ()
    """What it accepts instead, in order: each only where there is no room for those before."""
    accepted_devices: tuple[AcceptedDevices, ...] = ()
    """Of `request` and each of `fallbacks`; pods with equal values accept the same devices by their ResourceClaims."""

    def at_age(self, age_seconds: float) -> GpuRequest:
        """Return the request as it stands when the pod could have been scheduled for `age_seconds`."""
        return self.request.relaxed() if self._relaxes(age_seconds) else self.request

    def fallbacks_at_age(self, age_seconds: float) -> tuple[GpuRequest, ...]:
        """Return the same of what it accepts instead."""
        return tuple(fallback.at_age(age_seconds) for fallback in self.fallbacks)

    def instead(self, alternative: int) -> PodRequest:
        """Return one of the requests, by its number; the first one for 0."""
        return self.fallbacks[alternative - 1] if alternative else self

    def group_at_age(self, age_seconds: float) -> GroupRequest | None:
        """Return what is asked of the group's place by then, `None` for a pod on its own."""
        return self.group.relaxed() if self.group and self._relaxes(age_seconds) else self.group

    def _relaxes(self, age_seconds: float) -> bool:
        return self.relax_after_seconds is not None and age_seconds >= self.relax_after_seconds

    def share_out(self, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Give each container its GPUs, as neighbours on the ring; init containers use the same ones before.

        `gpus` is the pod's whole set in ring order, or the GPU of each share: init containers have theirs on the first.
        """
        if self.request.is_share:
            of_share = {name: (gpu,) for (name, _), gpu in zip(self.shares, gpus, strict=True)}
            return {each.name: of_share.get(each.name, (gpus[0],)) for each in self.containers}
        shares: dict[str, tuple[str, ...]] = {}
        start = 0
        for container in self.containers:
            shares[container.name] = tuple(gpus[start : start + container.gpus])
            if not container.init:
                start += container.gpus
        return shares

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """Container and GiB of each share, in the order of `GpuRequest.memory_gib`."""
        return shares_of(self.containers)


def shares_of(containers: Iterable[ContainerGpus]) -> tuple[tuple[str, int], ...]:
    """Return container and GiB of each share that these containers, in the order in which they start, have side by side."""
    return side_by_side((each.name, each.memory_gib, each.init) for each in containers)


def parse_pod(pod: Mapping[str, Any], resource: str = keys.GPU_RESOURCE) -> PodRequest:
    """Read a pod as the Kubernetes API writes it (`metadata`, `spec`, lowerCamel keys).

    Raises `RequestError` that names the annotation or the container.

    >>> spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
    >>> parse_pod({"metadata": {"annotations": {"gputopo.dev/required-affinity": "nvlink"}}, "spec": spec}).request.gpus
    4
    """
    spec = pod.get("spec") or {}
    containers: list[ContainerGpus] = []
    for init, listed in ((True, spec.get("initContainers") or ()), (False, spec.get("containers") or ())):
        for container in listed:
            resources = container.get("resources") or {}
            name, limits, requests = container["name"], resources.get("limits"), resources.get("requests")
            gpus, profile = asked_of(name, limits, requests, resource)
            sidecar = init and container.get("restartPolicy") == "Always"
            gib = gib_of(name, limits, requests)
            containers.append(ContainerGpus(name, gpus, init and not sidecar, profile, memory_gib=gib))
    return pod_request((pod.get("metadata") or {}).get("annotations") or {}, containers)


def pod_request(
    annotations: Mapping[str, str],
    containers: Sequence[ContainerGpus],
    cpu_milli: int = 0,
    group: GroupName | None = None,
) -> PodRequest:
    """Put annotations, container counts and the pod's CPU together; `containers` in the order in which they start.

    `group` is the one that the pod is in by other words than its annotations, or by more of them.

    Raises `RequestError` for an unknown key under our prefix, a word or number that cannot be read, or requests that
    contradict each other.
    """
    asking = tuple(container for container in containers if container.gpus or container.memory_gib)
    gpus = widest((container.gpus, container.init) for container in asking)
    profile = one_profile([container.profile for container in asking if container.gpus])
    if gpus > MAX_GPUS_PER_POD:
        raise RequestError(keys.GPU_RESOURCE, f"{gpus} GPUs for one pod, no node has more than {MAX_GPUS_PER_POD}")
    unknown = sorted(key for key in annotations if key.startswith(keys.USER_PREFIX) and key not in _READERS)
    if unknown:
        raise RequestError(unknown[0], f"unknown annotation{_like(unknown[0])}")
    read = {key: reader(key, annotations[key]) for key, reader in _READERS.items() if key in annotations}
    shares = [(each.name, each.memory_gib, each.init) for each in asking]
    check(shares, gpus, read)
    memory_gib = tuple(gib for _, gib in side_by_side(shares))
    usual = GpuRequest.plain(gpus)
    request = GpuRequest(
        gpus=gpus,
        required=read.get(keys.REQUIRED_AFFINITY),
        preferred=read.get(keys.PREFERRED_AFFINITY, usual.preferred),
        min_bandwidth_gb_per_s=read.get(keys.MIN_BANDWIDTH),
        communication=read.get(keys.COMMUNICATION, usual.communication),
        models=read.get(keys.GPU_MODEL, ()),
        min_memory_bytes=read.get(keys.MIN_GPU_MEMORY),
        min_compute_capability=read.get(keys.MIN_COMPUTE_CAPABILITY),
        min_driver=read.get(keys.MIN_DRIVER),
        min_cuda=read.get(keys.MIN_CUDA),
        ecc=read.get(keys.ECC),
        nic=read.get(keys.NIC_AFFINITY),
        cpu_milli=cpu_milli,
        profile=profile,
        by_container=() if memory_gib else _by_container(containers),
        memory_gib=memory_gib,
        sharing_class=read.get(keys.SHARING_CLASS, "") if memory_gib else "",
        same_gpu=same_gpu(read.get(keys.SAME_GPU, SameGpu.PREFERRED), shares),
    )
    percent = read.get(keys.COMPUTE_PERCENT)
    return PodRequest(
        request, asking, read.get(keys.RELAX_AFTER), _group(read, group), percent, read.get(keys.EXPECTED_DURATION)
    )


@lru_cache(maxsize=128)
def _like(key: str) -> str:
    """Return a question whether a key was meant that is like this one, and exists; or where it belongs."""
    if key == keys.SHARE_RESOURCE:
        return ": a container asks for it among its resources"
    written = key.removeprefix(keys.USER_PREFIX)[:MAX_KEY_CHARACTERS]
    like = get_close_matches(written, [known.removeprefix(keys.USER_PREFIX) for known in _READERS], n=1)
    return f", did you mean {keys.USER_PREFIX}{like[0]}?" if like else ""


def _group(read: Mapping[str, Any], known: GroupName | None) -> GroupRequest | None:
    """Return what is asked of the group: size and affinity as our annotations have it, whoever names the group."""
    if keys.GROUP in read and known is None:
        known = GroupName(OURS, read[keys.GROUP])
    if known is None:
        lonely = next((key for key in _OF_GROUPS if key in read), None)
        if lonely is not None:
            raise RequestError(lonely, f"says nothing without {keys.GROUP}")
        return None
    if keys.GROUP_MIN in read and keys.GANG not in read:
        raise RequestError(keys.GROUP_MIN, f"says nothing without {keys.GANG}")
    level, required = read.get(keys.GROUP_AFFINITY, (Level.NVLINK_DOMAIN, False))
    size = read.get(keys.GROUP_SIZE, known.size)
    least = read.get(keys.GROUP_MIN)
    if least is not None and size is not None and least > size:
        raise RequestError(keys.GROUP_MIN, f"{least} is more than the group's {size} pods")
    return GroupRequest(known.name, size, level, required, known.source, known.run, keys.GANG in read, least)


def widest(asked: Iterable[tuple[int, bool]]) -> int:
    """Return what a pod needs at its widest moment, of containers that ask for so much and run as init containers or not.

    That is all long-running containers together, or an init container beside the sidecars that started before it.

    >>> widest([(1, False), (4, True), (2, False)])
    5
    """
    running = most = 0
    for count, init in asked:
        if init:
            most = max(most, running + count)
        else:
            running += count
    return max(most, running)


def _by_container(containers: Sequence[ContainerGpus]) -> tuple[ContainerGpus, ...]:
    """Return what a kubelet would align, where that is more than the GPUs of one container."""
    aligned = tuple(replace(each, name="") for each in containers if each.gpus or each.cpus)
    return aligned if len(aligned) > 1 or any(each.cpus for each in aligned) else ()


_OF_GROUPS = (keys.GROUP_SIZE, keys.GROUP_AFFINITY, keys.GROUP_SCOPE, keys.GANG, keys.GROUP_MIN)
_READERS: dict[str, Callable[[str, str], Any]] = {
    keys.REQUIRED_AFFINITY: words.affinity,
    keys.PREFERRED_AFFINITY: words.affinity,
    keys.MIN_BANDWIDTH: words.positive_decimal,
    keys.RELAX_AFTER: words.duration,
    keys.COMMUNICATION: lambda key, value: Communication(words.one_of(*Communication)(key, value)),
    keys.GPU_MODEL: words.globs,
    keys.MIN_GPU_MEMORY: words.quantity,
    keys.MIN_COMPUTE_CAPABILITY: words.capability,
    keys.MIN_DRIVER: words.version,
    keys.MIN_CUDA: words.version,
    keys.ECC: words.switch,
    keys.NIC_AFFINITY: lambda key, value: NicAffinity(words.one_of(*NicAffinity)(key, value)),
    keys.GROUP: words.name,
    keys.GROUP_SIZE: words.positive_count,
    keys.GROUP_AFFINITY: words.group_affinity,
    keys.GROUP_SCOPE: words.one_of("run", "namespace"),
    keys.GANG: words.one_of("required"),
    keys.GROUP_MIN: words.positive_count,
    keys.EXPECTED_DURATION: words.duration,
    keys.SHARING_CLASS: words.name,
    keys.SAME_GPU: lambda key, value: SameGpu(words.one_of(*SameGpu)(key, value)),
    keys.COMPUTE_PERCENT: words.percent,
    keys.DEVICE_MISMATCH: words.one_of("adopt", "refuse"),
    keys.EVICT_WHEN_SICK: words.one_of("true", "false"),
    keys.MOVABLE: words.one_of("true", "false"),
    keys.RESTART_COST: words.duration,
    keys.CHECKPOINT_INTERVAL: words.duration,
}
"""Every annotation that a user may write; the last five, which no placement depends on, are only checked here."""
