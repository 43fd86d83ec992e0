"""Known bugs, put into the product one at a time: the nine broken protocols, what peers have had to fix, and what was found here.

The simulation must break one of the laws that are named, within so many seeds; a mutant that survives says that the simulation
cannot see bugs of that kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from benchmarks.double.faults import StreamFault
from tests.simulation.faults import Fault, Rates
from tests.simulation.mutants import bugs
from tests.simulation.run import run


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug."""

    name: str
    origin: str
    """The catalogue of protocol mutants (C2), the issue of a peer, or this simulation."""
    laws: tuple[str, ...]
    """Breaking one of them is seeing the bug."""
    patches: Mapping[str, object]
    """Dotted name → what is there instead."""
    only: Rates | None = None
    """The faults that bring it out; else all of them, mixed."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the product have the bug for as long as the context is open."""
        with ExitStack() as stack:
            for target, instead in self.patches.items():
                stack.enter_context(patch(target, instead))
            yield


@dataclass(frozen=True, slots=True)
class Unexpressed:
    """A bug without a counterpart here."""

    origin: str
    why: str


def hunt(mutant: Mutant, seeds: range) -> tuple[int | None, str]:
    """Return the first seed in which the mutant breaks one of its laws, and how; `None` when it never does."""
    with mutant.installed():
        for seed in seeds:
            for violation in run(seed, mutant.only).violations:
                if violation.partition(":")[0] in mutant.laws:
                    return seed, violation
    return None, ""


_DOUBLE = ("INV1", "INV2", "R2", "R3")
_STUCK = ("INV3", "INV7", "CACHE")
_CLAIM = "extender.binding.bind._Bind._claim"
_FENCE = "extender.binding.bind._Bind._fence"
_POST = "extender.binding.bind._Bind._post"
_SETTLED = "extender.binding.bind._Bind._settled"
_WITHDRAW = "extender.binding.bind._Bind._withdraw"
_MAX_ROUNDS = "extender.binding.bind.MAX_ROUNDS"
_FENCE_ORPHANS = "extender.binding.release._fence_orphans"
_ATTENTION = "extender.service.Attention"
_BIND_REQUEST = "extender.kubernetes.rest._bind"
_SWAP_REQUEST = "extender.kubernetes.rest._swap_ledger"
_CREATE_REQUEST = "extender.kubernetes.rest._create_ledger"
_HAS_STOPPED = "extender.cluster.pod_cache.has_stopped"
_OF_POD = "extender.cluster.state.standing_of_pod"
_OF_GRAVE = "extender.cluster.state.standing_of_grave"
_RECORDED_FOR = "tests.simulation.world.kubelet.recorded_for"
_SICK_WHILE_BINDING: Rates = {Fault.LATE_BINDING: 0.5, Fault.GPU_SICK: 1.0, Fault.POD_ENDED: 1.0}
_TOUCHED_WHILE_BINDING: Rates = {
    Fault.LATE_BINDING: 0.5,
    Fault.KILLED: 1.0,
    Fault.POD_PATCHED: 1.0,
    Fault.POD_ENDED: 1.0,
}
_NODES_COME_AND_GO: Rates = {StreamFault.LATE: 0.6, Fault.NODE_DELETED: 1.0, Fault.POD_ENDED: 1.0}
_SICK_UNHEARD: Rates = {StreamFault.LATE: 0.6, Fault.GPU_SICK: 3.0, Fault.POD_ENDED: 2.0}
_REPORTED_LATE: Rates = {Fault.LATE_REPORT: 0.3, Fault.POD_FORCED: 3.0, Fault.LATE_STOP: 0.7}

