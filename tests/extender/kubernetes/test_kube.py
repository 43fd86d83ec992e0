"""Intents become requests that the API server accepts, and a server that misbehaves costs time, never a guess."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
import yaml
from aiohttp import web

from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from extender.binding.intents import (
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetNode,
    GetPod,
    Gone,
    ListPods,
    NoAnswer,
    Refused,
    Reply,
    SwapLedger,
)
from extender.cluster.objects.kinds import Node, Pod
from extender.kubernetes.documents import HEAD_BYTES, Overlong
from extender.kubernetes.events import PodName
from extender.kubernetes.eviction import EvictionOutcome, evict
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Reflector, Unavailable
from extender.kubernetes.rest import Request
from tests.extender.kubernetes.test_reflector import Mirror
from tests.extender.polling import until
from topology.annotations import keys

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

SECONDS = 30.0
"""More than a request takes on a machine that does much else, and less than a server asks for that is to be left alone."""


@asynccontextmanager
async def connected(store: ObjectStore, tmp_path: Path) -> AsyncIterator[KubeApi]:
    """Serve a store and connect to it."""
    async with ApiServer(store, bookmark_seconds=0.2) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        async with KubeApi.from_kubeconfig(tmp_path / "kubeconfig") as api:
            yield api


@asynccontextmanager
async def facing(handler: Handler, tmp_path: Path, user: dict[str, str] | None = None) -> AsyncIterator[KubeApi]:
    """Connect to a server that does whatever `handler` does."""
    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://{}:{}".format(*runner.addresses[0][:2]))
    if user is not None:
        config = yaml.safe_load(kubeconfig.read_text())
        config["users"][0]["user"] = user
        kubeconfig.write_text(yaml.safe_dump(config))
    try:
        async with KubeApi.from_kubeconfig(kubeconfig) as api:
            yield api
    finally:
        await runner.cleanup()


def a_node(store: ObjectStore, name: str = "n1", **annotations: str) -> Node:
    return msgspec.convert(store.create(NODES, "", {"metadata": {"name": name, "annotations": annotations}}), Node)


def a_pod(store: ObjectStore, name: str = "p1") -> Pod:
    spec = {"containers": [{"name": "main", "image": "i"}]}
    return msgspec.convert(store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec}), Pod)


async def test_the_pods_of_a_node_and_those_of_none_are_listed_whole(tmp_path: Path) -> None:
    """However many pages that takes."""
    store = ObjectStore()
    for number in range(501):
        a_pod(store, f"p{number}")
    store.bind("default", "p7", {"metadata": {"name": "p7"}, "target": {"name": "n1"}})
    async with connected(store, tmp_path) as api:
        there, nowhere = await api.execute(ListPods("n1"), SECONDS), await api.execute(ListPods(""), SECONDS)
    assert isinstance(there, Done) and isinstance(there.value, tuple)
    assert isinstance(nowhere, Done) and isinstance(nowhere.value, tuple)
    assert [pod.metadata.name for pod in there.value] == ["p7"]
    assert len({pod.metadata.uid for pod in nowhere.value}) == 500


@pytest.mark.parametrize("status", [403, 410, 500])
async def test_a_list_that_breaks_off_is_no_answer(tmp_path: Path, status: int) -> None:
    """Half of the pods would be as good as none."""
    page = {"metadata": {"resourceVersion": "5", "continue": "more"}, "items": []}

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status) if "continue=more" in str(request.rel_url) else web.json_response(page)

    async with facing(handler, tmp_path) as api:
        assert isinstance(await api.execute(ListPods(""), SECONDS), NoAnswer)


async def test_the_first_ledger_is_created_and_then_swapped(tmp_path: Path) -> None:
    """Both forms of the write reach the annotation, and the reply is the node as it is now."""
    store = ObjectStore()
    node = a_node(store)
    async with connected(store, tmp_path) as api:
        uid, version = node.metadata.uid, node.metadata.resource_version
        first = await api.execute(SwapLedger("n1", uid, None, None, "one", version), SECONDS)
        second = await api.execute(SwapLedger("n1", uid, None, "one", "two", version), SECONDS)
    assert [ledger(first), ledger(second)] == ["one", "two"]


def ledger(reply: Reply) -> str | None:
    assert isinstance(reply, Done)
    assert isinstance(reply.value, Node)
    return (reply.value.metadata.annotations or {}).get(keys.LEDGER)


@pytest.mark.parametrize(
    ("uid", "digest", "expected", "status"),
    [("other", "d", "old", "s"), (None, "other", "old", "s"), (None, "d", "other", "s"), (None, "d", "old", "other")],
)
async def test_a_swap_fails_when_anything_it_rests_on_has_changed(
    tmp_path: Path, uid: str | None, digest: str, expected: str, status: str
) -> None:
    """Another node under the same name, another topology, another ledger, another GPU sick."""
    store = ObjectStore()
    node = a_node(store, **{keys.LEDGER: "old", keys.TOPOLOGY_DIGEST: "d", keys.STATUS: "s"})
    async with connected(store, tmp_path) as api:
        intent = SwapLedger("n1", uid or node.metadata.uid, digest, expected, "new", "1", status)
        assert isinstance(await api.execute(intent, SECONDS), Conflict)


async def test_two_first_ledgers_do_not_both_win(tmp_path: Path) -> None:
    """The second one was prepared on a version that is no more."""
    store = ObjectStore()
    node = a_node(store)
    intent = SwapLedger("n1", node.metadata.uid, None, None, "mine", node.metadata.resource_version)
    async with connected(store, tmp_path) as api:
        assert isinstance(await api.execute(intent, SECONDS), Done)
        assert isinstance(await api.execute(intent, SECONDS), Conflict)


async def test_a_binding_brings_node_and_annotations_at_once(tmp_path: Path) -> None:
    """What the kubelet sees first already names the GPUs."""
    store = ObjectStore()
    a_node(store)
    pod = a_pod(store).metadata
    intent = BindPod("default", "p1", pod.uid, pod.resource_version, "n1", {keys.PLACEMENT: "{}"})
    async with connected(store, tmp_path) as api:
        assert await api.execute(intent, SECONDS) == Done(None)
        bound = await api.execute(GetPod("default", "p1"), SECONDS)
        assert isinstance(await api.execute(intent, SECONDS), Conflict)
    assert isinstance(bound, Done)
    assert isinstance(bound.value, Pod)
    assert (bound.value.spec.node_name, bound.value.metadata.annotations) == ("n1", {keys.PLACEMENT: "{}"})


async def test_a_fence_makes_an_older_binding_fail(tmp_path: Path) -> None:
    """Whoever prepared a Binding before the fence cannot commit it after."""
    store = ObjectStore()
    a_node(store)
    pod = a_pod(store).metadata
    async with connected(store, tmp_path) as api:
        fence = FencePod("default", "p1", pod.uid, pod.resource_version, "1", Pod())
        assert isinstance(await api.execute(fence, SECONDS), Done)
        assert isinstance(await api.execute(fence, SECONDS), Conflict)
        bind = BindPod("default", "p1", pod.uid, pod.resource_version, "n1", {})
        assert isinstance(await api.execute(bind, SECONDS), Conflict)


async def test_what_does_not_exist_is_gone(tmp_path: Path) -> None:
    """For reads and writes alike."""
    async with connected(ObjectStore(), tmp_path) as api:
        for intent in (GetPod("default", "x"), GetNode("x"), SwapLedger("x", "u", None, None, "l", "1")):
            assert await api.execute(intent, SECONDS) == Gone()


async def test_a_reflector_follows_the_server(tmp_path: Path) -> None:
    """List in pages, then watch: additions, changes and deletions arrive."""
    store = ObjectStore()
    for number in range(5):
        a_node(store, f"n{number}")
    mirror = Mirror()
    async with connected(store, tmp_path) as api:
        source = api.resource("/api/v1/nodes", page_size=2, stream_seconds=1)
        running = asyncio.create_task(Reflector("nodes", source, Node, mirror, random=Random(1)).run())
        await until(lambda: len(mirror.nodes) == 5)
        a_node(store, "n9")
        store.delete(NODES, "", "n0")
        await until(lambda: set(mirror.nodes) == {"n1", "n2", "n3", "n4", "n9"})
        running.cancel()
    assert mirror.replacements == 1


@pytest.mark.slow
async def test_a_server_that_says_nothing_is_no_answer_in_time(tmp_path: Path, goal: Callable[[float], float]) -> None:
    """The deadline of an intent holds whatever the server does."""

    async def hang(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async with facing(hang, tmp_path) as api:
        started = asyncio.get_running_loop().time()
        assert isinstance(await api.execute(GetNode("n1"), 0.2), NoAnswer)
        assert asyncio.get_running_loop().time() - started < goal(0.5)


async def test_a_connection_that_breaks_is_no_answer(tmp_path: Path) -> None:
    """A reset after the request was sent says nothing about what happened; nothing is sent twice."""
    calls = 0

    async def cut(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with facing(cut, tmp_path) as api:
        assert isinstance(await api.execute(FencePod("ml", "p", "u", "1", "m", Pod()), SECONDS), NoAnswer)
    assert calls == 1


@pytest.mark.slow
async def test_a_busy_server_is_obeyed_inside_the_deadline(tmp_path: Path) -> None:
    """429 with Retry-After 1 is waited out; the request was not executed, so it may be sent again."""
    times: list[float] = []

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            return web.Response(status=429, headers={"Retry-After": "1"})
        return web.json_response({"metadata": {"name": "n1"}})

    async with facing(busy, tmp_path) as api:
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
    assert times[1] - times[0] >= 1


async def test_a_busy_server_is_left_alone_beyond_the_deadline(tmp_path: Path) -> None:
    """A minute is more than a bind has; whatever else of the kind wants to be sent in it fails without being sent."""
    calls = 0

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return web.Response(status=429, headers={"Retry-After": "60"}, text="too many of these\n")

    async with facing(busy, tmp_path) as api:
        for name in ("n1", "n2", "n3"):
            assert await api.execute(GetNode(name), SECONDS) == NoAnswer("busy for 60 s: 429: too many of these")
        assert calls == 1
        for _ in range(3):
            with pytest.raises(Unavailable) as caught:
                await api.resource("/api/v1/nodes").list_page(None)
            assert caught.value.retry_after_seconds > 50
    assert calls == 2


async def test_a_server_that_is_busy_with_one_kind_of_request_is_asked_others(tmp_path: Path) -> None:
    """It turns away by flow and level: events and lists may wait while pods are bound."""
    served: list[str] = []

    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        served.append(f"{request.method} {request.rel_url.path}")
        is_bind = served[-1].endswith("/binding")
        return web.Response(status=201 if is_bind else 429, headers={} if is_bind else {"Retry-After": "60"})

    async with facing(busy, tmp_path) as api:
        event = Request("POST", "/api/v1/namespaces/default/events", b"{}")
        for _ in range(2):
            with pytest.raises(Unavailable):
                await api.send(event)
            with pytest.raises(Unavailable):
                await api.resource("/api/v1/pods").list_page(None)
        assert await api.execute(BindPod("default", "p1", "u", "1", "n1", {}), SECONDS) == Done(None)
    bind = "POST /api/v1/namespaces/default/pods/p1/binding"
    assert served == ["POST /api/v1/namespaces/default/events", "GET /api/v1/pods", bind]


async def test_a_budget_that_allows_no_eviction_is_no_busy_server(tmp_path: Path) -> None:
    """Its 429 is an answer about one pod, told at once, and keeps no other pod waiting; a namesake is not meant."""
    asked: list[str] = []

    async def refuse_one(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.rel_url.path.split("/")[-2])
        assert (await request.json())["deleteOptions"] == {"preconditions": {"uid": "u"}}
        if asked[-1] == "guarded":
            return web.json_response({"message": "not now"}, status=429, headers={"Retry-After": "10"})
        return web.json_response({}, status=201)

    async with facing(refuse_one, tmp_path) as api:
        answers = [await evict(api.send, PodName("ml", name, "u")) for name in ("guarded", "other", "guarded")]
    assert answers == [
        (EvictionOutcome.BUDGET, "not now"),
        (EvictionOutcome.EVICTED, ""),
        (EvictionOutcome.BUDGET, "not now"),
    ]


async def test_those_whom_a_busy_server_turns_away_do_not_come_back_together(tmp_path: Path) -> None:
    """Nobody sooner than it asked for, and each at another moment: together they would only be turned away again."""

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "60"})

    waits = []
    async with facing(busy, tmp_path) as api:
        began = asyncio.get_running_loop().time()
        for _ in range(20):
            with pytest.raises(Unavailable) as caught:
                await api.resource("/api/v1/nodes").list_page(None)
            waits.append(asyncio.get_running_loop().time() - began + caught.value.retry_after_seconds)
    assert all(wait >= 60 for wait in waits)
    assert max(waits) - min(waits) > 5


@pytest.mark.parametrize("asked", ["999999999", "9" * 400])
async def test_no_answer_stops_a_kind_of_request_for_long(asked: str, tmp_path: Path) -> None:
    """A webhook that turns one pod away with 429 names the time, and all Bindings are of one kind."""

    async def busy(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": asked})

    async with facing(busy, tmp_path) as api:
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                await api.resource("/api/v1/nodes").list_page(None)
            assert 59 < caught.value.retry_after_seconds <= 90


async def test_a_new_token_is_read_when_the_old_one_is_refused(tmp_path: Path) -> None:
    """Rotation costs one extra request and no restart."""
    seen: list[str | None] = []

    async def guard(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        if seen[-1] == "Bearer new":
            return web.json_response({"metadata": {"name": "n1"}})
        (tmp_path / "token").write_text("new\n")
        return web.Response(status=401)

    (tmp_path / "token").write_text("old\n")
    async with facing(guard, tmp_path, {"tokenFile": str(tmp_path / "token")}) as api:
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
    assert seen == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_identity_is_said_to_be_denied(tmp_path: Path, status: int) -> None:
    """Readiness depends on it, so it is told from an outage."""

    async def refuse(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status)

    async with facing(refuse, tmp_path) as api:
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Refused)
        source = api.resource("/api/v1/nodes")
        for attempt in (source.list_page(None), anext(source.watch("1"))):
            with pytest.raises(Unavailable) as caught:
                await attempt
            assert caught.value.denied


async def test_a_page_that_never_ends_is_not_read(tmp_path: Path) -> None:
    """Memory is bounded by what was agreed, whatever the size of pages that is asked for."""
    limits = list[str]()

    async def flood(request: web.BaseRequest) -> web.StreamResponse:
        limits.append(request.query["limit"])
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            for _ in range(1000):
                await response.write(b"x" * 10_000)
        return response

    async with facing(flood, tmp_path) as api:
        page = await api.resource("/api/v1/nodes", max_page_bytes=50_000).list_page(None)
    assert page == Overlong(b"x" * HEAD_BYTES, 50_000)
    assert limits == ["500", "125", "31", "7", "1"]


async def test_no_credentials_is_said_at_once(tmp_path: Path) -> None:
    """Outside a pod and without a kubeconfig there is nobody to be."""
    with pytest.raises(Unavailable, match="no credentials"):
        async with KubeApi.from_kubeconfig(tmp_path / "absent"):
            pass
