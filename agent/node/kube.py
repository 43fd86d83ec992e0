"""Our own Node through the Kubernetes API; the only module that imports `kubernetes`.

The client's transport and credentials are used as they are, but not its model classes. A Node is read as plain JSON,
which keeps the agent small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTResponse
from kubernetes.config import load_incluster_config, load_kube_config

from agent.errors import ApiError
from agent.node.condition import GpuCondition
from agent.node.events import NAMESPACE
from agent.node.watch import NodeVersion
from topology.annotations import keys
from topology.annotations.pauses import why_paused

FIELD_MANAGER: Final = "gputopo-agent"
_ANNOTATIONS: Final = "/metadata/annotations"
_WATCH_SECONDS: Final = 300
_JSON: Final = "application/json"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
"""Merges conditions by their type, so that those of others are not touched, whatever they are by then."""
_MERGE_PATCH: Final = "application/merge-patch+json"
_EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
_SILENCE_SECONDS: Final = 90.0
"""A watch that says nothing for longer is dead: the API server sends a bookmark every minute or so."""
_MAX_REASON: Final = 256
"""Characters of the server's words."""
_NEWS: Final = frozenset({"ADDED", "MODIFIED"})


class NodePort(Protocol):
    """The annotations of one node; both raise `ApiError`."""

    def read(self) -> Mapping[str, str]:
        """Return all annotations."""
        ...

    def write(self, annotations: Mapping[str, str]) -> Mapping[str, str]:
        """Set these annotations, leave the others alone, and return what all of them are then.

        Nothing is written when the status is another one than `read` or `write` returned last. A write that nobody waits for
        any more may still be under way, and must not undo what was written after it.
        """
        ...


class KubernetesNode:
    """One Node object, reached as the pod's service account, or as whom a kubeconfig names."""

    def __init__(self, name: str, kubeconfig: Path | None, context: str | None, timeout_seconds: float) -> None:
        """Read the credentials; raises `ApiError` when there are none."""
        configuration = Configuration()
        try:
            if kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                load_kube_config(  # type: ignore[no-untyped-call]
                    str(kubeconfig), context, client_configuration=configuration, persist_config=False
                )
        except Exception as error:  # the library lets out whatever it meets in a file that is none
            raise ApiError(0, f"no credentials: {error}") from error
        configuration.retries = False  # the publication knows when to try again
        self._client = ApiClient(configuration)
        self._client.user_agent = FIELD_MANAGER
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._known: Mapping[str, str] = {}
        self._uid = name
        """The kubelet's way to name a node in events, until we have read ours."""
        self.condition: GpuCondition | None = None
        """See `agent.node.condition.ConditionPort`."""

    def read(self) -> Mapping[str, str]:
        """See `NodePort`."""
        self._known = self._call("GET", [])
        return self._known

    def write(self, annotations: Mapping[str, str]) -> Mapping[str, str]:
        """See `NodePort`; a JSON Patch, which never creates a node that is gone."""
        self._known = self._call("PATCH", changes(self._known, annotations))
        return self._known

    def write_condition(self, fields: dict[str, Any]) -> None:
        """See `agent.node.condition.ConditionPort`."""
        self._ask("PATCH", "/status", {"status": {"conditions": [fields]}}, _STRATEGIC_MERGE_PATCH)

    def post_event(self, body: dict[str, Any]) -> None:
        """See `agent.node.events.EventPort`."""
        about = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}
        self._say("POST", _EVENTS, {**body, "involvedObject": about}, _JSON)

    def count_event(self, name: str, fields: dict[str, Any]) -> None:
        """See `agent.node.events.EventPort`."""
        self._say("PATCH", f"{_EVENTS}/{quote(name, safe='')}", fields, _MERGE_PATCH)

    def follow(self, seconds: int = _WATCH_SECONDS) -> Iterator[NodeVersion]:
        """Yield the node as it is and whenever it changes, for so long; raises `ApiError`."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self._name}",
            "resourceVersion": "0",  # from the server's cache: each watch begins with what that has
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        try:
            stream = self._send("GET", "/api/v1/nodes", list(query.items()), read_seconds=_SILENCE_SECONDS).response
            try:
                yield from (_version(event["object"]) for event in map(_event, stream) if event.get("type") in _NEWS)
            finally:
                stream.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, _first_line(error)) from error

    def _call(self, method: str, body: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
        return _annotations(self._ask(method, "", body, _JSON_PATCH))

    def _ask(
        self, method: str, subresource: str, body: Sequence[Mapping[str, Any]] | Mapping[str, Any], content_type: str
    ) -> Any:
        """Return our Node as the API server answers."""
        query = [("fieldManager", FIELD_MANAGER)] if body else []
        path = f"/api/v1/nodes/{quote(self._name, safe='')}{subresource}"
        try:
            response = self._send(method, path, query, body, content_type=content_type)
            node = _document(response.read())  # type: ignore[no-untyped-call]
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, _first_line(error)) from error
        _annotations(node)
        self._uid = str(node["metadata"].get("uid") or self._name)
        self.condition = _condition(node)
        return node

    def _say(self, method: str, path: str, body: dict[str, Any], content_type: str) -> None:
        try:
            self._send(method, path, [], body, content_type=content_type).read()  # type: ignore[no-untyped-call]
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, _first_line(error)) from error

    def _send(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: Sequence[Mapping[str, Any]] | Mapping[str, Any] = (),
        *,
        content_type: str = _JSON_PATCH,
        read_seconds: float | None = None,
    ) -> RESTResponse:
        timeout = self._timeout_seconds, read_seconds or self._timeout_seconds
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=query,
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body or None,
                auth_settings=["BearerToken"],
            )
            response = self._client.call_api(*request, _request_timeout=timeout)
        except ApiException as error:
            raise ApiError(error.status or 0, _first_line(error)) from error
        except ValueError as error:  # of a token that is no text, or none that can be sent
            raise ApiError(0, _first_line(error)) from error
        if not 200 <= response.status <= 299:
            raise ApiError(response.status, _reason(response.read()))  # type: ignore[no-untyped-call]
        return response


def changes(known: Mapping[str, str], annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the JSON Patch that sets annotations of a node whose status is as in `known`.

    A test for null holds for what is not there; without any annotation there is not even a place to put one.
    """
    if not known:
        return [
            {"op": "test", "path": _ANNOTATIONS, "value": None},
            {"op": "add", "path": _ANNOTATIONS, "value": dict(annotations)},
        ]
    return [
        {"op": "test", "path": pointer(keys.STATUS), "value": known.get(keys.STATUS)},
        *({"op": "add", "path": pointer(key), "value": text} for key, text in annotations.items()),
    ]


