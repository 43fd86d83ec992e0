"""What peers have had to fix (C24), each put into the product or the simulated node."""

from __future__ import annotations

from tests.simulation.mix import only
from tests.simulation.mutants import bugs, seams
from tests.simulation.mutants.mutant import DOUBLE, STUCK, Mutant
from tests.world.faults import Fault
from tests.world.http_faults import StreamFault

_NODES_COME_AND_GO = only({StreamFault.LATE: 0.6, Fault.NODE_DELETED: 1.0, Fault.POD_ENDED: 1.0}, event_seconds=0.5)
_NAMESAKES = only({Fault.POD_NAMESAKE: 3.0, Fault.POD_ENDED: 1.0, Fault.LATE_BINDING: 0.3}, event_seconds=0.5)

PEERS = (
    Mutant(
        "updates are not heard",
        "koordinator#1289",
        ("INV1", "INV2", *STUCK),
        {seams.POD_CHANGED: bugs.first_version_only},
    ),
    Mutant("a namesake is bound", "koordinator#2476", ("INV5",), {seams.SETTLED: bugs.settle_any_uid}, _NAMESAKES),
    Mutant(
        "a failed bind keeps its lock",
        "HAMi#1130",
        STUCK,
        {seams.EXTENDER_BIND: bugs.bind_and_keep_the_lock},
    ),
    Mutant(
        "fewer GPUs than asked for",
        "HAMi#1741",
        ("INV4",),
        {seams.SHARE_OUT: bugs.share_out_too_few},
    ),
    Mutant(
        "a failed bind leaks its claim",
        "HAMi#2308",
        ("INV3",),
        {seams.WITHDRAW: bugs.withdraw_nothing, seams.ATTENTION: bugs.never},
        seed=26,
    ),
    Mutant(
        "unknown GPUs are let pass",
        "HAMi#2592",
        ("INV4",),
        {seams.SWAP_REQUEST: bugs.swap_without("uid", "digest", "status"), seams.CREATE_REQUEST: bugs.create_blindly},
        _NODES_COME_AND_GO,
        seed=25,
    ),
    Mutant("answers come before the caches are in sync", "HAMi#2911", ("C14",), {seams.SYNCED: True}, seed=6),
    Mutant(
        "deletions are not heard",
        "HAMi#2923",
        STUCK,
        {seams.POD_DELETED: bugs.deaf},
    ),
    Mutant(
        "the node matches pods by size",
        "gpushare, size match",
        ("INV1", "INV2"),
        {seams.RECORDED_FOR: bugs.oldest_of_the_same_size},
    ),
    Mutant(
        "free while terminating",
        "gpushare, early free",
        DOUBLE,
        {seams.STANDING_OF_POD: bugs.free_when_deleting, seams.HAS_STOPPED: bugs.stopped_when_deleted},
    ),
    Mutant("the node goes by bind order", "vgpu-manager#2", ("INV1", "INV2"), {seams.RECORDED_FOR: bugs.last_bound}),
    Mutant(
        "reserves and fails for ever",
        "KAI#848",
        ("A3",),
        {seams.MAX_ROUNDS: 1000, seams.POST: bugs.post_again_and_again},
        seed=27,
    ),
    Mutant("a doomed bind starves others", "KAI#2075", STUCK, {seams.WITHDRAW: bugs.withdraw_nothing}, seed=26),
    Mutant(
        "a claim expires while its bind is slow",
        "k/k#106361",
        DOUBLE,
        {seams.FENCE_ORPHANS: bugs.expire, seams.ATTENTION: bugs.impatient},
    ),
    Mutant(
        "allocations of others are not looked at",
        "k/k#136269",
        DOUBLE,
        {seams.SWAP_REQUEST: bugs.swap_without("ledger")},
        seed=26,
    ),
    Mutant(
        "free as soon as deleted by force", "k/k#141471", DOUBLE, {seams.STANDING_OF_TOMBSTONE: bugs.free_when_gone}
    ),
    Mutant(
        "watches from the version of an item",
        "client#819",
        ("W6",),
        {seams.LIST_OBJECTS: bugs.list_with_version_of_last_item},
    ),
    Mutant("silence is never noticed", "kopf#585", STUCK, {seams.TIMING: bugs.patient_for_ever}),
    Mutant(
        "late replies overwrite newer versions",
        "OpenSandbox#1673",
        ("W5",),
        {
            seams.POD_IS_OLDER: bugs.newer_always,
            seams.NODE_IS_OLDER: bugs.newer_always,
        },
    ),
)

NOT_ESTABLISHED = ("k/k#96579",)
"""Of the catalogue, too; what it reports could not be found out, so nothing stands for it."""
