"""What must hold of GPUs whatever happens, checked on objects as the API server has them.

- INV1: no GPU belongs to two live pods, unless each has a share of it: then all are of one class, and no more than its memory.
- INV2: a live pod's GPUs are claimed for it, all of them and no others, on the node that it is bound to and on no other.
- INV4: a pod has as many GPUs as it asks for, container by container, and they are GPUs of its node.
- INV5: whoever was told that a pod is bound finds it bound there, with those GPUs in its annotation.

A pod lives from its binding until its containers have ended. Of one that somebody else has bound all that is known is what its
node reports.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.simulated.pod_life import has_ended
from tests.manifests.rendered import SCHEDULER_NAME
from tests.world.records import record_text
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import Observed, PlacementRecord, decode_ledger, decode_observed, decode_placement
from topology.annotations.status_codec import decode_status
from topology.errors import PayloadError
from topology.request.shares import side_by_side

Json = dict[str, Any]

_placement = cache(decode_placement)
_ledger = cache(decode_ledger)


@dataclass(frozen=True, slots=True)
class Owned:
    """One GPU and the container that has it."""

    node: str
    gpu: str
    pod: str
    """UID."""
    container: str
    memory_gib: int | None = None
    """GiB of a share; `None`: all of it."""
    sharing_class: str = ""


def violations(nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return in words what is wrong with a cluster at rest."""
    live = [pod for pod in pods if is_live(pod)]
    placed, claimed = {owned for pod in live for owned in placements(pod)}, set(claims(nodes))
    return [
        *double_bookings(placed | set(_reports(nodes, live)), memory_of(nodes)),
        *(f"INV2: placed but not claimed: {owned}" for owned in placed - claimed),
        *(f"INV2: claimed but not placed: {owned}" for owned in claimed - placed),
        *_miscounts(live),
        *_strange_gpus(nodes, placed),
    ]


def violations_on_the_way(nodes: Iterable[Json], pods: Iterable[Json]) -> list[str]:
    """Return what no write may ever leave behind: INV1, and INV2 of each live pod on its own node.

    A claim elsewhere, or of a pod that is not bound yet, may be on its way to be used or given up.
    """
    live = [pod for pod in pods if is_live(pod)]
    placed, claimed = {owned for pod in live for owned in placements(pod)}, set(claims(nodes))
    homes = {(owned.node, owned.pod) for owned in placed}
    return [
        *double_bookings(placed, memory_of(nodes)),
        *(f"INV2: placed but not claimed: {owned}" for owned in placed - claimed),
        *(f"INV2: claimed but not placed: {owned}" for owned in claimed - placed if (owned.node, owned.pod) in homes),
    ]


def broken_promises(told: Iterable[Mapping[str, Any]], pods: Sequence[Json]) -> Iterator[str]:
    """Yield INV5's violations among the pods that still exist."""
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    for promise in told:
        pod = by_uid.get(promise["uid"])
        if pod is None:
            continue
        promised = {(promise["node"], gpu) for gpu in promise["gpus"]}
        if promised != {(owned.node, owned.gpu) for owned in placements(pod)}:
            name, found = pod["metadata"]["name"], _annotation(pod, keys.PLACEMENT)
            yield f"INV5: of {name} was told {sorted(promised)}, found on {pod['spec'].get('nodeName')} {found}"


