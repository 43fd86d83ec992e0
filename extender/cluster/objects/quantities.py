"""What pods ask for, as numbers that can be compared and added."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil

from extender.cluster.objects.kinds import Container, Pod

Quantities = Mapping[str, str | int]
Amount = Fraction | int

MAX_CPU_MILLI = 10**9
"""A million CPUs: more than any node has."""
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SCALE = {"": Fraction(1)}
_SCALE |= {suffix: Fraction(10) ** power for suffix, power in _POWERS.items()}
_SCALE |= {f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}


@lru_cache(4096)
def quantity(text: str | int) -> Fraction:
    """Return a Kubernetes quantity; raises `ValueError` for one that nobody can read.

    >>> quantity("1500m"), quantity("2Ki"), quantity("1e3")
    (Fraction(3, 2), Fraction(2048, 1), Fraction(1000, 1))
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError("not a quantity")
    number, suffix, exponent = match.groups()
    return Fraction(number) * _SCALE[suffix or ""] * Fraction(10) ** int(exponent or 0)


def requests(pod: Pod) -> Counter[str]:
    """Return resource → what the pod takes of it from its node, as kube-scheduler counts; raises `ValueError`."""
    asking = [*(pod.spec.init_containers or ()), *pod.spec.containers]
    listed = [pod.spec.resources, *(container.resources for container in asking)]
    named = {*(pod.spec.overhead or ())}.union(
        *((*(container.limits or ()), *(container.requests or ())) for container in listed)
    )
    return Counter({resource: requested(pod, resource) for resource in sorted(named)})


def requested(pod: Pod, resource: str, read: Callable[[str | int], Amount] = quantity) -> Amount:
    """Return what the pod takes of one resource, in the unit of `read`; raises `ValueError`."""

    def asked_by(limits: Quantities | None, requests: Quantities | None) -> Amount | None:
        text = (requests or {}).get(resource, (limits or {}).get(resource))
        return None if text is None else read(text)

    running: Amount = 0
    widest: Amount = 0
    for container in pod.spec.init_containers or ():
        amount = asked_by(container.resources.limits, container.resources.requests) or 0
        if container.restart_policy == "Always":
            running += amount
        else:
            widest = max(widest, running + amount)
    for container in pod.spec.containers:
        running += asked_by(container.resources.limits, container.resources.requests) or 0
    whole = asked_by(pod.spec.resources.limits, pod.spec.resources.requests)
    overhead = asked_by(None, pod.spec.overhead) or 0
    return (max(widest, running) if whole is None else whole) + overhead


def cpu_milli(pod: Pod) -> int:
    """Return what the pod takes of its node's CPU; 0 where nobody can read it, which is for the API server to refuse."""
    try:
        return min(ceil(requested(pod, "cpu", _milli)), MAX_CPU_MILLI)
    except ValueError:
        return 0


def memory_bytes(pod: Pod) -> int:
    """Return what the pod takes of its node's memory; 0 where nobody can read it, which is for the API server to refuse."""
    try:
        return ceil(requested(pod, "memory", _bytes))
    except ValueError:
        return 0


def whole_cpus(pod: Pod) -> dict[str, int]:
    """Return container → the CPUs that a kubelet with static CPUs would give to it alone.

    Only pods of the class `Guaranteed` get any, and of their containers those that ask for a whole number. With resources for
    the pod as a whole there are none (Kubernetes 1.36, without the gate `PodLevelResourceManagers`).
    """
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    if pod.spec.resources.requests or pod.spec.resources.limits or not all(map(_has_limits, containers)):
        return {}
    try:
        cpus_of = {container.name: _guaranteed(container) for container in containers}
    except ValueError:
        return {}
    if None in cpus_of.values():
        return {}
    return {name: int(cpus) for name, cpus in cpus_of.items() if cpus and cpus.denominator == 1}


def _has_limits(container: Container) -> bool:
    limits = container.resources.limits or {}
    return "cpu" in limits and "memory" in limits


def _guaranteed(container: Container) -> Fraction | None:
    """Return the CPU of a container that asks for all that it may use, else `None`."""
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    cpu, memory = (quantity(limits[resource]) for resource in ("cpu", "memory"))
    same = all(quantity(requests.get(name, limits[name])) == quantity(limits[name]) for name in ("cpu", "memory"))
    return cpu if same and cpu and memory else None


@lru_cache(4096)
def _milli(text: str | int) -> Amount:
    """Return thousandths, as an `int` where there are no parts of them: these are added up ten times as fast."""
    milli = 1000 * quantity(text)
    return int(milli) if milli.denominator == 1 else milli


@lru_cache(4096)
def _bytes(text: str | int) -> Amount:
    """Return bytes, as an `int` where there are no parts of one."""
    amount = quantity(text)
    return int(amount) if amount.denominator == 1 else amount