MUTANTS = (
    Mutant("no ledger", "C2", ("INV1",), {_CLAIM: bugs.claim_nothing}),
    Mutant(
        "no compare-and-swap",
        "C2",
        _DOUBLE,
        {_SWAP_REQUEST: bugs.swap_without("ledger"), _CREATE_REQUEST: bugs.create_blindly},
    ),
    Mutant("no fence", "C2", _DOUBLE, {_FENCE_ORPHANS: bugs.expire}),
    Mutant("absent from the cache is dead", "C2", _DOUBLE, {_OF_GRAVE: bugs.free_when_absent}),
    Mutant("Binding with UID only", "C2", _DOUBLE, {_BIND_REQUEST: bugs.bind_without("resourceVersion")}),
    Mutant("Binding with neither", "C2", _DOUBLE, {_BIND_REQUEST: bugs.bind_without("resourceVersion", "uid")}),
    Mutant("free on deletionTimestamp", "C2", ("INV1",), {_HAS_STOPPED: bugs.stopped_when_deleted}),
    Mutant("other GPUs without a fence", "C2", _DOUBLE, {_FENCE: bugs.fence_nobody}, _SICK_WHILE_BINDING),
    Mutant("Binding sent again without a claim", "C2", _DOUBLE, {_CLAIM: bugs.claim_once}, _TOUCHED_WHILE_BINDING),
    Mutant(
        "updates are not heard",
        "koordinator#1289",
        ("INV1", "INV2", *_STUCK),
        {"extender.cluster.pod_cache.PodCache.changed": bugs.first_version_only},
    ),
    Mutant("a namesake is bound", "koordinator#2476", ("INV5",), {_SETTLED: bugs.settle_any_uid}),
    Mutant(
        "a failed bind keeps its lock",
        "HAMi#1130",
        _STUCK,
        {"extender.service.Extender.bind": bugs.bind_and_keep_the_lock},
    ),
    Mutant(
        "fewer GPUs than asked for",
        "HAMi#1741",
        ("INV4",),
        {"topology.request.PodRequest.share_out": bugs.share_out_too_few},
    ),
    Mutant(
        "a failed bind leaks its claim",
        "HAMi#2308",
        ("INV3",),
        {_WITHDRAW: bugs.withdraw_nothing, _ATTENTION: bugs.never},
    ),
    Mutant(
        "unknown GPUs are let pass",
        "HAMi#2592",
        ("INV4",),
        {_SWAP_REQUEST: bugs.swap_without("uid", "digest", "status"), _CREATE_REQUEST: bugs.create_blindly},
        _NODES_COME_AND_GO,
    ),
    Mutant(
        "answers come before the caches are in sync",
        "HAMi#2911",
        ("C14",),
        {"extender.cluster.state.ClusterState.synced": True},
    ),
    Mutant(
        "deletions are not heard",
        "HAMi#2923",
        _STUCK,
        {"extender.cluster.pod_cache.PodCache.deleted": bugs.deaf},
    ),
    Mutant(
        "the node matches pods by size",
        "gpushare, size match",
        ("INV1", "INV2"),
        {_RECORDED_FOR: bugs.oldest_of_the_same_size},
    ),
    Mutant(
        "free while terminating",
        "gpushare, early free",
        _DOUBLE,
        {_OF_POD: bugs.free_when_deleting, _HAS_STOPPED: bugs.stopped_when_deleted},
    ),
    Mutant("the node goes by bind order", "vgpu-manager#2", ("INV1", "INV2"), {_RECORDED_FOR: bugs.last_bound}),
    Mutant("reserves and fails for ever", "KAI#848", ("A3",), {_MAX_ROUNDS: 1000, _POST: bugs.post_again_and_again}),
    Mutant("a doomed bind starves others", "KAI#2075", _STUCK, {_WITHDRAW: bugs.withdraw_nothing}),
    Mutant(
        "a claim expires while its bind is slow",
        "k/k#106361",
        _DOUBLE,
        {_FENCE_ORPHANS: bugs.expire, _ATTENTION: bugs.impatient},
    ),
    Mutant(
        "allocations of others are not looked at", "k/k#136269", _DOUBLE, {_SWAP_REQUEST: bugs.swap_without("ledger")}
    ),
    Mutant("free as soon as deleted by force", "k/k#141471", _DOUBLE, {_OF_GRAVE: bugs.free_when_gone}),
    Mutant(
        "watches from the version of an item",
        "client#819",
        ("W6",),
        {"extender.kubernetes.reflector.list_objects": bugs.list_with_version_of_last_item},
    ),
    Mutant("silence is never noticed", "kopf#585", _STUCK, {"extender.service.Timing": bugs.patient_for_ever}),
    Mutant(
        "late replies overwrite newer versions",
        "OpenSandbox#1673",
        ("W5",),
        {
            "extender.cluster.pod_cache.is_older": bugs.newer_always,
            "extender.cluster.node_cache.is_older": bugs.newer_always,
        },
    ),
    Mutant("a crash is an end", "this simulation", ("R2",), {_HAS_STOPPED: bugs.stopped_when_crashed}),
    Mutant(
        "claims do not rest on health",
        "this simulation",
        ("INV4",),
        {_SWAP_REQUEST: bugs.swap_without("status")},
        _SICK_UNHEARD,
    ),
    Mutant(
        "the next report is a proof",
        "this simulation",
        ("R2",),
        {"extender.cluster.state.ClusterState._is_reported_free": bugs.free_by_next_report},
        _REPORTED_LATE,
    ),
)

UNEXPRESSED = (Unexpressed("k/k#96579", "what it reports could not be established, so nothing stands for it"),)
"""A table that claims more would be worth less."""
