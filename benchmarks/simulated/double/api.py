"""What each request of the Kubernetes API means to an `ObjectStore`: paths, verbs, bodies, refusals; no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks.simulated.double.eviction import evict
from benchmarks.simulated.double.patch import json_patch, merge_patch, strategic_merge_patch
from benchmarks.simulated.double.resources import POD_LOG, PODS, ApiResource, Object
from benchmarks.simulated.double.selectors import Selector, selector
from benchmarks.simulated.double.status import StatusError, bad_request, success, unsupported_patch
from benchmarks.simulated.double.store import ObjectStore, Watch

DEFAULT_WATCH_SECONDS = 1800.0
"""How long a watch without a time of its own lasts at least (kube-apiserver `--min-request-timeout`)."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request, read whole."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with one JSON document."""

    code: int
    body: Object


@dataclass(frozen=True, slots=True)
class TextBody:
    """An answer that is no JSON: a log."""

    body: str


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on: the lines of a watch."""

    watch: Watch
    bookmarks: bool
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class _Target:
    resource: ApiResource
    namespace: str
    name: str
    subresource: str


def answer(store: ObjectStore, request: HttpRequest) -> Reply | TextBody | Stream:
    """Carry out one request; a refusal is a reply like any other."""
    try:
        target = _target(store, request.path)
        if target.name:
            return _on_object(store, target, request)
        return _on_collection(store, target, request)
    except StatusError as error:
        return Reply(error.code, error.status)


def _target(store: ObjectStore, path: str) -> _Target:
    match [part for part in path.split("/") if part]:
        case ["api", version, *rest]:
            root = f"api/{version}"
        case ["apis", group, version, *rest]:
            root = f"apis/{group}/{version}"
        case _:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *beyond = [*rest, "", "", ""][: max(3, len(rest))]
    resource = store.resources.get((root, plural))
    if resource is None or beyond or subresource not in _SUBRESOURCES:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    return _Target(resource, namespace, name, subresource)


_SUBRESOURCES = ("", "status", "binding", "eviction", "log")


def _on_collection(store: ObjectStore, target: _Target, request: HttpRequest) -> Reply | Stream:
    query = request.query
    if request.method == "POST":
        created = store.create(target.resource, target.namespace, _json(request), dry_run=_dry_run(request))
        return Reply(201, created)
    if request.method != "GET":
        raise _method_not_allowed()
    selected = _selector(target.resource, query)
    if query.get("watch") in ("true", "1"):
        since = _integer(query, "resourceVersion")
        watch = Watch(store, target.resource, target.namespace, selected, since)
        timeout_seconds = float(_integer(query, "timeoutSeconds") or DEFAULT_WATCH_SECONDS)
        return Stream(watch, query.get("allowWatchBookmarks") in ("true", "1"), timeout_seconds)
    page = store.list(
        target.resource,
        target.namespace,
        selected,
        limit=_integer(query, "limit"),
        token=query.get("continue", ""),
    )
    metadata: Object = {"resourceVersion": str(page.resource_version)}
    if page.token:
        metadata |= {"continue": page.token, "remainingItemCount": page.remaining}
    kind = f"{target.resource.kind}List"
    items = [{key: item[key] for key in item if key not in ("kind", "apiVersion")} for item in page.items]
    return Reply(200, {"kind": kind, "apiVersion": target.resource.api_version, "metadata": metadata, "items": items})


def _on_object(store: ObjectStore, target: _Target, request: HttpRequest) -> Reply | TextBody:
    resource, place = target.resource, (target.resource, target.namespace, target.name)
    if target.subresource == "binding":
        if resource is not PODS or request.method != "POST":
            raise _method_not_allowed()
        return _bind(store, target, request)
    if target.subresource == "eviction":
        if resource is not PODS or request.method != "POST":
            raise _method_not_allowed()
        evicted = evict(store, target.namespace, target.name, _json(request), dry_run=_dry_run(request))
        return Reply(201, evicted)
    if target.subresource == "log":
        if resource is not PODS or request.method != "GET":
            raise _method_not_allowed()
        return TextBody((store.get(*place)["metadata"].get("annotations") or {}).get(POD_LOG, ""))
    match request.method:
        case "GET":
            return Reply(200, store.get(*place))
        case "PUT" | "PATCH":
            change = _replacement(request) if request.method == "PUT" else _patch(request)
            return Reply(200, store.modify(*place, change, subresource=target.subresource, dry_run=_dry_run(request)))
        case "DELETE" if not target.subresource:
            return _delete(store, target, request)
    raise _method_not_allowed()


def _bind(store: ObjectStore, target: _Target, request: HttpRequest) -> Reply:
    binding = _json(request)
    if (binding.get("metadata") or {}).get("name", target.name) != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    bound = store.bind(target.namespace, target.name, binding, dry_run=_dry_run(request))
    return Reply(201, success("pods/binding", target.name, bound["metadata"]["uid"], code=201))


def _delete(store: ObjectStore, target: _Target, request: HttpRequest) -> Reply:
    options = _json(request) if request.body else {}
    grace = options.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in request.query:
        grace = _integer(request.query, "gracePeriodSeconds")
    item, gone = store.delete(
        target.resource,
        target.namespace,
        target.name,
        grace_period_seconds=grace,
        preconditions=options.get("preconditions"),
        dry_run=_dry_run(request) or options.get("dryRun") == ["All"],
    )
    if gone and target.resource is not PODS:
        return Reply(200, success(target.resource.plural, target.name, item["metadata"]["uid"]))
    return Reply(200, item)


def _replacement(request: HttpRequest) -> Callable[[Object], Object]:
    body = _json(request)
    return lambda _: body


def _patch(request: HttpRequest) -> Callable[[Object], Object]:
    match request.content_type:
        case "application/merge-patch+json":
            fields = _json(request)
            return lambda old: merge_patch(old, fields)
        case "application/strategic-merge-patch+json":
            fields = _json(request)
            return lambda old: strategic_merge_patch(old, fields)
        case "application/json-patch+json":
            operations = _decode(request.body)
            return lambda old: json_patch(old, operations)
    raise unsupported_patch(request.content_type)


def _selector(resource: ApiResource, query: Mapping[str, str]) -> Selector:
    return selector(query.get("labelSelector", ""), query.get("fieldSelector", ""), resource.fields)


def _dry_run(request: HttpRequest) -> bool:
    return request.query.get("dryRun") == "All"


def _integer(query: Mapping[str, str], key: str) -> int:
    text = query.get(key) or "0"
    if not (text.isascii() and text.isdecimal()):
        raise bad_request(f"{key}: not a number: {text}")
    return int(text)


def _json(request: HttpRequest) -> Object:
    body = _decode(request.body)
    if not isinstance(body, dict):
        raise bad_request("the body is not a JSON object")
    return body


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error


def _method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
