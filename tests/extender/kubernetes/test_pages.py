"""Pages are as large as was agreed, however heavy the objects are; and a single one is read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from benchmarks.simulated.double.resources import PODS
from benchmarks.simulated.double.store import ObjectStore
from extender.binding.intents import Done, GetPod, ListPods, NoAnswer
from extender.cluster.objects.kinds import Node, Pod
from extender.kubernetes.documents import decoder
from extender.kubernetes.kube import MAX_OBJECT_BYTES
from extender.kubernetes.reflector import list_objects
from tests.extender.kubernetes.test_heavy_objects import heavy, node, page
from tests.extender.kubernetes.test_kube import SECONDS, connected, facing

KIB = 1 << 10


def a_pod(store: ObjectStore, name: str, size_bytes: int = 0) -> None:
    """Create one that takes so many bytes on the wire, where each `<` takes six."""
    spec = {"containers": [{"name": "main", "image": "i", "env": [{"name": "E", "value": "<" * (size_bytes // 6)}]}]}
    store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})


async def test_pages_shrink_where_objects_are_heavy_and_grow_again(tmp_path: Path) -> None:
    """All are read, in their order, and after the heavy ones it is not one by one for ever."""
    nodes = [heavy(f"n{each:03}", 3, 100 * KIB) if 40 <= each < 48 else node(f"n{each:03}", 3) for each in range(400)]
    asked = list[int]()

    async def some(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(int(request.query["limit"]))
        begin = int(request.query.get("continue", "0"))
        end = begin + asked[-1]
        return web.Response(body=page(7, *nodes[begin:end], continuation=str(end) if end < len(nodes) else ""))

    async with facing(some, tmp_path) as api:
        source = api.resource("/api/v1/nodes", page_size=100, max_page_bytes=150 * KIB)
        listed = await list_objects(source, decoder(Node))
    assert [item.metadata.name for item in listed.objects] == [made["metadata"]["name"] for made in nodes]
    assert (asked[0], min(asked)) == (100, 1)
    assert max(asked[len(asked) - asked[::-1].index(1) :]) == 100
    assert len(asked) < 40


async def test_whatever_etcd_can_hold_is_read_live(tmp_path: Path) -> None:
    """A pod by itself, and the pods of a node, of which one alone may be larger than a page was until now."""
    store = ObjectStore()
    a_pod(store, "p", 9 << 20)
    async with connected(store, tmp_path) as api:
        one, all_of_them = await api.execute(GetPod("default", "p"), SECONDS), await api.execute(ListPods(""), SECONDS)
    assert isinstance(one, Done) and isinstance(one.value, Pod)
    assert isinstance(all_of_them, Done) and isinstance(all_of_them.value, tuple)
    assert [replace(listed, json_bytes=0) for listed in all_of_them.value] == [replace(one.value, json_bytes=0)]


@pytest.mark.slow
async def test_pods_of_which_one_cannot_be_read_are_no_answer(tmp_path: Path) -> None:
    """It may hold GPUs, or wait for them."""

    async def odd(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=page(7, node("a", 3), {**node("x", 4), "spec": {"containers": 5}}))

    async def overlong(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=page(7, heavy("x", 4, MAX_OBJECT_BYTES + (5 << 20))))

    for handler in (odd, overlong):
        async with facing(handler, tmp_path) as api:
            reply = await api.execute(ListPods(""), SECONDS)
        assert isinstance(reply, NoAnswer)
        assert "x is among them" in reply.message


async def test_how_far_the_server_is_costs_one_object(tmp_path: Path) -> None:
    """And is told even by a page that is too long."""
    queries = list[dict[str, str]]()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        queries.append(dict(request.query))
        return web.Response(body=page(17, heavy("x", 4, 600 * len(queries)), continuation="t"))

    async with facing(answer, tmp_path) as api:
        source = api.resource("/api/v1/nodes", max_page_bytes=1000)
        assert [await source.latest_version() for _ in range(3)] == ["17"] * 3
    assert queries == [{"limit": "1"}] * 3