def pointer(key: str) -> str:
    """Return the JSON Pointer of an annotation."""
    return f"{_ANNOTATIONS}/{key.replace('~', '~0').replace('/', '~1')}"


def _document(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:  # whoever may write to the node may nest its managed fields at will
        raise ApiError(200, "the answer is no JSON that can be read") from error


def _event(line: bytes) -> Mapping[str, Any]:
    """Return an event of a watch."""
    event = _document(line)
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ApiError(200, "the line is no event of a watch")
    if not isinstance(event.get("type"), str):
        raise ApiError(200, "the line is no event of a watch")
    if event["type"] == "ERROR":
        code = event["object"].get("code")
        raise ApiError(code if isinstance(code, int) else 0, str(event["object"].get("message"))[:_MAX_REASON])
    return event


def _version(node: Mapping[str, Any]) -> NodeVersion:
    annotations = _annotations(node)
    version = str(node["metadata"].get("resourceVersion"))
    return NodeVersion(
        version,
        annotations.get(keys.LOOK, ""),
        annotations.get(keys.LEDGER),
        annotations.get(keys.GPU_HEALTH, ""),
        why_paused(_texts(node["metadata"].get("labels")), annotations),
    )


def _annotations(node: Any) -> Mapping[str, str]:
    try:
        return _texts(node["metadata"].get("annotations"))
    except (KeyError, TypeError, AttributeError) as error:
        raise ApiError(200, "the answer is no Node") from error


def _texts(value: Any) -> Mapping[str, str]:
    listed = value if isinstance(value, dict) else {}
    return {key: value for key, value in listed.items() if isinstance(value, str)}


def _condition(node: Mapping[str, Any]) -> GpuCondition | None:
    """Return our condition; whoever may write the Node's status may have written anything."""
    status = node.get("status")
    listed = status.get("conditions") if isinstance(status, dict) else None
    for condition in listed if isinstance(listed, list) else ():
        if isinstance(condition, dict) and condition.get("type") == keys.GPUS_HEALTHY:
            return GpuCondition(*(str(condition.get(field) or "") for field in ("status", "reason", "message")))
    return None


def _reason(payload: bytes) -> str:
    try:
        return str(json.loads(payload)["message"])[:_MAX_REASON]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
