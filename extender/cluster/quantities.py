"""What pods ask for, as numbers that can be compared and added."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from extender.cluster.objects import Container, Pod

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?")
_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SCALE = {"": Fraction(1)}
_SCALE |= {suffix: Fraction(10) ** power for suffix, power in _POWERS.items()}
_SCALE |= {f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}


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
    running: Counter[str] = Counter()
    for container in pod.spec.containers:
        running.update(_requests(container))
    most: Counter[str] = Counter()
    for container in pod.spec.init_containers or ():
        if container.restart_policy == "Always":
            running.update(_requests(container))
        else:
            most |= Counter(_requests(container))
    return running | most


def _requests(container: Container) -> Mapping[str, Fraction]:
    asked = {**(container.resources.limits or {}), **(container.resources.requests or {})}
    return {resource: quantity(text) for resource, text in asked.items()}
