"""The port of the view: no verb, only GET, bad queries refused with their reason, and each reader sees what is hers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from extender.cluster.caches.agents import AgentPods
from extender.cluster.objects.kinds import OwnerReference, Pod
from extender.features.configuration import WholeConfiguration
from extender.features.registry import FEATURES
from extender.features.view.feature import View
from extender.kit.rate import Rate
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.rest import Request
from extender.service import Extender
from extender.web import view_port
from extender.web.listener import Listener, bound
from extender.web.view_port import ViewPort
from tests.extender.builders import claim, gpus, node, pod, running
from tests.extender.features.view.api import EVERYWHERE, Reviewing
from tests.extender.polling import until

A, B, C = gpus("n1", 0, 1, 2)
SECRET = "secret-pod"
"""Of a namespace that the researcher may not see."""
PATHS = (
    "/",
    "/?colour=holder",
    "/nodes",
    "/nodes?island=2&sort=free",
    "/nodes/n1",
    "/v1/inspect/nodes/n1/topology.svg",
    "/pods",
    "/pods/ml/train",
    "/pods/ml/huge",
    "/decisions",
    "/fragmentation?over=week",
)


def of_ops(item: Pod) -> Pod:
    """Return the pod in another namespace."""
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace="ops"))


def owned(item: Pod) -> Pod:
    owner = OwnerReference("job", controller=True, kind="Job", name="finetune")
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, owner_references=[owner]))


@asynccontextmanager
async def view(
    folder: Path, settings: Mapping[str, Any] = {}, api: Reviewing | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve the view of an extender that knows a node with pods of two namespaces, and a pod that waits."""
    config = WholeConfiguration.model_validate({"view": {"enabled": True, "port": 0, **settings}})
    extender = Extender(config, KubeApi.from_kubeconfig(folder / "nobody"), FEATURES)
    claims = (claim(A, "train"), replace(claim(B, SECRET), namespace="ops"))
    extender.state.nodes.replaced([node("n1", claims=claims), node("n2")])
    waiting = pod("huge", 9, wants={"gputopo.dev/required-affinity": "nvlink", "gputopo.dev/relax-after": "10m"})
    extender.state.pods.replaced([owned(running("train", "n1", A)), of_ops(running(SECRET, "n1", B)), waiting])
    feature = extender.features.get(View)
    assert feature is not None
    feature.reviews.send = feature.events.send = (api or PEOPLE).send
    opened = bound("127.0.0.1", 0)
    listener = Listener(ViewPort(feature, extender), opened, receive_seconds=10.0)
    serving = asyncio.create_task(listener.serve())
    await until(lambda: listener.started)
    async with aiohttp.ClientSession(listener.url) as session:
        yield session
    listener.should_exit = True
    await serving


async def read(session: aiohttp.ClientSession, path: str, token: str = "", **headers: str) -> tuple[int, str]:
    """Read a page."""
    given = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
    async with session.get(path, headers=given) as answer:
        return answer.status, await answer.text()


def without_refills(per_second: float, at_once: int) -> Rate:
    """Return a rate that does not depend on how long requests take."""
    return Rate(0.0, at_once)


PEOPLE = Reviewing(
    {"t-ann": "ann", "t-ann-2": "ann", "t-root": "root", "t-new": "new"}, {"ann": ("ml",), "root": (EVERYWHERE,)}
)
OPEN: dict[str, Any] = {"authorization": "none"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have refusals sent without their pause."""
    monkeypatch.setattr(view_port, "REFUSED_AFTER_SECONDS", 0.0)


async def test_there_is_no_verb_no_json_and_nothing_that_writes(tmp_path: Path) -> None:
    """Every path of the verbs' port that is no page of the view is 404, and every method but two is 405."""
    elsewhere = ("/v1/extender/filter", "/v1/extender/bind", "/v1/inspect/config", "/v1/inspect/nodes")
    async with view(tmp_path, OPEN) as session:
        for path in (*elsewhere, "/v1/inspect/what-if", "/metrics", "/openapi.json", "/readyz"):
            assert (await read(session, path))[0] == 404, path
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            for path in ("/", "/nodes", "/v1/extender/bind"):
                async with session.request(method, path) as answer:
                    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.slow
async def test_every_answer_tells_the_browser_what_to_allow(tmp_path: Path) -> None:
    """Pages, pictures and refusals; a cache keeps them for nobody else."""
    async with view(tmp_path, OPEN) as session:
        for path in (*PATHS, "/nowhere", "/nodes?x=1"):
            async with session.get(path) as answer:
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"], path
                assert answer.headers["Cache-Control"] == "private, no-cache"
                assert answer.headers["Vary"] == "Authorization"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        async with session.head("/") as answer:
            assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nodes?colour=blue", "colour: expected one of holder, state"),
        ("/nodes?island=1", "island: expected a whole number from 2 to 64"),
        ("/nodes?island=four", "island: expected a whole number from 2 to 64"),
        ("/nodes?sort=size", "sort: expected one of name, free, gpus"),
        ("/nodes?after=n1", "after: expected NUMBER:NAME"),
        ("/nodes?limit=1000000", "limit: is no parameter of this page"),
        ("/nodes?q=a&q=b", "q: is given twice"),
        (f"/pods?q={'x' * 300}", "q: has more than 253 characters"),
        ("/pods?state=sleeping", "state: expected one of waiting, placed"),
        ("/pods/ml/train?x", "x: is no parameter of this page"),
        ("/decisions?after=-1", "after: expected a whole number"),
        ("/fragmentation?over=year", "over: expected one of day, week"),
    ],
)
async def test_a_bad_query_is_400_with_its_reason(tmp_path: Path, path: str, reason: str) -> None:
    """It names the parameter and what would do."""
    async with view(tmp_path, OPEN) as session:
        status, text = await read(session, path)
    assert status == 400
    assert msgspec.json.decode(text)["detail"].startswith(reason)


