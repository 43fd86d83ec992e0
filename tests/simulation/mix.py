"""How likely each fault is in a run, and the mix of them that one seed draws.

Every seed draws a mix of its own, with some faults left out altogether: a run in which everything goes wrong all the time
never gets far enough to meet the rare combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.world.faults import AnyFault, Fault
from tests.world.http_faults import RequestFault, StreamFault

Rates = Mapping[AnyFault, float]
"""Probability or weight by fault."""

REQUEST_FAULTS: Mapping[RequestFault, float] = {
    RequestFault.SLOW: 0.10,
    RequestFault.LOST_REQUEST: 0.04,
    RequestFault.LOST_REPLY: 0.06,
    RequestFault.RESET_BEFORE: 0.04,
    RequestFault.RESET_AFTER: 0.06,
    RequestFault.DUPLICATED: 0.10,
    RequestFault.CONFLICT: 0.04,
    RequestFault.INVALID: 0.03,
    RequestFault.BUSY: 0.02,
    RequestFault.ERROR: 0.03,
    RequestFault.ERROR_AFTER: 0.03,
    RequestFault.UNAVAILABLE: 0.03,
}
"""The highest probability per request."""
STREAM_FAULTS: Mapping[StreamFault, float] = {
    StreamFault.CUT: 0.3,
    StreamFault.BROKEN: 0.15,
    StreamFault.SILENT: 0.1,
    StreamFault.LATE: 0.4,
    StreamFault.EXPIRED: 0.1,
    StreamFault.GARBAGE: 0.1,
}
"""The highest probability per stream."""
PROCESS_FAULTS: Mapping[Fault, float] = {
    Fault.LATE_BINDING: 0.3,
    Fault.LATE_REPORT: 0.2,
    Fault.CRASH_BEFORE: 0.02,
    Fault.CRASH_AFTER: 0.03,
    Fault.WEBHOOK_LOST: 0.05,
    Fault.WEBHOOK_TWICE: 0.15,
    Fault.LATE_STOP: 0.7,
    Fault.KUBELET_FROZEN: 0.06,
}
"""The highest probability per request of that kind, per call of a webhook, per pod or per look of a kubelet."""
EVENTS: Rates = {
    Fault.COMPACTED: 1.0,
    Fault.KILLED: 1.0,
    Fault.FROZEN: 1.0,
    Fault.CLOCK_JUMP: 1.0,
    Fault.POD_DELETED: 3.0,
    Fault.POD_FORCED: 3.0,
    Fault.POD_LONG_GRACE: 0.5,
    Fault.POD_ENDED: 6.0,
    Fault.POD_FAILED_UNBOUND: 0.7,
    Fault.POD_PATCHED: 3.0,
    Fault.POD_NAMESAKE: 2.0,
    Fault.POD_UNREADABLE: 0.7,
    Fault.POD_CRASHING: 1.0,
    Fault.FOREIGN_BINDING: 0.4,
    Fault.FORGED_PLACEMENT: 0.4,
    RequestFault.FORBIDDEN: 0.5,
    Fault.NODE_DELETED: 0.5,
    Fault.GPU_SICK: 3.0,
    Fault.LEDGER_WIPED: 0.5,
    Fault.LEDGER_EDITED: 0.5,
    Fault.LEDGER_TRUNCATED: 0.5,
}
"""The highest weight of what happens around the extenders, one event at a time; a policy forbids a pod for good."""


_CUT_RATIO = 0.3
"""Of the runs."""
NOMINATED: Rates = {Fault.POD_NOMINATED: 6.0}
"""The same where queues are planned ahead, and only there: seeds without it are what they were."""
CUT: Rates = {Fault.GPU_CUT: 4.0}
"""The same where pods ask for MIG slices, and only there."""


@dataclass(frozen=True, slots=True)
class Mix:
    """One run's mix."""

    rates: Rates
    """Probability or weight; 0 when left out."""
    replicas: int
    schedulers: int
    nodes: int
    machine: str
    storm_seconds: float
    event_seconds: float
    """Between two events on average."""
    orphan_seconds: float
    """After which a claim without a Binding is taken back: a matter of patience, never of safety."""
    longest_hold_seconds: float
    """For how long the network holds a message at most."""
    share_ratio: float
    """How many of the pods ask for a share of a GPU; where none does, no node shares its GPUs."""
    shared_gpus: int
    """Of one node, at most, at one time."""
    slice_ratio: float = 0.0
    """How many of the other pods ask for MIG slices; where none does, no GPU is ever cut."""
    queued_ratio: float = 0.0
    """How many of the pods that ask for whole GPUs wait in the extenders' queue, alone or in gangs."""
    owned_ratio: float = 0.0
    """How many of the gangs in the queue have a controller that keeps them whole."""
    steered: bool = False
    """Whether extenders nominate pods, and kube-scheduler tries the nominated node first."""

    def __str__(self) -> str:
        used = ", ".join(f"{fault} {rate:.3f}" for fault, rate in self.rates.items() if rate)
        return (
            f"{self.replicas} extenders, {self.schedulers} schedulers, {self.nodes} × {self.machine}, "
            f"storm of {self.storm_seconds:.0f} s, an event every {self.event_seconds:.2f} s, "
            f"orphans after {self.orphan_seconds:.0f} s, holds of {self.longest_hold_seconds:.0f} s, "
            f"{self.share_ratio:.1f} of the pods with shares of {self.shared_gpus} GPUs a node, "
            f"{self.slice_ratio:.1f} of the others with slices, "
            f"{self.queued_ratio:.1f} of the rest in the queue; {used or 'no faults'}"
        )


