"""The API server of one run: the double's store, with the name of whoever writes and an ear for every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count

from benchmarks.simulated.double.api import HttpRequest, Reply, Stream, TextBody, answer
from benchmarks.simulated.double.resources import NODES, PODS, ApiResource, Object
from benchmarks.simulated.double.store import ObjectStore, StoreChange
from tests.simulation.wording import words

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The beginning of virtual time."""
NAMESPACE = "default"

Ear = Callable[[str, StoreChange], None]
"""Is told of every change with its writer."""


class Server:
    """All requests of a run end here; strangers write into the store themselves, under a name."""

    def __init__(self, clock: Callable[[], float], note: Callable[[str, str], None]) -> None:
        numbers = count(1)
        self.store = ObjectStore(
            now=lambda: EPOCH + timedelta(seconds=clock()), new_uid=lambda: f"uid-{next(numbers):03d}"
        )
        self.ears: list[Ear] = []
        self.forbidden: set[str] = set()
        """Names of pods that a policy of somebody else lets nobody bind."""
        self.refused: set[str] = set()
        """Names of pods of which a Binding was refused for good, out of nowhere."""
        self._note = note
        self._writer = "setup"
        self.store.subscribe(self._changed)

    def answer(self, client: str, request: HttpRequest) -> Reply | Stream:
        """Carry out one request."""
        with self.writing(client):
            if self.is_forbidden(request):
                return Reply(403, {"kind": "Status", "message": "denied by a policy", "code": 403})
            told = answer(self.store, request)
            assert not isinstance(told, TextBody), "no extender reads logs"
            return told

    @contextmanager
    def writing(self, client: str) -> Iterator[ObjectStore]:
        """Give the store to whoever writes without requests."""
        before, self._writer = self._writer, client
        try:
            yield self.store
        finally:
            self._writer = before

    def is_forbidden(self, request: HttpRequest) -> bool:
        """Whether the policy refuses the request."""
        return _bound_by(request) in self.forbidden

    def refuse(self, request: HttpRequest) -> None:
        """Take note of a request that was refused for good, out of nowhere."""
        if name := _bound_by(request):
            self.refused.add(name)

    def pods(self) -> tuple[Object, ...]:
        """Return all pods as they are now."""
        return self.store.list(PODS).items

    def pod(self, uid: str) -> Object | None:
        """Return a pod as it is now."""
        return next((pod for pod in self.pods() if pod["metadata"]["uid"] == uid), None)

    def nodes(self) -> tuple[Object, ...]:
        """Return all nodes as they are now."""
        return self.store.list(NODES).items

    def find(self, resource: ApiResource, name: str) -> Object | None:
        """Return one object by name."""
        found = self.store.list(resource).items
        return next((item for item in found if item["metadata"]["name"] == name), None)

    def _changed(self) -> None:
        change = next(iter(self.store.changes_since(self.store.resource_version - 1)))
        self._note(self._writer, words(change))
        for ear in self.ears:
            ear(self._writer, change)


def _bound_by(request: HttpRequest) -> str:
    """Return the name of the pod that a request binds; empty: it binds none."""
    return request.path.split("/")[-2] if request.path.endswith("/binding") else ""
