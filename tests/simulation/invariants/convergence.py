"""The invariants of the calm after the storm.

- INV3 no claim without a pod 90 s later
- SUM no waiting pod has claims on two nodes by then
- INV7 every pod for which there has been room for 60 s is bound
- NNN no pod waits with a nomination by an extender for longer than that may stand
- REST what `tests.world.invariants` finds wrong with the objects of the API, where no stranger has had a hand in it
- CACHE all caches are what the API server has
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from benchmarks.simulated.double.resources import Object
from benchmarks.simulated.pod_life import has_ended
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.invariants.together import Placed, why_not_together
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of, short
from tests.simulation.world.hardware import PROFILES, SHARE_GIB
from tests.simulation.world.process import Process
from tests.simulation.world.scheduler import NAME as SCHEDULER
from tests.simulation.world.scheduler import devices_of, pinned_to, profile_of, share_of, sharing_class_of
from tests.simulation.world.server import Server
from tests.simulation.world.site import Site
from tests.world.invariants import violations
from topology.annotations import keys

PATIENCE_SECONDS = 60.0
CLAIM_SECONDS = 90.0
NOMINATION_SECONDS = 6.0
"""Twice what one stands that does not come true."""


def check_claims(server: Server, ownership: Ownership, trace: Trace, now: float) -> None:
    """INV3 and SUM. The claim of a pod that is pinned to the node stays until it comes or is gone."""
    awaited = _awaited(server)
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for node, claim, since in ownership.idle_claims():
        nodes[claim.uid].add(node)
        if now - since > CLAIM_SECONDS and awaited.get(claim.uid) != node:
            trace.violation("INV3", f"{node} still has a claim of {claim.name} ({claim.uid}), {now - since:.0f} s old")
    for uid in sorted(nodes.keys() - ownership.placed.keys()):
        if len(nodes[uid]) > 1:
            trace.violation("SUM", f"{uid} waits, and has claims on {sorted(nodes[uid])}")


def check_waiting(
    server: Server, sites: Sequence[Site], replicas: Sequence[Process], ownership: Ownership, trace: Trace, now: float
) -> None:
    """INV7; where a pod is pinned that has not come, GPUs are kept for it."""
    awaited = _awaited(server).values()
    sites = [site for site in sites if site.name not in awaited]
    rooms = {
        (site.name, profile): room
        for site in sites
        for profile in ("", *PROFILES)
        if (room := _room(site, profile, server, ownership, now)) > 0
    }
    for pod in filter(_waits, server.pods()):
        for site in sites if share_of(pod) and pod["metadata"]["name"] not in server.forbidden else ():
            if _has_room_for_share(pod, site, server, ownership, now):
                trace.violation(
                    "INV7", f"{pod['metadata']['name']} waits for {share_of(pod)} GiB, and {site.name} has them"
                )
                for process in replicas:
                    trace.note(process.name, _view(process, site.name))
    for pod in server.pods():
        if not _waits(pod) or share_of(pod) or pod["metadata"]["name"] in server.forbidden or _is_queued(pod):
            continue
        name, gpus = pod["metadata"]["name"], devices_of(pod)
        trace.count("calm: pods waiting")
        for (node, profile), room in rooms.items():
            if profile == profile_of(pod) and gpus <= room:
                trace.violation(
                    "INV7", f"{name} ({pod['metadata']['uid']}) waits for {gpus} GPUs, and {node} has {room}"
                )
                for process in replicas:
                    trace.note(process.name, _view(process, node))


def standing_nominations(server: Server) -> dict[tuple[str, str], str]:
    """Return the pods, by UID and version, that wait with a nomination by an extender, and the node.

    Not where pods are leaving the node: there it may be preemption's, and is left alone.
    """
    leaving = {pod["spec"].get("nodeName") for pod in server.pods() if "deletionTimestamp" in pod["metadata"]}
    waiting = ((pod["metadata"], _nominated_by_us(pod)) for pod in filter(_waits, server.pods()))
    return {
        (metadata["uid"], metadata["resourceVersion"]): node
        for metadata, node in waiting
        if node and node not in leaving
    }


def check_nominations(server: Server, before: Mapping[tuple[str, str], str], trace: Trace) -> None:
    """NNN."""
    for uid, version in sorted(before.keys() & standing_nominations(server).keys()):
        trace.violation("NNN", f"{uid} waits, and is still nominated for {before[uid, version]}")


def _nominated_by_us(pod: Object) -> str | None:
    """Return the node for which a pod is nominated by an extender; autoscalers would pass over it."""
    if keys.PLANNED in annotations_of(pod):
        return None  # it is sent there, and the nomination stays with it
    node: str | None = pod["status"].get("nominatedNodeName")
    return node if node and pod["metadata"].get("annotations", {}).get(keys.NOMINATED) == node else None


def check_objects(server: Server, ownership: Ownership, trace: Trace) -> None:
    """REST; where a pod is pinned that has not come, claims are not placed."""
    left_out = {*ownership.spoiled, *_awaited(server).values()}
    nodes = [node for node in server.nodes() if node["metadata"]["name"] not in left_out]
    names = {node["metadata"]["name"] for node in nodes}
    pods = [pod for pod in server.pods() if pod["spec"].get("nodeName") in names]
    for _ in nodes:
        trace.count("rest: nodes without strangers")
    for wrong in violations(nodes, pods):
        trace.violation("REST", wrong)


def check_caches(server: Server, replicas: Sequence[Process], trace: Trace) -> None:
    """CACHE."""
    nodes = {(item["metadata"]["name"], item["metadata"]["resourceVersion"]) for item in server.nodes()}
    pods = {(item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for item in server.pods()}
    for process in replicas:
        assert process.extender is not None
        state = process.extender.state
        known_nodes = {(view.name, view.node.metadata.resource_version) for view in state.views.values()}
        known_pods = {(pod.uid, pod.pod.metadata.resource_version) for pod in state.pods}
        for what, known, real in (("nodes", known_nodes, nodes), ("pods", known_pods, pods)):
            if known != real:
                trace.violation("CACHE", f"{process.name} has other {what} than the API server: {sorted(known ^ real)}")


def _view(process: Process, node: str) -> str:
    """Say how a process sees a node."""
    view = process.extender.state.views.get(node) if process.extender else None
    if view is None:
        return f"does not know {node}"
    claims = ", ".join(f"{short(claim.gpu)}→{claim.name} {standing}" for claim, standing in view.claims)
    return f"sees {node} with {view.shape.free.bit_count()} free GPUs, closed: {view.shape.closed}, claims: {claims}"


def _waits(pod: Object) -> bool:
    return (
        pod["spec"]["schedulerName"] == SCHEDULER
        and not pod["spec"].get("nodeName")
        and pod["status"].get("phase") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
        and keys.MIN_BANDWIDTH not in annotations_of(pod)
    )


def _awaited(server: Server) -> dict[str, str]:
    """Return UID → node of the pods that are pinned to one and have not come: nobody can bind some of them."""
    waiting = [pod for pod in server.pods() if not pod["spec"].get("nodeName") and not has_ended(pod)]
    return {pod["metadata"]["uid"]: node for pod in waiting if (node := pinned_to(pod))}


def _is_queued(pod: Object) -> bool:
    """Whether the queue decides when and where it goes; a gang may wait for its members, and others for a gang."""
    return bool(pod["spec"].get("schedulingGates")) or keys.PLANNED in annotations_of(pod)


def _room(site: Site, profile: str, server: Server, ownership: Ownership, now: float) -> int:
    """Return how many whole GPUs, or slices of a profile, nobody has used for long, as far as NodeResourcesFit lets pods in.

    None where a pod has a slice that is gone, and no claim tells of which GPU: it may be of any.
    """
    offered = site.hardware.offered(profile)
    gpus = [
        gpu
        for gpu in offered
        if not ownership.on_silicon(gpu)
        and not site.hardware.users_of(frozenset({gpu}))
        and ownership.silicon_free_since(gpu) <= now - PATIENCE_SECONDS
    ]
    pods = [pod for pod in server.pods() if pod["spec"].get("nodeName") == site.name and not has_ended(pod)]
    requested = sum(devices_of(pod) for pod in pods if profile_of(pod) == profile)
    return 0 if ownership.is_in_doubt(site.name) else min(len(gpus), len(offered) - requested)


def _has_room_for_share(pod: Object, site: Site, server: Server, ownership: Ownership, now: float) -> bool:
    """Return whether some GPU of a node, on which nothing has changed for long, takes the pod's share."""
    wanted = Placed(site.name, None, True, share_of(pod), sharing_class_of(pod))
    on = {gpu: [ownership.placed[uid] for uid in ownership.on_silicon(gpu)] for gpu in site.hardware.offered()}
    shared = len({*site.hardware.sharers, *(gpu for gpu, of in on.items() if any(other.share_gib for other in of))})
    requested = sum(
        share_of(other)
        for other in server.pods()
        if other["spec"].get("nodeName") == site.name and not has_ended(other)
    )
    has_count = wanted.share_gib + requested <= SHARE_GIB * len(on)
    return (
        has_count
        and not ownership.is_in_doubt(site.name)
        and any(
            why_not_together([wanted, *others]) is None
            and {*site.hardware.users_of(frozenset({gpu}))} <= {*ownership.on_silicon(gpu)}
            and (others or shared < ownership.shared_gpus)
            and ownership.silicon_free_since(gpu) <= now - PATIENCE_SECONDS
            for gpu, others in on.items()
        )
    )
