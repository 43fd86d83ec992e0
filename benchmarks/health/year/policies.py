"""Who may have which GPU: the policies that are compared, each for the GPUs of one node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from agent.health.evidence import (
    Back,
    Cleared,
    Evidence,
    Lost,
    RecoveryAction,
    RecoveryRequested,
    RemapFailed,
    Uncorrected,
    Xid,
)
from agent.health.node import HealthMachine
from agent.health.policy import HealthPolicy as Figures


class SimulatedHealthPolicy(Protocol):
    """Told in the order of time what the driver says, and what people do; times in seconds."""

    def told(self, gpu: int, evidence: Evidence, now: float) -> None:
        """Take in what the driver says of a GPU."""
        ...

    def restarted(self, now: float) -> None:
        """Take in that the node's programs were started anew."""
        ...

    def replaced(self, gpu: int, now: float) -> None:
        """Take in that another GPU has come in the place of this one."""
        ...

    def let_in(self, gpu: int, now: float) -> None:
        """Do what the policy's people do when they want a GPU to be in again."""
        ...

    def takes_pods(self, gpu: int, now: float) -> bool:
        """Whether new pods may have the GPU."""
        ...

    def next_change(self, now: float) -> float:
        """Return when time alone may change an answer; infinite if never."""
        ...


class GputopoHealthPolicy:
    """The agent's own machine.

    Args:
        gpus: how many the node has.
        driver_asks: whether the driver says which recovery a GPU needs (NVML's field 230), as those before 565 do not.

    """

    def __init__(self, gpus: int, *, driver_asks: bool = True) -> None:
        self._driver_asks = driver_asks
        self._names = [str(gpu) for gpu in range(gpus)]
        self._health = HealthMachine(Figures())
        self._health.has(self._names)
        for name in self._names:
            self._begins(name, 0.0)

    def told(self, gpu: int, evidence: Evidence, now: float) -> None:
        """Take in what the driver says of a GPU."""
        if self._driver_asks or not isinstance(evidence, RecoveryRequested):
            self._health.told(self._names[gpu], evidence, now)

    def restarted(self, now: float) -> None:
        """Forget nothing: the memory outlives the agent."""

    def replaced(self, gpu: int, now: float) -> None:
        """Know the new GPU by its own name."""
        self._names[gpu] = f"{gpu} since {now:.0f}"
        self._health.has(self._names)
        self._begins(self._names[gpu], now)

    def let_in(self, gpu: int, now: float) -> None:
        """Say that the GPU is well."""
        self._health.told(self._names[gpu], Cleared(f"round at {now:.0f}"), now)

    def takes_pods(self, gpu: int, now: float) -> bool:
        """Whether its state takes pods."""
        return self._health.verdict(self._names[gpu], now).state.takes_pods

    def next_change(self, now: float) -> float:
        """Return what the machine announces."""
        return self._health.next_change(now)

    def _begins(self, name: str, now: float) -> None:
        if self._driver_asks:
            self._health.told(name, RecoveryRequested(RecoveryAction.NONE), now)
        self._health.told(name, Uncorrected(0), now)


class _Listing:
    """What all programs without a memory of their own have in common: they list the GPUs that they find when they start."""

    def __init__(self) -> None:
        self._lost: set[int] = set()
        self._unlisted: frozenset[int] = frozenset()

    def told(self, gpu: int, evidence: Evidence, now: float) -> None:
        """Remember whether it is there at all."""
        if isinstance(evidence, Lost):
            self._lost.add(gpu)
        elif isinstance(evidence, Back):
            self._lost.discard(gpu)

    def restarted(self, now: float) -> None:
        """List what is there."""
        self._unlisted = frozenset(self._lost)

    def replaced(self, gpu: int, now: float) -> None:
        """Find the new GPU there."""
        self._lost.discard(gpu)

    def let_in(self, gpu: int, now: float) -> None:
        """Start the program of this node anew: there is no other way."""
        self.restarted(now)

    def takes_pods(self, gpu: int, now: float) -> bool:
        """Whether it was there when the program started."""
        return gpu not in self._unlisted

    def next_change(self, now: float) -> float:
        """Return that time alone changes nothing."""
        return math.inf


class NoHealthCheck(_Listing):
    """NVIDIA's device plugin with `DP_DISABLE_HEALTHCHECKS=all`."""


OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""NVIDIA's device plugin 0.19 passes over these, and our agent's first form did; source: its internal/rm/health.go."""


class NvidiaPluginHealthPolicy(_Listing):
    """NVIDIA's device plugin: any other error takes the GPU out until the plugin starts anew.

    Its other rule, that an error while waiting for events takes out all GPUs of the node, is left out in its favour.
    """

    def __init__(self) -> None:
        super().__init__()
        self._out: set[int] = set()

    def told(self, gpu: int, evidence: Evidence, now: float) -> None:
        """Take the GPU out at an error."""
        super().told(gpu, evidence, now)
        if isinstance(evidence, Xid) and evidence.number not in OF_PROGRAMS:
            self._out.add(gpu)

    def restarted(self, now: float) -> None:
        """Forget all errors."""
        super().restarted(now)
        self._out.clear()

    def takes_pods(self, gpu: int, now: float) -> bool:
        """Whether it has had no error since the plugin started."""
        return gpu not in self._out and super().takes_pods(gpu, now)


class FixedTimer(_Listing):
    """Our agent's first form: any such error takes the GPU out for five minutes, and NVML is asked what it knows itself."""

    seconds = 300.0

    def __init__(self) -> None:
        super().__init__()
        self._until: dict[int, float] = {}
        self._broken: set[int] = set()

    def told(self, gpu: int, evidence: Evidence, now: float) -> None:
        """Take the GPU out for a while at an error, and for as long as it is lost or without spare rows."""
        super().told(gpu, evidence, now)
        if isinstance(evidence, Xid) and evidence.number not in OF_PROGRAMS:
            self._until[gpu] = now + self.seconds
        elif isinstance(evidence, RemapFailed):
            self._broken.add(gpu)

    def restarted(self, now: float) -> None:
        """Forget the timers."""
        super().restarted(now)
        self._until.clear()

    def replaced(self, gpu: int, now: float) -> None:
        """Ask NVML about the new GPU."""
        self._broken.discard(gpu)
        super().replaced(gpu, now)

    def let_in(self, gpu: int, now: float) -> None:
        """Leave it to the timer: nothing else keeps out a GPU that is well."""

    def takes_pods(self, gpu: int, now: float) -> bool:
        """Whether its timer is over, and NVML has nothing against it."""
        return now >= self._until.get(gpu, 0.0) and gpu not in self._lost | self._broken

    def next_change(self, now: float) -> float:
        """Return when the next timer ends."""
        return min((until for until in self._until.values() if until > now), default=math.inf)


POLICIES: Final[Mapping[str, Callable[[int], SimulatedHealthPolicy]]] = {
    "gputopo": GputopoHealthPolicy,
    "gputopo, old driver": partial(GputopoHealthPolicy, driver_asks=False),
    "nvidia-plugin": lambda _: NvidiaPluginHealthPolicy(),
    "five-minute timer": lambda _: FixedTimer(),
    "no health check": lambda _: NoHealthCheck(),
}
