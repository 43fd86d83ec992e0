"""What must hold of GPUs whatever happens, checked on objects as the API server has them.

- INV1: no GPU belongs to two live pods.
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
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import decode_ledger, decode_observed, decode_placement
from topology.errors import PayloadError

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


def violations(nodes: Sequence[Json], pods: Sequence[Json]) -> list[str]:
    """Return in words what is wrong with a cluster at rest."""
    live = [pod for pod in pods if is_live(pod)]
    placed, claimed = {owned for pod in live for owned in placements(pod)}, set(claims(nodes))
    return [
        *double_bookings(placed | set(_reports(nodes, live))),
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
        *double_bookings(placed),
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
    wrong: list[str] = []
    for event in sorted(events, key=lambda event: int(event["object"]["metadata"]["resourceVersion"])):
        found, is_there = event["object"], event["type"] != "DELETED"
        if found["kind"] == "Node":
            node = found["metadata"]["name"]
            claimed[node] = set(claims([found])) if is_there else set()
            touched = by_node[node]
        else:
            touched = _place(found, is_live(found) and is_there, placed, by_gpu, by_node)
        ours = [owned for owned in touched if owned.node not in spoiled]
        unclaimed = [owned for owned in ours if owned not in claimed.get(owned.node, ())]
        shared = {other for owned in ours for other in by_gpu[owned.gpu]} if found["kind"] != "Node" else set()
        now = [*double_bookings(shared), *(f"INV2: placed but not claimed: {owned}" for owned in unclaimed)]
        wrong += [f"at {found['metadata']['resourceVersion']}: {what}" for what in now]
    return wrong


def double_bookings(owners: Iterable[Owned]) -> Iterator[str]:
    """Yield INV1's violations."""
    pods: dict[str, set[str]] = defaultdict(set)
    for owned in owners:
        pods[owned.gpu].add(owned.pod)
    yield from (f"INV1: {gpu} belongs to the pods {sorted(uids)}" for gpu, uids in pods.items() if len(uids) > 1)


def is_live(pod: Json) -> bool:
    """Whether the pod is bound and its containers may run."""
    return "nodeName" in pod["spec"] and not has_ended(pod)


def placements(pod: Json) -> Iterator[Owned]:
    """Yield what the pod's placement says; nothing when it has none."""
    text = _annotation(pod, keys.PLACEMENT)
    for container, gpus in _placement(text).containers.items() if text else ():
        yield from (Owned(pod["spec"].get("nodeName", ""), gpu, pod["metadata"]["uid"], container) for gpu in gpus)


def claims(nodes: Iterable[Json]) -> Iterator[Owned]:
    """Yield what the nodes' ledgers say; one that cannot be read says nothing."""
    for node in nodes:
        text = _annotation(node, keys.LEDGER)
        with suppress(PayloadError):
            for claim in _ledger(text).claims if text else ():
                yield Owned(node["metadata"]["name"], claim.gpu, claim.uid, claim.container)


def _reports(nodes: Iterable[Json], live: Iterable[Json]) -> Iterator[Owned]:
    """Yield what the nodes say of the GPUs that live pods hold; of a pod that has just ended they may still say something."""
    uids = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod["metadata"]["uid"] for pod in live}
    for node in nodes:
        text = _annotation(node, keys.OBSERVED)
        for gpu, holder in decode_observed(text).gpus.items() if text else ():
            if uid := uids.get((holder.namespace, holder.name)):
                yield Owned(node["metadata"]["name"], gpu, uid, holder.container)


def _miscounts(live: Iterable[Json]) -> Iterator[str]:
    for pod in live:
        text, spec = _annotation(pod, keys.PLACEMENT), pod["spec"]
        if text is None and spec.get("schedulerName") != SCHEDULER_NAME:
            continue
        containers = [*spec.get("initContainers", ()), *spec["containers"]]
        asked = {container["name"]: _gpus(container) for container in containers if _gpus(container)}
        given = {name: len(gpus) for name, gpus in _placement(text).containers.items()} if text else {}
        if asked != given:
            yield f"INV4: {pod['metadata']['name']} asks for {asked} and has {given}"


def _strange_gpus(nodes: Iterable[Json], placed: Iterable[Owned]) -> Iterator[str]:
    placed = list(placed)
    used = {owned.node for owned in placed}
    texts = {node["metadata"]["name"]: _annotation(node, keys.TOPOLOGY) for node in nodes}
    existing = {
        name: {gpu.uuid for gpu in decode_topology(text).gpus} for name, text in texts.items() if text and name in used
    }
    for owned in placed:
        if owned.gpu not in existing.get(owned.node, ()):
            yield f"INV4: no such GPU on its node: {owned}"


def _gpus(container: Json) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(keys.GPU_RESOURCE, 0))


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
