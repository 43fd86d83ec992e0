"""Kubernetes objects under one resourceVersion that only grows, with the history that watches tell.

No I/O, and clock and UIDs come from outside: the same calls give the same bytes. Objects that go in and come out
are shared, so nobody changes them in place. Not safe for threads.
"""

from __future__ import annotations

import base64
import json
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.simulated.double import rules
from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NAMESPACES, PODS, RESOURCES, ApiResource, Object
from benchmarks.simulated.double.selectors import Selector, everything
from benchmarks.simulated.double.status import already_exists, bad_request, expired, not_found

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for objects of the cluster."""


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One write: what stood before and after it, `None` for nothing."""

    resource: ApiResource
    key: Key
    before: Object | None
    after: Object | None
    resource_version: int


@dataclass(frozen=True, slots=True)
class StorePage:
    """A part of a list, as of one resourceVersion; `token` asks for the next one and is empty at the end."""

    items: tuple[Object, ...]
    resource_version: int
    token: str = ""
    remaining: int = 0


class ObjectStore:
    """All objects of one cluster."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        history_limit: int = 200_000,
        kinds: Iterable[ApiResource] = (),
    ) -> None:
        """Start with two namespaces, `default` and `kube-system`; keep at least the last `history_limit` changes.

        `kinds` are served as well as `RESOURCES`.
        """
        self.resources = {(kind.root, kind.plural): kind for kind in (*RESOURCES, *kinds)}
        """By root and plural of their paths."""
        self._now = now
        self._new_uid = new_uid
        self._history_limit = history_limit
        self._objects: dict[ApiResource, dict[Key, Object]] = {}
        self._ordered: tuple[ApiResource, int, list[Key]] = NAMESPACES, 0, []
        """Of the last list, the version and all keys in order: most likely the next page is asked for."""
        self._history: list[StoreChange] = []
        self._compacted = 0
        self._listeners: set[Callable[[], None]] = set()
        for name in ("default", "kube-system"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    @property
    def resource_version(self) -> int:
        """The version of the newest write."""
        return self._compacted + len(self._history)

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object:
        """Return one object as it is now, or refuse with 404."""
        try:
            return self._objects[resource][namespace, name]
        except KeyError:
            raise not_found(resource.plural, name) from None

    def list(
        self,
        resource: ApiResource,
        namespace: str = "",
        selected: Selector = everything,
        *,
        limit: int = 0,
        token: str = "",
    ) -> StorePage:
        """Return the selected objects in order of their keys, at most `limit` of them (0: all).

        With the `token` of the page before, the list goes on as it was at the version of its first page. It is refused
        with 410 when that was compacted away. An empty `namespace` means all of them.
        """
        version, start = _decode_token(token) if token else (self.resource_version, ("", ""))
        if version < self._compacted:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        objects = self._objects_at(resource, version)
        if self._ordered[:2] != (resource, version):
            self._ordered = resource, version, sorted(objects)
        keys = self._ordered[2][bisect_right(self._ordered[2], start) :]
        if namespace or selected is not everything:
            keys = [key for key in keys if namespace in ("", key[0]) and selected(objects[key])]
        shown = keys[:limit] if limit else keys
        remaining = len(keys) - len(shown)
        return StorePage(
            tuple(objects[key] for key in shown),
            version,
            _encode_token(version, shown[-1]) if remaining else "",
            remaining,
        )

    def create(self, resource: ApiResource, namespace: str, new: Object, *, dry_run: bool = False) -> Object:
        """Store a new object and return it with its identity."""
        metadata = new.get("metadata") or {}
        uid = self._new_uid()
        name = metadata.get("name") or (metadata.get("generateName") or "") + uid[:8]
        if resource.namespaced:
            self.get(NAMESPACES, "", namespace)
        if (namespace, name) in self._objects.get(resource, {}):
            raise already_exists(resource.plural, name)
        identity = {"name": name, "uid": uid, "creationTimestamp": _timestamp(self._now())}
        if resource.namespaced:
            identity["namespace"] = namespace
        if resource is PODS:
            identity["generation"] = 1
        metadata = {key: value for key, value in metadata.items() if key not in _SERVER_METADATA}
        typed = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            **new,
            "metadata": metadata | identity,
        }
        return self._commit(resource, None, rules.admit_create(resource, typed), dry_run=dry_run)

    def modify(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Replace an object by what `change` makes of it.

        A `uid` or `resourceVersion` in the result is a precondition. A change that changes nothing writes
        nothing: the resourceVersion stays.
        """
        old = self.get(resource, namespace, name)
        new = change(old)
        wanted = new.get("metadata") or {}
        if wanted.get("name", name) != name or wanted.get("namespace", namespace) != namespace:
            raise bad_request("the name or namespace of the object does not match the URL")
        rules.check_identity(resource, old, wanted)
        kept = {key: old["metadata"][key] for key in _SERVER_METADATA if key in old["metadata"]}
        fresh = {key: value for key, value in wanted.items() if key not in _SERVER_METADATA}
        typed = {**new, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": fresh | kept}
        return self._commit(resource, old, rules.admit_update(resource, old, typed, subresource), dry_run=dry_run)

    def bind(self, namespace: str, name: str, binding: Object, *, dry_run: bool = False) -> Object:
        """Put a pod on a node, with the Binding's annotations, in one write; 409 when it may not go there."""
        pod = self.get(PODS, namespace, name)
        bound = rules.bind(pod, binding, _timestamp(self._now()))
        return self._commit(PODS, pod, bound, dry_run=dry_run)

    def delete(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        *,
        grace_period_seconds: int | None = None,
        preconditions: Object | None = None,
        dry_run: bool = False,
    ) -> tuple[Object, bool]:
        """Delete an object, or ask the kubelet to: return it, and whether it is gone.

        A pod on a node only gets its deletionTimestamp; it goes with a second delete of grace period 0. Every
        pod that goes is seen with a deletionTimestamp first.
        """
        old = self.get(resource, namespace, name)
        rules.check_preconditions(resource.plural, old, preconditions or {})
        if resource is PODS:
            grace = rules.grace_period_seconds(old, grace_period_seconds)
            if grace is None:
                return old, False
            old = self._commit(resource, old, self._marked(old, grace), dry_run=dry_run)
            if grace or dry_run:
                return old, False
        return self._commit(resource, old, None, dry_run=dry_run), True

    def changes_since(self, version: int) -> Iterator[StoreChange]:
        """Return the writes after `version` in order, or refuse with 410 when some are compacted away."""
        if version < self._compacted:
            raise expired(f"too old resource version: {version} ({self._compacted})")
        return iter(self._history[version - self._compacted :])

    def compact(self, keep: int = 0) -> None:
        """Forget all but the last `keep` writes: who asks for older ones gets 410."""
        surplus = max(0, len(self._history) - keep)
        del self._history[:surplus]
        self._compacted += surplus

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every write; the returned function ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _marked(self, pod: Object, grace_seconds: int) -> Object:
        """Return `pod` to be gone `grace_seconds` after it was first deleted."""
        metadata = pod["metadata"]
        asked, generation = self._now(), metadata["generation"] + 1
        if "deletionTimestamp" in metadata:
            deadline = datetime.fromisoformat(metadata["deletionTimestamp"])
            asked = deadline - timedelta(seconds=metadata["deletionGracePeriodSeconds"])
            generation = metadata["generation"]
        marks = {
            "deletionTimestamp": _timestamp(asked + timedelta(seconds=grace_seconds)),
            "deletionGracePeriodSeconds": grace_seconds,
            "generation": generation,
        }
        return {**pod, "metadata": metadata | marks}

    def _commit(self, resource: ApiResource, old: Object | None, new: Object | None, *, dry_run: bool) -> Object:
        shown = new if new is not None else old
        assert shown is not None
        if dry_run or new == old:
            return shown
        version = self.resource_version + 1
        metadata = shown["metadata"] | {"resourceVersion": str(version)}
        shown = {**shown, "metadata": metadata}
        key = metadata.get("namespace", ""), metadata["name"]
        objects = self._objects.setdefault(resource, {})
        if new is None:
            del objects[key]
        else:
            objects[key] = shown
        self._history.append(StoreChange(resource, key, old, None if new is None else shown, version))
        if len(self._history) > 2 * self._history_limit:
            self.compact(self._history_limit)
        for listener in tuple(self._listeners):
            listener()
        return shown

    def _objects_at(self, resource: ApiResource, version: int) -> dict[Key, Object]:
        objects = self._objects.get(resource, {})
        undone = [change for change in self.changes_since(version) if change.resource is resource]
        if undone:
            objects = dict(objects)
        for change in reversed(undone):
            if change.before is None:
                del objects[change.key]
            else:
                objects[change.key] = change.before
        return objects


class Watch:
    """One reader's place in the history of a resource, seen through a selector."""

    def __init__(
        self, store: ObjectStore, resource: ApiResource, namespace: str, selected: Selector, since: int
    ) -> None:
        """Start after version `since`; 0 first tells all objects as added."""
        self._store = store
        self._resource = resource
        self._selected = selected
        self._namespace = namespace
        self._from_start = since == 0
        self._bookmarked = since
        self.resource_version = since

    def poll(self) -> Iterable[tuple[str, Object]]:
        """Return (type, object) of what is new, or refuse with 410 when it was compacted away."""
        if self._from_start:
            self._from_start = False
            page = self._store.list(self._resource, self._namespace, self._selected)
            self.resource_version = page.resource_version
            return [("ADDED", item) for item in page.items]
        changes = self._store.changes_since(self.resource_version)
        told = [event for change in changes if (event := self._tell(change))]
        self.resource_version = max(self.resource_version, self._store.resource_version)
        return told

    def bookmark(self) -> Iterable[tuple[str, Object]]:
        """Return a BOOKMARK event, unless nobody has written anything since the last one."""
        if self.resource_version == self._bookmarked:
            return []
        metadata: Object = {"resourceVersion": str(self.resource_version)}
        if self._bookmarked == 0:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        self._bookmarked = self.resource_version
        kind, api_version = self._resource.kind, self._resource.api_version
        return [("BOOKMARK", {"kind": kind, "apiVersion": api_version, "metadata": metadata, **self._resource.empty})]

    def _tell(self, change: StoreChange) -> tuple[str, Object] | None:
        if change.resource is not self._resource or self._namespace not in ("", change.key[0]):
            return None
        before = change.before if change.before and self._selected(change.before) else None
        after = change.after if change.after and self._selected(change.after) else None
        if after is not None:
            return ("MODIFIED" if before is not None else "ADDED"), after
        if before is None:
            return None
        # An object that left, or left the selection, is shown as it was, at the version of the change.
        return "DELETED", merge_patch(before, {"metadata": {"resourceVersion": str(change.resource_version)}})


_SERVER_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields",
)  # fmt: skip
"""What no request sets."""


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _encode_token(version: int, last: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *last]).encode()).decode()


def _decode_token(token: str) -> tuple[int, Key]:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise bad_request(f"continue key is not valid: {error}") from error
    return int(version), (str(namespace), str(name))
