"""What a pod's containers ask for, read once for all pods that ask alike: most pods are made from a few templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from extender.cluster.objects.kinds import Container, Pod, PodSpec, ResourceRequirements
from extender.cluster.objects.parts import Part
from extender.cluster.objects.quantities import cpu_milli, whole_cpus
from topology.annotations import keys
from topology.errors import RequestError
from topology.request.counts import asked_of
from topology.request.gpu_request import ContainerGpus, pod_request
from topology.request.shares import gib_of

MAX_QUANTITIES: Final = 64
"""Of one pod: whoever may create pods decides how many there are, and what has more is not remembered."""

_Amounts = tuple[tuple[str, str | int], ...] | None
_Asking = tuple[str, str | None, _Amounts, _Amounts]
"""Name of a container, its restart policy, its limits and its requests."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What a pod takes of a node."""

    cpu_milli: int
    names_gpus: bool
    """Whether any of its containers names GPUs, shares of them or MIG slices, be it in vain."""
    is_readable: bool
    """Whether anybody can read how many GPUs it asks for."""
    spec: PodSpec
    """What this was read from, the same object for all who ask alike."""
    gpus: int | None = None
    """`None`: it asks for none, or in a way that nobody can read."""
    profile: str = ""
    shares: tuple[int, ...] = ()
    init_share: Part | None = None


def asked_by(pod: Pod, resource: str = keys.GPU_RESOURCE) -> PodDemand:
    """Return what a pod asks for."""
    spec, whole, before = pod.spec, pod.spec.resources, pod.spec.init_containers
    read = _read if _size(spec) <= MAX_QUANTITIES else _read.__wrapped__
    return read(
        resource,
        _amounts(whole.limits),
        _amounts(whole.requests),
        _amounts(spec.overhead),
        None if before is None else tuple([_asking(container) for container in before]),
        tuple([_asking(container) for container in spec.containers]),
    )


def _size(spec: PodSpec) -> int:
    size = len(spec.overhead or ()) + len(spec.resources.limits or ()) + len(spec.resources.requests or ())
    for container in (*(spec.init_containers or ()), *spec.containers):
        size += 1 + len(container.resources.limits or ()) + len(container.resources.requests or ())
    return size


def containers_of(pod: Pod, resource: str) -> list[ContainerGpus]:
    """List them in the order in which they start; a sidecar starts among the init containers and goes on running.

    Raises `RequestError`.
    """
    before = pod.spec.init_containers or []
    cpus = whole_cpus(pod)
    return [
        ContainerGpus(
            container.name,
            *_gpus_of(container, resource, init=init),
            cpus=cpus.get(container.name, 0),
            memory_gib=gib_of(container.name, container.resources.limits, container.resources.requests),
        )
        for container, init in (
            *((container, container.restart_policy != "Always") for container in before),
            *((container, False) for container in pod.spec.containers),
        )
    ]


def _gpus_of(container: Container, resource: str, *, init: bool) -> tuple[int, bool, str]:
    gpus, profile = asked_of(container.name, container.resources.limits, container.resources.requests, resource)
    return gpus, init, profile


def _asking(container: Container) -> _Asking:
    resources = container.resources
    return container.name, container.restart_policy, _amounts(resources.limits), _amounts(resources.requests)


def _amounts(quantities: Mapping[str, str | int] | None) -> _Amounts:
    return None if quantities is None else tuple(quantities.items())


@lru_cache(1024)
def _read(
    resource: str,
    limits: _Amounts,
    requests: _Amounts,
    overhead: _Amounts,
    before: tuple[_Asking, ...] | None,
    containers: tuple[_Asking, ...],
) -> PodDemand:
    spec = PodSpec(
        containers=[*map(_container, containers)],
        init_containers=None if before is None else [*map(_container, before)],
        resources=_requirements(limits, requests),
        overhead=None if overhead is None else dict(overhead),
    )
    pod = Pod(spec=spec)
    cpu, names_gpus = cpu_milli(pod), _names_gpus((*(before or ()), *containers), resource)
    try:
        demand = pod_request({}, containers_of(pod, resource))
    except RequestError:
        return PodDemand(cpu, names_gpus, is_readable=False, spec=spec)
    request = demand.request
    if not request.asks:
        return PodDemand(cpu, names_gpus, is_readable=True, spec=spec)
    if not request.is_share:
        return PodDemand(cpu, names_gpus, is_readable=True, gpus=request.gpus, profile=request.profile, spec=spec)
    starting = {container.name for container in demand.containers if container.init}
    init_share = next((Part(name, gib) for name, gib in demand.shares if name in starting), None)
    return PodDemand(
        cpu, names_gpus, is_readable=True, gpus=0, shares=request.memory_gib, init_share=init_share, spec=spec
    )


def _names_gpus(containers: tuple[_Asking, ...], resource: str) -> bool:
    return any(
        name in (resource, keys.SHARE_RESOURCE) or name.startswith(keys.MIG_PREFIX)
        for _, _, limits, requests in containers
        for name, _ in (*(limits or ()), *(requests or ()))
    )


def _container(asking: _Asking) -> Container:
    name, restart_policy, limits, requests = asking
    return Container(name, _requirements(limits, requests), restart_policy)


def _requirements(limits: _Amounts, requests: _Amounts) -> ResourceRequirements:
    return ResourceRequirements(*(None if amounts is None else dict(amounts) for amounts in (limits, requests)))
