"""What a pod asks for, read from a plain pod mapping; nothing is guessed and nothing unreadable is ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from topology import keys
from topology.errors import RequestError
from topology.links import Affinity

MAX_GPUS_PER_POD = 64


class Communication(StrEnum):
    """How much of a training step is collective traffic."""

    HEAVY = "heavy"
    LIGHT = "light"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ContainerGpus:
    """How many whole GPUs one container asks for, and when it runs."""

    name: str
    gpus: int
    init: bool = False
    """Runs to its end before the app containers start, so its GPUs can serve them again."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """One pod's wish, without its identity: equal wishes are equal values and share memoised plans."""

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
    nic: bool = False
    """Every GPU must have an RDMA NIC under the same PCIe switch."""

    def relaxed(self) -> GpuRequest:
        """Return the wish with its required affinity as a preference and no bandwidth floor."""
        return replace(self, required=None, preferred=self.required or self.preferred, min_bandwidth_gb_per_s=None)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod's wish and how its GPUs are shared out among its containers."""

    wish: GpuRequest
    containers: tuple[ContainerGpus, ...] = ()
    """Only those that ask for GPUs; init containers first."""
    relax_after_seconds: float | None = None

    def at_age(self, age_seconds: float) -> GpuRequest:
        """Return the wish as it stands `age_seconds` after the pod was created."""
        if self.relax_after_seconds is not None and age_seconds >= self.relax_after_seconds:
            return self.wish.relaxed()
        return self.wish

    def share_out(self, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Give each container its GPUs, as neighbours on the ring; init containers use the same ones before.

        `gpus` is the pod's whole set in ring order.
        """
        shares: dict[str, tuple[str, ...]] = {}
        start = 0
        for container in self.containers:
            if container.init:
                shares[container.name] = tuple(gpus[: container.gpus])
            else:
                shares[container.name] = tuple(gpus[start : start + container.gpus])
                start += container.gpus
        return shares
