"""Every version of every node and pod while a scenario runs, in the API server's order, and what was ever wrong in it.

At rest a double allocation may have come and gone unseen. Resource versions order the changes of all objects, so what was true
after each single write can be told afterwards, exactly.
"""

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.cluster.api import Api, Json
from tests.cluster.invariants import ALL_PODS, Owned, claims, double_bookings, is_live, placements
from tests.cluster.objects import NODES

_STREAM_SECONDS = 1
"""After this long the server ends a watch, and the recording notices that it is over."""


class History:
    """The watch events of nodes and pods."""

    def __init__(self) -> None:
        self._events: list[Json] = []

    def follow(self, api: Api, path: str, version: str, over: threading.Event) -> None:
        """Add what happens in a collection after `version`, up to what had happened when `over` was set."""
        last_time = False
        while not last_time:
            last_time = over.is_set()
            for event in api.watch(path, _STREAM_SECONDS, resourceVersion=version):
                assert event["type"] != "ERROR", event
                version = event["object"]["metadata"]["resourceVersion"]
                self._events.append(event)

    def objects(self, kind: str) -> list[Json]:
        """Return every version of every object of a kind."""
        return [event["object"] for event in self._events if event["object"]["kind"] == kind]

    def violations(self) -> list[str]:
        """Return what was ever wrong."""
        return violations_over_time(self._events)


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


@contextmanager
def recorded(api: Api) -> Iterator[History]:
    """Record for the length of a `with` block; begin it while there are no nodes and no pods."""
    history, over = History(), threading.Event()
    assert not api.list(NODES), "the recording begins with an empty cluster"
    version = api.get(ALL_PODS)["metadata"]["resourceVersion"]
    with ThreadPoolExecutor() as threads:
        following = [threads.submit(history.follow, api, path, version, over) for path in (NODES, ALL_PODS)]
        try:
            yield history
        finally:
            over.set()
        for future in following:
            future.result()
