"""What a pod asks for, read from a plain pod mapping; nothing is guessed and nothing unreadable is ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any

from topology.annotations import keys
from topology.errors import RequestError
from topology.node.links import Affinity
from topology.request.counts import asked_of, one_profile
from topology.request.domains import OURS, GroupName, GroupRequest, Level

MAX_GPUS_PER_POD = 64
MAX_KEY_CHARACTERS = 63
"""After the slash, as Kubernetes has it; what is longer is compared up to there."""


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
    """How many GPUs, or slices of a MIG profile, one container asks for, and when it runs."""

    name: str
    gpus: int
    init: bool = False
    """Runs to its end before the app containers start, so its GPUs can serve them again."""
    profile: str = ""
    """As in `GpuRequest`."""
    cpus: int = 0
    """Whole CPUs that a kubelet with static CPUs would give to it alone."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """What one pod asks for, without its identity: equal requests are equal values and share memoised plans."""

    gpus: int
    """GPUs of the whole pod, 0 or more."""
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
    gpu_milli: int | None = None
    """Thousandths of its one GPU; `None`: its GPUs are its own."""
    cpu_milli: int = 0
    profile: str = ""
    """The MIG profile that its GPUs are slices of, as the resource's name has it; empty: it asks for GPUs."""
    by_container: tuple[ContainerGpus, ...] = ()
    """What a kubelet aligns by NUMA nodes, without names; empty: one container with all GPUs and no CPU of its own."""

    @classmethod
    @lru_cache(maxsize=128)
    def plain(cls, gpus: int) -> GpuRequest:
        """Return what a pod of so many GPUs asks for that says nothing else."""
        if gpus > 1:
            return cls(gpus, preferred=Affinity.NVLINK)
        return cls(gpus, communication=Communication.NONE)

    @property
    @lru_cache(maxsize=1024)  # noqa: B019 - a value; a look-up takes a third of the time
    def of_links(self) -> GpuRequest:
        """The same without what links know nothing of."""
        return replace(self, cpu_milli=0, by_container=()) if self.cpu_milli or self.by_container else self

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


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What a pod asks for, and how its GPUs are shared out among its containers."""

    request: GpuRequest
    containers: tuple[ContainerGpus, ...] = ()
    """Only those that ask for GPUs, in the order in which they start."""
    relax_after_seconds: float | None = None
    group: GroupRequest | None = None

    def at_age(self, age_seconds: float) -> GpuRequest:
        """Return the request as it stands `age_seconds` after the pod was created."""
        return self.request.relaxed() if self._relaxes(age_seconds) else self.request

    def group_at_age(self, age_seconds: float) -> GroupRequest | None:
        """Return what is asked of the group's place by then, `None` for a pod on its own."""
        return self.group.relaxed() if self.group and self._relaxes(age_seconds) else self.group

    def _relaxes(self, age_seconds: float) -> bool:
        return self.relax_after_seconds is not None and age_seconds >= self.relax_after_seconds

    def share_out(self, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Give each container its GPUs, as neighbours on the ring; init containers use the same ones before.

        `gpus` is the pod's whole set in ring order.
        """
        shares: dict[str, tuple[str, ...]] = {}
        start = 0
        for container in self.containers:
            shares[container.name] = tuple(gpus[start : start + container.gpus])
            if not container.init:
                start += container.gpus
        return shares


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
            gpus, profile = asked_of(container["name"], resources.get("limits"), resources.get("requests"), resource)
            sidecar = init and container.get("restartPolicy") == "Always"
            containers.append(ContainerGpus(container["name"], gpus, init and not sidecar, profile))
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
    asking = tuple(container for container in containers if container.gpus)
    gpus = widest((container.gpus, container.init) for container in asking)
    profile = one_profile([container.profile for container in asking])
    if gpus > MAX_GPUS_PER_POD:
        raise RequestError(keys.GPU_RESOURCE, f"{gpus} GPUs for one pod, no node has more than {MAX_GPUS_PER_POD}")
    unknown = sorted(key for key in annotations if key.startswith(keys.USER_PREFIX) and key not in _READERS)
    if unknown:
        raise RequestError(unknown[0], f"unknown annotation{_like(unknown[0])}")
    read = {key: reader(key, annotations[key]) for key, reader in _READERS.items() if key in annotations}
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
        by_container=_by_container(containers),
    )
    return PodRequest(request, asking, read.get(keys.RELAX_AFTER), _group(read, group))


@lru_cache(maxsize=128)
def _like(key: str) -> str:
    """Return a question whether a key was meant that is like this one, and exists."""
    written = key.removeprefix(keys.USER_PREFIX)[:MAX_KEY_CHARACTERS]
    like = get_close_matches(written, [known.removeprefix(keys.USER_PREFIX) for known in _READERS], n=1)
    return f", did you mean {keys.USER_PREFIX}{like[0]}?" if like else ""


def _group(read: Mapping[str, Any], known: GroupName | None) -> GroupRequest | None:
    """Return what is asked of the group: size and affinity as our annotations have it, whoever names the group."""
    if keys.GROUP in read and known is None:
        known = GroupName(OURS, read[keys.GROUP])
    if known is None:
        lonely = next((key for key in (keys.GROUP_SIZE, keys.GROUP_AFFINITY, keys.GROUP_SCOPE) if key in read), None)
        if lonely is not None:
            raise RequestError(lonely, f"says nothing without {keys.GROUP}")
        return None
    level, required = read.get(keys.GROUP_AFFINITY, (Level.NVLINK_DOMAIN, False))
    size = read.get(keys.GROUP_SIZE, known.size)
    return GroupRequest(known.name, size, level, required, known.source, known.run)


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


_Reader = Callable[[str, str], Any]

_COUNT = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_SCALE = {"": 1} | {
    prefix + suffix: base**power
    for suffix, base, prefixes in (("", 1000, "kMGT"), ("i", 1024, "KMGT"))
    for power, prefix in enumerate(prefixes, start=1)
}
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(key: str, value: str) -> str:
        if value not in words:
            raise RequestError(key, f"{_quoted(value)} is none of {', '.join(words)}")
        return value

    return read


def _affinity(key: str, value: str) -> Affinity:
    return Affinity(_one_of(Affinity.NVLINK, Affinity.PCIE_SWITCH, Affinity.NUMA_NODE)(key, value))


def _positive_decimal(key: str, value: str) -> float:
    if not _DECIMAL.fullmatch(value) or not float(value):
        raise RequestError(key, f"{_quoted(value)} is no positive decimal number")
    return float(value)


def _positive_count(key: str, value: str) -> int:
    if not _COUNT.fullmatch(value) or not int(value):
        raise RequestError(key, f"{_quoted(value)} is no positive whole number")
    return int(value)


def _duration(key: str, value: str) -> float:
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        raise RequestError(key, f"{_quoted(value)} is no duration such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def _version(key: str, value: str) -> tuple[int, ...]:
    if not _VERSION.fullmatch(value):
        raise RequestError(key, f"{_quoted(value)} is no version such as 12.4")
    return tuple(int(part) for part in value.split("."))


def _capability(key: str, value: str) -> tuple[int, int]:
    version = _version(key, value)
    if len(version) > 2:
        raise RequestError(key, f"{_quoted(value)} is no compute capability such as 8.0")
    return (version[0], version[1] if len(version) == 2 else 0)


def _quantity(key: str, value: str) -> int:
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise RequestError(key, f"{_quoted(value)} is no quantity such as 40Gi")
    return int(Fraction(match[1]) * _SCALE[match[2] or ""])


def _globs(key: str, value: str) -> tuple[str, ...]:
    globs = tuple(part.strip().lower() for part in value.split(","))
    if not all(globs) or len(value) > 256:
        raise RequestError(key, f"{_quoted(value)} is no list of model names such as *a100*,*h100*")
    return globs


def _group_affinity(key: str, value: str) -> tuple[Level, bool]:
    """Read `rack` or `preferred-rack` as a preference, `required-rack` as a condition."""
    demand, preference = (f"{word}-" for word in ("required", "preferred"))
    required = value.startswith(demand)
    return Level(_one_of(*Level)(key, value.removeprefix(demand if required else preference))), required


def _switch(key: str, value: str) -> bool:
    return _one_of("on", "off")(key, value) == "on"


def _name(key: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise RequestError(key, f"{_quoted(value)} is no name of at most 63 letters, digits, '-', '_' and '.'")
    return value


def _quoted(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")


_READERS: dict[str, _Reader] = {
    keys.REQUIRED_AFFINITY: _affinity,
    keys.PREFERRED_AFFINITY: _affinity,
    keys.MIN_BANDWIDTH: _positive_decimal,
    keys.RELAX_AFTER: _duration,
    keys.COMMUNICATION: lambda key, value: Communication(_one_of(*Communication)(key, value)),
    keys.GPU_MODEL: _globs,
    keys.MIN_GPU_MEMORY: _quantity,
    keys.MIN_COMPUTE_CAPABILITY: _capability,
    keys.MIN_DRIVER: _version,
    keys.MIN_CUDA: _version,
    keys.ECC: _switch,
    keys.NIC_AFFINITY: lambda key, value: NicAffinity(_one_of(*NicAffinity)(key, value)),
    keys.GROUP: _name,
    keys.GROUP_SIZE: _positive_count,
    keys.GROUP_AFFINITY: _group_affinity,
    keys.GROUP_SCOPE: _one_of("run", "namespace"),
    keys.SHARING_CLASS: _name,
    keys.DEVICE_MISMATCH: _one_of("adopt", "refuse"),
    keys.EVICT_WHEN_SICK: _one_of("true", "false"),
}
"""Every annotation that a user may write; the last three, which no placement depends on, are only checked here."""
