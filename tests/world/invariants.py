"""What must hold of GPUs whatever happens, checked on objects as the API server has them.

- INV1: no GPU belongs to two live pods.
- INV2: a live pod's GPUs are claimed for it, all of them and no others, on the node that it is bound to and on no other.
- INV4: a pod has as many GPUs as it asks for, container by container, and they are GPUs of its node.
- INV5: whoever was told that a pod is bound finds it bound there, with those GPUs in its annotation.

A pod lives from its binding until its containers have ended. Of one that somebody else has bound all that is known is what its
node reports.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.cluster.api import Api, Json
from tests.cluster.installation import SCHEDULER_NAME
from tests.cluster.objects import GPU, NODES
from tests.cluster.polling import TimedOut, eventually
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import decode_ledger, decode_observed, decode_placement
from topology.errors import PayloadError

ALL_PODS = "/api/v1/pods"

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


def assert_invariants(api: Api, told: Sequence[Mapping[str, Any]] = ()) -> None:
    """Fail unless all holds, or comes to hold within the seconds that releases and reports take.

    Args:
        api: where to look.
        told: what callers of bind were told when it went well: `uid`, `node` and `gpus` of each.

    """

    def nothing_is_wrong() -> bool:
        wrong[:] = [*violations(api.list(NODES), api.list(ALL_PODS)), *broken_promises(told, api.list(ALL_PODS))]
        return not wrong

    wrong: list[str] = []
    try:
        eventually(nothing_is_wrong)
    except TimedOut:
        raise AssertionError("\n".join(wrong)) from None


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


def double_bookings(owners: Iterable[Owned]) -> Iterator[str]:
    """Yield INV1's violations."""
    pods: dict[str, set[str]] = defaultdict(set)
    for owned in owners:
        pods[owned.gpu].add(owned.pod)
    yield from (f"INV1: {gpu} belongs to the pods {sorted(uids)}" for gpu, uids in pods.items() if len(uids) > 1)


def is_live(pod: Json) -> bool:
    """Whether the pod is bound and its containers may run."""
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


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
    return int(container.get("resources", {}).get("limits", {}).get(GPU, 0))


def _annotation(found: Json, key: str) -> str | None:
    text: str | None = found["metadata"].get("annotations", {}).get(key)
    return text