async def test_long_addresses_and_hosts_of_others_are_refused(tmp_path: Path) -> None:
    """Before anything else is looked at."""
    async with view(tmp_path, {**OPEN, "allowedHosts": ["gpus.example.com"]}) as session:
        assert (await read(session, f"/nodes?q={'x' * 3000}"))[0] == 414
        assert (await read(session, f"/nodes/{'x' * 2000}"))[0] == 414
        assert (await read(session, "/", Host="gpus.example.com"))[0] == 200
        assert (await read(session, "/", Host="evil.example"))[0] == 421


async def test_a_crowd_is_refused_and_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests than a second may have get 429, after a pause; one refusal at a time costs a connection little."""
    monkeypatch.setattr(view_port, "REQUESTS_PER_SECOND", 1.0)
    monkeypatch.setattr(view_port, "Rate", without_refills)
    monkeypatch.setattr(view_port, "REFUSED_AFTER_SECONDS", 0.05)
    clock = asyncio.get_running_loop().time
    async with view(tmp_path, OPEN) as session:
        begun = clock()
        statuses = [(await read(session, "/decisions"))[0] for _ in range(5)]
        assert statuses == [200, 200, 429, 429, 429]
        assert clock() - begun >= 3 * 0.05


async def test_one_readers_crowd_is_refused_and_others_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Her requests that are refused take nothing of what all may ask."""
    monkeypatch.setattr(view_port, "READER_REQUESTS_PER_SECOND", 1.0)
    monkeypatch.setattr(view_port, "REQUESTS_PER_SECOND", 2.0)
    monkeypatch.setattr(view_port, "Rate", without_refills)
    async with view(tmp_path) as session:
        statuses = [(await read(session, "/decisions", token))[0] for token in ("t-ann",) * 4 + ("t-root",)]
    assert statuses == [200, 200, 200, 429, 200]  # the first one asks who she is


@pytest.mark.parametrize("written", ["bearer t-ann", "BEARER t-ann", "Bearer   t-ann", "Bearer t-ann-2"])
async def test_a_reader_has_one_budget_however_the_token_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """Also with a second token of the same user, who was let in with both."""
    monkeypatch.setattr(view_port, "READER_REQUESTS_PER_SECOND", 1.0)
    monkeypatch.setattr(view_port, "Rate", without_refills)
    async with view(tmp_path) as session:
        for given in ("Bearer t-ann", written, "Bearer t-ann", "Bearer t-ann"):
            await read(session, "/decisions", Authorization=given)
        assert (await read(session, "/decisions", Authorization=written))[0] == 429


