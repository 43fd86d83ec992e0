"""Every version of every node and pod while a scenario runs, in the API server's order, and what was ever wrong in it.

At rest a double allocation may have come and gone unseen. Resource versions order the changes of all objects, so what was true
after each single write can be told afterwards, exactly.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.cluster.api import Api, Json
from tests.cluster.objects import ALL_PODS, NODES
from tests.world.invariants import violations_over_time

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

    def changes(self) -> list[Json]:
        """Return every event in the API server's order."""
        return sorted(self._events, key=lambda event: int(event["object"]["metadata"]["resourceVersion"]))

    def violations(self) -> list[str]:
        """Return what was ever wrong."""
        return violations_over_time(self._events)


@contextmanager
def recorded(api: Api, collections: Sequence[str] = (NODES, ALL_PODS)) -> Iterator[History]:
    """Record for the length of a `with` block; begin it while the first collection is empty."""
    history, over = History(), threading.Event()
    assert not api.list(collections[0]), "the recording begins with an empty cluster"
    version = api.get(collections[-1])["metadata"]["resourceVersion"]
    with ThreadPoolExecutor() as threads:
        following = [threads.submit(history.follow, api, path, version, over) for path in collections]
        try:
            yield history
        finally:
            over.set()
        for future in following:
            future.result()
