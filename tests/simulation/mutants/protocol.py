"""The nine broken protocols of the catalogue (C2), each without one thing that makes it safe; what was found here; and C22."""

from __future__ import annotations

from tests.simulation.mix import only
from tests.simulation.mutants import bugs, seams
from tests.simulation.mutants.mutant import DOUBLE, Mutant
from tests.world.faults import Fault
from tests.world.http_faults import RequestFault, StreamFault

_SICK_WHILE_BINDING = only(
    {Fault.LATE_BINDING: 0.8, Fault.GPU_SICK: 1.0, Fault.POD_ENDED: 1.0},
    nodes=1,
    orphan_seconds=60.0,
    longest_hold_seconds=20.0,
)
_FENCED_WHILE_BINDING = only(
    {Fault.LATE_BINDING: 0.8, Fault.POD_ENDED: 1.0}, replicas=2, orphan_seconds=2.0, longest_hold_seconds=3.0
)
_TRIED_IN_VAIN = only({Fault.LATE_BINDING: 0.8, RequestFault.ERROR: 0.1}, nodes=3, orphan_seconds=60.0)
_SICK_UNHEARD = only({StreamFault.LATE: 0.6, Fault.GPU_SICK: 3.0, Fault.POD_ENDED: 2.0})
_REPORTED_LATE = only({Fault.LATE_REPORT: 0.3, Fault.POD_FORCED: 3.0, Fault.LATE_STOP: 0.7})
_SET_BACK = only({Fault.CLOCK_JUMP: 3.0, RequestFault.LOST_REPLY: 0.2, Fault.POD_ENDED: 1.0})
_LOST_WHILE_BINDING = only(
    {Fault.LATE_BINDING: 0.8, Fault.LEDGER_WIPED: 1.0, Fault.LEDGER_TRUNCATED: 1.0, Fault.POD_ENDED: 2.0}, nodes=1
)
_LOST_UNHEARD = only({StreamFault.LATE: 0.6, Fault.LEDGER_WIPED: 1.0, Fault.POD_ENDED: 2.0}, replicas=3, nodes=1)
_ENDED_BY_OTHERS = only({Fault.NODE_DELETED: 1.0, Fault.KUBELET_FROZEN: 0.06, Fault.POD_ENDED: 1.0}, nodes=1)
_BEHIND = only(
    {StreamFault.LATE: 0.6, Fault.POD_ENDED: 3.0, Fault.POD_FORCED: 1.0, Fault.LATE_REPORT: 0.2}, replicas=3, nodes=1
)

PROTOCOL = (
    Mutant("no ledger", "C2", ("INV1",), {seams.CLAIM: bugs.claim_nothing}, seed=8),
    Mutant(
        "no compare-and-swap",
        "C2",
        DOUBLE,
        {seams.SWAP_REQUEST: bugs.swap_without("ledger"), seams.CREATE_REQUEST: bugs.create_blindly},
    ),
    Mutant("no fence", "C2", DOUBLE, {seams.FENCE_ORPHANS: bugs.expire}),
    Mutant("absent from the cache is dead", "C2", DOUBLE, {seams.STANDING_OF_TOMBSTONE: bugs.free_when_absent}),
    Mutant("Binding with UID only", "C2", DOUBLE, {seams.BIND_REQUEST: bugs.bind_without("resourceVersion")}, seed=55),
    Mutant(
        "Binding with neither", "C2", DOUBLE, {seams.BIND_REQUEST: bugs.bind_without("resourceVersion", "uid")}, seed=55
    ),
    Mutant("free on deletionTimestamp", "C2", ("INV1",), {seams.HAS_STOPPED: bugs.stopped_when_deleted}),
    Mutant("other GPUs without a fence", "C2", DOUBLE, {seams.FENCE: bugs.fence_nobody}, _SICK_WHILE_BINDING, seed=21),
    Mutant("Binding sent again without a claim", "C2", DOUBLE, {seams.CLAIM: bugs.claim_once}, _FENCED_WHILE_BINDING),
)

OTHERS = (
    Mutant(
        "claims on every node that was tried",
        "found here",
        ("SUM",),
        {seams.DROP_OLDER: bugs.keep_older_claims},
        _TRIED_IN_VAIN,
    ),
    Mutant(
        "claims on another node dropped without a fence",
        "found here",
        DOUBLE,
        {seams.DROP_OLDER_CLAIMS: bugs.drop_without_fence},
        _TRIED_IN_VAIN,
    ),
    Mutant("a crash is an end", "found here", ("R2",), {seams.HAS_STOPPED: bugs.stopped_when_crashed}, seed=11),
    Mutant(
        "a final phase is an end",
        "found here",
        ("R2", "INV1"),
        {seams.HAS_STOPPED: bugs.stopped_when_ended},
        _ENDED_BY_OTHERS,
        seed=39,
    ),
    Mutant(
        "claims do not rest on health",
        "found here",
        ("INV4",),
        {seams.SWAP_REQUEST: bugs.swap_without("status")},
        _SICK_UNHEARD,
    ),
    Mutant(
        "the next report is a proof",
        "found here",
        ("R2",),
        {seams.SHOWS_FREE: bugs.free_by_next_report},
        _REPORTED_LATE,
    ),
    Mutant("deadlines are of the wall clock", "C22", ("A2",), {seams.CLOCK: bugs.wall_clock_only}, _SET_BACK),
    Mutant(
        "a late report overwrites a newer one",
        "found here",
        ("R2",),
        {seams.AGENT_CHANGES: bugs.write_blindly},
        _REPORTED_LATE,
        seed=47,
    ),
    Mutant(
        "a ledger is corrected by an old cache",
        "found here",
        DOUBLE,
        {seams.IS_AS_KNOWN: bugs.known_for_sure, seams.IS_BLOCKED: bugs.blocked_by_bound_pods_only},
        _BEHIND,
    ),
    Mutant(
        "a lost ledger is written anew without a fence",
        "found here",
        DOUBLE,
        {seams.IS_FENCE_NEEDED: bugs.fence_unneeded},
        _LOST_WHILE_BINDING,
    ),
    Mutant(
        "a lost ledger is written anew from an old cache",
        "found here",
        DOUBLE,
        {seams.HEAR_OF_BOUND: bugs.heard_enough},
        _LOST_UNHEARD,
    ),
)
