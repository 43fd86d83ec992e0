"""Requests of the contract suite in one line each, and what is read off their answers."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from benchmarks.processes.client import MERGE_PATCH, ApiClient, ClientResponse

NODES = "/api/v1/nodes"


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "example.com/none", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [main], **spec}}


async def create(api: ApiClient, pods: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    return (await api.call("POST", pods, pod(name, **spec))).ok()


async def bind(
    api: ApiClient, pods: str, annotations: dict[str, str] | None = None, node: str = "n1", **metadata: str
) -> ClientResponse:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"metadata": {"name": "p", "annotations": annotations or {}, **metadata}, "target": target}
    return await api.call("POST", f"{pods}/p/binding", body)


async def create_bound(api: ApiClient, pods: str) -> None:
    """Create and bind a pod, and wait until a watch tells it.

    Whoever deletes a pod of which the watch cache does not know yet that it is bound may find it gone at once,
    whatever its grace period (kube-apiserver 1.36.2: 77 of 2,000 in a burst).
    """
    made = await create(api, pods)
    (await bind(api, pods)).ok()
    await events(api, pods, 1, resourceVersion=str(version(made)))


async def merge(api: ApiClient, path: str, patch: dict[str, Any], **query: str) -> ClientResponse:
    return await api.call("PATCH", path, patch, content_type=MERGE_PATCH, **query)


def version(item: dict[str, Any]) -> int:
    return int(item["metadata"]["resourceVersion"])


def refusal(answer: ClientResponse) -> tuple[int, str]:
    assert answer.body["kind"] == "Status"
    assert answer.body["code"] == answer.code
    return answer.code, answer.body["reason"]


async def events(api: ApiClient, path: str, count: int, **query: str) -> list[tuple[str, dict[str, Any]]]:
    """Read `count` events of a watch, or all until the server ends it."""
    told = []
    async with aclosing(api.watch(path, timeoutSeconds="5", **query)) as watch:
        async for event in watch:
            told.append(event)
            if len(told) == count:
                break
    return told