async def test_a_crowd_with_bad_tokens_takes_nothing_from_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile client sends a new token with each request, or none; a reader who was let in before reads on."""
    monkeypatch.setattr(view_port, "REQUESTS_PER_SECOND", 10.0)
    monkeypatch.setattr(view_port, "STRANGER_REQUESTS_PER_SECOND", 2.0)
    monkeypatch.setattr(view_port, "Rate", without_refills)
    async with view(tmp_path) as session:
        assert (await read(session, "/decisions", "t-ann"))[0] == 200
        tokens = ("", *(f"stranger-{number}" for number in range(40)))
        crowd = [(await read(session, "/decisions", token))[0] for token in tokens]
        assert crowd == [401] * 3 + [429] * 38
        assert [(await read(session, "/decisions", "t-ann"))[0] for _ in range(10)] == [200] * 10
        assert (await read(session, "/decisions", "t-root"))[0] == 429


async def test_nobody_reads_without_a_token_of_the_cluster(tmp_path: Path) -> None:
    """Not even pictures; the style sheet tells nothing."""
    async with view(tmp_path) as session:
        for path in PATHS:
            assert (await read(session, path))[0] == 401, path
            assert (await read(session, path, "stranger"))[0] == 401, path
        async with session.get("/", headers={"Authorization": "Basic YTpi"}) as answer:
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="gputopo"')
        style = re.search(r'href="(/assets/[^"]+css)"', (await read(session, "/", "t-ann"))[1])
        assert style and (await read(session, style[1]))[0] == 200


@pytest.mark.slow
async def test_no_page_names_a_pod_that_its_reader_may_not_see(tmp_path: Path) -> None:
    """Whatever page she opens; the administrator sees the pod on the same pages, and both see the same counts."""
    async with view(tmp_path) as session:
        told_root = ""
        for path in PATHS:
            status, text = await read(session, path, "t-ann")
            assert (status, SECRET in text, "ops/" in text) == (200, False, False), path
            told_root += (await read(session, path, "t-root"))[1]
        assert told_root.count(SECRET) > 5
        for token in ("t-ann", "t-new", "t-root"):
            assert "<dd>14</dd>" in (await read(session, "/", token))[1], "14 of 16 GPUs are free"


async def test_a_pod_that_may_not_be_seen_is_the_same_as_none(tmp_path: Path) -> None:
    """Neither the status nor the words tell whether it exists."""
    async with view(tmp_path) as session:
        hidden, missing = [await read(session, f"/pods/ops/{name}", "t-ann") for name in (SECRET, "nothing")]
        assert hidden[0] == missing[0] == 404
        assert hidden[1].replace(SECRET, "nothing") == missing[1]
        assert (await read(session, f"/pods/ops/{SECRET}", "t-root"))[0] == 200


async def test_lists_are_of_what_the_reader_sees(tmp_path: Path) -> None:
    """By namespace and by owner, also where she asks for nodes by the pods on them."""
    async with view(tmp_path) as session:
        pods = (await read(session, "/pods", "t-ann"))[1]
        assert re.findall(r'href="/pods/(\w+/[\w-]+)"', pods) == ["ml/huge", "ml/train"]
        assert "/nodes/n1" in (await read(session, "/nodes?owner=Job/fine", "t-ann"))[1]
        assert "/nodes/n1" not in (await read(session, "/nodes?namespace=ops", "t-ann"))[1]
        assert "/nodes/n1" in (await read(session, "/nodes?namespace=ops", "t-root"))[1]


async def test_a_pods_page_tells_its_request_when_it_relaxes_and_its_events(tmp_path: Path) -> None:
    """In words; a reader who may not list events gets none."""
    async with view(tmp_path) as session:
        page = unescape((await read(session, "/pods/ml/huge", "t-ann"))[1])
        for words in ("required affinity", "<dd>NVLink</dd>", "9 GPUs", "What it requests", "Seen", "Has relaxed"):
            assert words in page, words
        assert "Events" in page
        placed = unescape((await read(session, "/pods/ml/train", "t-ann"))[1])
        assert "topology.svg" in placed and "pod=ml/train" in placed and "Job/finetune" in placed


async def test_while_the_api_server_is_away_nothing_is_shown(tmp_path: Path) -> None:
    """Not even counts."""
    api = Reviewing({"t": "ann"}, {}, is_gone=True)
    async with view(tmp_path, api=api) as session:
        assert (await read(session, "/", "t"))[0] == 503


@pytest.mark.slow
async def test_a_nodes_page_shows_what_its_gpus_do_as_its_agent_tells(tmp_path: Path) -> None:
    """Where it is switched on and an agent is ready there; of GPUs of others only to those who may see their pods."""

    async def send(request: Request) -> tuple[int, bytes]:
        if request.path != "/api/v1/namespaces/gputopo-system/pods/agent-1/proxy/metrics":
            return await PEOPLE.send(request)
        lines = (f'gputopo_gpu_utilization_ratio{{uuid="{gpu}"}} {ratio}' for gpu, ratio in ((A, 0.41), (B, 0.93)))
        return 200, "\n".join(lines).encode()

    async with view(tmp_path, {"samples": True}) as session:
        without = await read(session, "/nodes/n1", "t-root")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            AgentPods, "pod_on", lambda agents, node: ("gputopo-system", "agent-1") if node == "n1" else None
        )
        patched.setattr(KubeApi, "send", lambda api, request: send(request))
        async with view(tmp_path, {"samples": True}) as session:
            whole, part, nothing = [await read(session, "/nodes/n1", f"t-{name}") for name in ("root", "ann", "new")]
            elsewhere = await read(session, "/nodes/n2", "t-root")
    pages = (without, whole, part, nothing, elsewhere)
    assert ["41 %" in page for _, page in pages] == [False, True, True, False, False]
    assert ["93 %" in page for _, page in pages] == [False, True, False, False, False]


async def test_pages_of_nodes_link_to_grafana_where_there_is_one(tmp_path: Path) -> None:
    """Utilization, power and temperature are there; the extender has none of them."""
    async with view(tmp_path, {**OPEN, "grafana": "https://grafana.example.com"}) as session:
        page = (await read(session, "/nodes/n1"))[1]
    assert 'href="https://grafana.example.com/d/gputopo-node?var-node=n1"' in page