Adapt = Callable[[Mix], Mix]
"""Makes another mix of the one that was drawn."""


def as_drawn(mix: Mix) -> Mix:
    """Leave the mix alone."""
    return mix


def whole_gpus(mix: Mix) -> Mix:
    """Let nobody ask for a share or a slice."""
    return replace(mix, share_ratio=0.0, slice_ratio=0.0, rates={**mix.rates, Fault.GPU_CUT: 0.0})


def steered(mix: Mix) -> Mix:
    """Have queues planned ahead, and wrong nominations of others among these."""
    return replace(mix, steered=True, rates={**mix.rates, **NOMINATED})


def queued(mix: Mix) -> Mix:
    """Have pods wait in the extenders' queue, alone and in gangs, and all ask for whole GPUs."""
    return replace(whole_gpus(mix), queued_ratio=0.6)


def owned(mix: Mix) -> Mix:
    """Have controllers keep most of the gangs whole that wait in the queue."""
    return replace(queued(mix), owned_ratio=0.7)


def torn(mix: Mix) -> Mix:
    """Have gangs lose members, and members that nobody may bind, and no other faults."""
    rates: Rates = {Fault.POD_DELETED: 1.0, Fault.POD_FORCED: 1.0, RequestFault.FORBIDDEN: 3.0}
    return replace(owned(mix), rates=rates, nodes=2, event_seconds=1.0, orphan_seconds=4.0, queued_ratio=0.9)


def cut(mix: Mix) -> Mix:
    """Have pods ask for MIG slices, and GPUs cut while pods have them."""
    return replace(mix, slice_ratio=0.5, rates={**mix.rates, **CUT})


def only(rates: Rates, **settings: Any) -> Adapt:
    """Have these faults and no others, in a run with these settings, and the rest as it was drawn but whole GPUs alone."""
    return lambda mix: replace(whole_gpus(mix), rates=rates, **settings)


def draw_mix(random: Random) -> Mix:
    """Choose a mix; about two faults in five are left out."""
    highest: list[tuple[AnyFault, float]] = [*REQUEST_FAULTS.items(), *STREAM_FAULTS.items()]
    highest += [*PROCESS_FAULTS.items(), *EVENTS.items()]
    rates: Rates = {fault: random.uniform(0.1, 1.0) * rate if random.random() < 0.6 else 0.0 for fault, rate in highest}
    mix = Mix(
        rates,
        replicas=random.choice((1, 2, 2, 3)),
        schedulers=random.choice((1, 1, 2)),
        nodes=random.choice((1, 2, 3)),
        machine=random.choice(("rtx-3090-2", "t4-4", "a100-pcie-4-degraded-pair")),
        storm_seconds=random.uniform(30.0, 60.0),
        event_seconds=random.uniform(0.5, 2.0),
        orphan_seconds=random.choice((2.0, 4.0, 10.0, 60.0)),
        longest_hold_seconds=random.choice((3.0, 20.0)),
        share_ratio=random.choice((0.0, 0.6)),
        shared_gpus=random.choice((1, 2, 4)),
    )
    return cut(mix) if random.random() < _CUT_RATIO else mix