def violations_over_time(events: Iterable[Json], spoiled: Collection[str] = ()) -> list[str]:
    """Return what began to be wrong with some write: INV1, and a live pod's GPU without its claim; linear in the changes.

    Nodes that are `spoiled` are left out: there, somebody else has written what only we may.
    """
    placed: dict[str, frozenset[Owned]] = {}
    by_gpu: defaultdict[str, set[Owned]] = defaultdict(set)
    by_node: defaultdict[str, set[Owned]] = defaultdict(set)
    claimed: dict[str, set[Owned]] = {}
    memory_gib: dict[str, int] = {}
    wrong: list[str] = []
    for event in sorted(events, key=lambda event: int(event["object"]["metadata"]["resourceVersion"])):
        found, is_there = event["object"], event["type"] != "DELETED"
        if found["kind"] == "Node":
            node = found["metadata"]["name"]
            claimed[node] = set(claims([found])) if is_there else set()
            memory_gib |= memory_of([found])
            touched = by_node[node]
        else:
            touched = _place(found, is_live(found) and is_there, placed, by_gpu, by_node)
        ours = [owned for owned in touched if owned.node not in spoiled]
        unclaimed = [owned for owned in ours if owned not in claimed.get(owned.node, ())]
        shared = {other for owned in ours for other in by_gpu[owned.gpu]} if found["kind"] != "Node" else set()
        now = [*double_bookings(shared, memory_gib), *(f"INV2: placed but not claimed: {owned}" for owned in unclaimed)]
        wrong += [f"at {found['metadata']['resourceVersion']}: {what}" for what in now]
    return wrong


def double_bookings(owners: Iterable[Owned], memory_gib: Mapping[str, int]) -> Iterator[str]:
    """Yield INV1's violations; `memory_gib` is GPU → its memory."""
    by_gpu: dict[str, set[Owned]] = defaultdict(set)
    for owned in owners:
        by_gpu[owned.gpu].add(owned)
    for gpu, several in by_gpu.items():
        uids, amounts = {owned.pod for owned in several}, [owned.memory_gib for owned in several]
        if None in amounts:
            if len(uids) > 1:
                yield f"INV1: {gpu} belongs to the pods {sorted(uids)}"
        elif (total := sum(amount or 0 for amount in amounts)) > memory_gib.get(gpu, 0):
            yield f"INV1: {gpu} has {memory_gib.get(gpu, 0)} GiB, and the pods {sorted(uids)} have {total} of it"
        elif len(classes := {owned.sharing_class for owned in several}) > 1:
            yield f"INV1: the classes {sorted(classes)} meet on {gpu}: {sorted(uids)}"


def memory_of(nodes: Iterable[Json]) -> dict[str, int]:
    """Return GPU → GiB that shares may take, as the nodes' agents tell it, else all its memory; unreadable ones tell nothing."""
    found: dict[str, int] = {}
    for node in nodes:
        topology, status = _annotation(node, keys.TOPOLOGY), _annotation(node, keys.STATUS)
        with suppress(PayloadError):
            found |= _memory(topology) if topology else {}
            found |= _shared_memory(status) if status else {}
    return found


@cache
def _memory(text: str) -> dict[str, int]:
    return {gpu.uuid: (gpu.memory_bytes or 0) >> 30 for gpu in decode_topology(text).gpus}


@cache
def _shared_memory(text: str) -> dict[str, int]:
    return {gpu.uuid: gpu.share_gib for gpu in decode_status(text).gpus if gpu.share_gib is not None}


def is_live(pod: Json) -> bool:
    """Whether the pod is bound and its containers may run."""
    return "nodeName" in pod["spec"] and not has_ended(pod)


def placements(pod: Json) -> Iterator[Owned]:
    """Yield what the pod's placement says; nothing when it has none that holds."""
    text = record_text(pod)
    record = _placement(text) if text else PlacementRecord({})
    node, uid = pod["spec"].get("nodeName", ""), pod["metadata"]["uid"]
    if record.memory_gib:
        started = [(each["name"], record.memory_gib.get(each["name"], 0), init) for each, init in _started(pod)]
        for container, gib in side_by_side(started):
            yield Owned(node, record.containers[container][0], uid, container, gib, _class(pod))
        return
    for container, gpus in record.containers.items():
        yield from (Owned(node, gpu, uid, container) for gpu in gpus)


def claims(nodes: Iterable[Json]) -> Iterator[Owned]:
    """Yield what the nodes' ledgers say; one that cannot be read says nothing."""
    for node in nodes:
        text = _annotation(node, keys.LEDGER)
        with suppress(PayloadError):
            for claim in _ledger(text).claims if text else ():
                name = node["metadata"]["name"]
                yield Owned(name, claim.gpu, claim.uid, claim.container, claim.memory_gib, claim.sharing_class)


