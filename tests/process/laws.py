"""What must hold at the end of every test, and what must have held after every write of it.

INV1, INV2, INV4 and INV5 are those of `tests.world.invariants`; INV1 and INV2 are looked for after each write, too. INV6 is the
rule of `tests.world.writes`, for what the replicas asked of the API server. That INV3 and INV7 come true in time is
`World.settle`'s to wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from benchmarks.processes.client import Json
from tests.manifests.rendered import SCHEDULER_NAME
from tests.process.calls import foreign_writes
from tests.process.replica import Replica
from tests.world.invariants import broken_promises, claims, is_live, violations, violations_over_time


def unsettled(nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return what is wrong with a cluster now; it may only be on its way to be right."""
    return [*violations(nodes, pods), *_waiting(pods)]


def ever_wrong(
    events: Sequence[Json], replicas: Sequence[Replica], pods: Sequence[Json], spoiled: Collection[str]
) -> list[str]:
    """Return what was wrong at some moment, which nothing makes good.

    `pods` are those that there are at the end; on `spoiled` nodes strangers wrote what only we may.
    """
    calls = [call for replica in replicas for call in replica.proxy.calls]
    promises = [promise for replica in replicas for promise in replica.promises()]
    return [
        *violations_over_time(events, spoiled),
        *(wrong for call in calls for wrong in foreign_writes(call)),
        *broken_promises(promises, pods),
    ]


def nodes_with_idle_claims(nodes: Sequence[Json], pods: Sequence[Json]) -> set[str]:
    """Return the nodes with claims whose pods do not run there."""
    running = {(pod["spec"].get("nodeName"), pod["metadata"]["uid"]) for pod in pods if is_live(pod)}
    return {claim.node for claim in claims(nodes) if (claim.node, claim.pod) not in running}


def _waiting(pods: Iterable[Json]) -> Iterator[str]:
    """Yield INV7's complaints."""
    for pod in pods:
        if not pod["spec"].get("nodeName") and pod["spec"].get("schedulerName") == SCHEDULER_NAME:
            yield f"INV7: {pod['metadata']['name']} is not bound"