def _reports(nodes: Iterable[Json], live: Iterable[Json]) -> Iterator[Owned]:
    """Yield what the nodes say of the GPUs that live pods hold; of a pod that has just ended they may still say something."""
    pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in live}
    for node in nodes:
        text, name = _annotation(node, keys.OBSERVED), node["metadata"]["name"]
        observed = decode_observed(text) if text else Observed({})
        for gpu, holder in observed.gpus.items():
            if gpu not in observed.shared and (pod := pods.get((holder.namespace, holder.name))):
                yield Owned(name, gpu, pod["metadata"]["uid"], holder.container)
        for gpu, who in ((gpu, who) for gpu, several in observed.shared.items() for who in several):
            if pod := pods.get((who.namespace, who.name)):
                yield Owned(name, gpu, pod["metadata"]["uid"], who.container, who.parts, _class(pod))


def _miscounts(live: Iterable[Json]) -> Iterator[str]:
    for pod in live:
        text, spec = _annotation(pod, keys.PLACEMENT), pod["spec"]
        if text is None and spec.get("schedulerName") != SCHEDULER_NAME:
            continue
        containers = [*spec.get("initContainers", ()), *spec["containers"]]
        asked = {container["name"]: _gpus(container) for container in containers if _gpus(container)}
        record = _placement(text) if text else PlacementRecord({})
        given = dict(record.memory_gib) or {name: len(gpus) for name, gpus in record.containers.items()}
        if asked != given:
            yield f"INV4: {pod['metadata']['name']} asks for {asked} and has {given}"


def _strange_gpus(nodes: Iterable[Json], placed: Iterable[Owned]) -> Iterator[str]:
    placed = list(placed)
    used = {owned.node for owned in placed}
    texts = {node["metadata"]["name"]: _annotation(node, keys.TOPOLOGY) for node in nodes}
    existing = {name: set(decode_topology(text).devices) for name, text in texts.items() if text and name in used}
    for owned in placed:
        if owned.gpu not in existing.get(owned.node, ()):
            yield f"INV4: no such GPU on its node: {owned}"


def _gpus(container: Json) -> int:
    """Return the GPUs or MIG slices that a container asks for, or the GiB of its share."""
    limits = container.get("resources", {}).get("limits", {})
    slices = sum(int(count) for name, count in limits.items() if name.startswith(keys.MIG_PREFIX))
    return int(limits.get(keys.GPU_RESOURCE, 0) or limits.get(keys.SHARE_RESOURCE, 0)) or slices


def _started(pod: Json) -> Iterator[tuple[Json, bool]]:
    """Yield the containers in the order in which they start, and whether they end before those after them start."""
    yield from ((each, each.get("restartPolicy") != "Always") for each in pod["spec"].get("initContainers", ()))
    yield from ((each, False) for each in pod["spec"]["containers"])


def _class(pod: Json) -> str:
    return _annotation(pod, keys.SHARING_CLASS) or ""


def _annotation(found: Json, key: str) -> str | None:
    text: str | None = found["metadata"].get("annotations", {}).get(key)
    return text


def _place(
    pod: Json,
    lives: bool,
    placed: dict[str, frozenset[Owned]],
    by_gpu: Mapping[str, set[Owned]],
    by_node: Mapping[str, set[Owned]],
) -> set[Owned]:
    """Take in what a pod has now, and return what it did not have before."""
    uid = pod["metadata"]["uid"]
    before, after = placed.get(uid, frozenset()), frozenset(placements(pod) if lives else ())
    if after:
        placed[uid] = after
    else:
        placed.pop(uid, None)
    for owned in before - after:
        by_gpu[owned.gpu].discard(owned)
        by_node[owned.node].discard(owned)
    for owned in after - before:
        by_gpu[owned.gpu].add(owned)
        by_node[owned.node].add(owned)
    return set(after - before)
