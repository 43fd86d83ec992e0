"""The pages stand alone, escape everything, and every link in them leads somewhere."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode, fleet, gpu_pod
from benchmarks.simulated.scheduler_loop import SchedulerLoop
from extender.config.health_words import WordKind
from extender.features.configuration import WholeConfiguration, load
from extender.inspect.decisions import Alternative, Decision, DecisionPage
from extender.inspect.front_tables import FrontRow, FrontTable
from extender.inspect.inspection import Explanation, GpuInfo, NodeDetail, NodeInfo, PodInfo
from extender.inspect.nvlinks import LinkFaultInfo
from extender.inspect.offers import OfferInfo
from extender.inspect.places import Place
from extender.inspect.waiting import WaitingPod
from extender.inspect.words import ClaimedDeviceInfo, SignInfo
from extender.kit.calls_first import CallsFirst
from extender.web import assets, pages
from extender.web.app import application
from tests.extender.serving import Running, serving
from topology.request.domains import Level, Location

JSON = (
    "/v1/inspect/nodes",
    "/v1/inspect/nodes/n1",
    "/v1/inspect/nodes/n1/topology.svg",
    "/v1/inspect/pods",
    "/v1/inspect/pods/default/huge",
    "/v1/inspect/pods/default/huge/why",
    "/v1/inspect/decisions",
    "/v1/inspect/fragmentation",
    "/v1/inspect/queue",
)
HOSTILE = "<script>alert('x')</script>\"&amp;"
POD = PodInfo(
    namespace=HOSTILE,
    name=HOSTILE,
    uid=HOSTILE,
    phase=HOSTILE,
    gpus=1,
    node=HOSTILE,
    containers={HOSTILE: (HOSTILE,)},
    indexes=(0,),
    affinity=None,
    bandwidth_gb_per_s=None,
)
GPU = GpuInfo(
    index=0,
    uuid=HOSTILE,
    model=HOSTILE,
    memory_bytes=None,
    numa_node=None,
    state="claimed",
    pod=f"{HOSTILE}/{HOSTILE}",
    container=HOSTILE,
)
NODE = NodeInfo(name=HOSTILE, free=0, closed=HOSTILE, gpus=(GPU,))
PLACE = Place(level=Level.RACK, name=HOSTILE, nodes=1, gpus=1, free=0, closed=1)
WAITING = WaitingPod(pod=POD, since=None, seconds=0.0, reasons=(HOSTILE,))
TABLE = FrontTable(
    title=HOSTILE,
    columns=(HOSTILE, HOSTILE),
    rows=(FrontRow(pod=f"{HOSTILE}/{HOSTILE}", cells=(HOSTILE,)),),
    line=HOSTILE,
)
HOSTILE_ASKER = pages.NodeSelection(Location(HOSTILE, HOSTILE, HOSTILE), HOSTILE)
FAULT = LinkFaultInfo(
    index=None,
    uuid=HOSTILE,
    links=(9, 11),
    reason=HOSTILE,
    since=datetime(2026, 11, 23, 9, 12, tzinfo=UTC),
    until=datetime(2026, 11, 23, 9, 20, tzinfo=UTC),
)
DECISION = Decision(
    number=1,
    at=datetime(2026, 11, 23, 9, 12, tzinfo=UTC),
    namespace=HOSTILE,
    name=HOSTILE,
    uid=HOSTILE,
    node=HOSTILE,
    indexes=(0,),
    gb_per_s=None,
    best_gb_per_s=None,
    loss=None,
    alternative=Alternative(HOSTILE, None, None),
)
SIGN = SignInfo(kind=WordKind.CONDITION, name=HOSTILE, value=HOSTILE, agent=HOSTILE, detail=HOSTILE, closes=True)
DETAIL = NodeDetail(
    **dict(NODE),
    matrix=((HOSTILE,),),
    driver_version=HOSTILE,
    cuda_version=HOSTILE,
    best_sets=(),
    link_faults=(FAULT,),
    signs=(SIGN,),
    unknown_devices=(ClaimedDeviceInfo(claim=HOSTILE, device=HOSTILE),),
    offers=(OfferInfo(gpus=(0,), offered=HOSTILE),),
)
FIGURES = {"nodes": 1.0, "gpus": 1.0, "gpus_free": 0.0, "pods": 1.0, "pods_waiting": 1.0}


def links(page: str) -> set[str]:
    """Return all that a page refers to."""
    return {unescape(target) for target in re.findall(r'(?:href|src|data|data-ring)="([^"]*)"', page)}


@pytest.mark.parametrize(
    "page",
    [
        "".join(
            pages.overview(
                FIGURES, [PLACE], [NODE], [POD], [WAITING], asked=HOSTILE_ASKER, following=HOSTILE, tables=[TABLE]
            )
        ),
        "".join(pages.node_page(DETAIL, [POD], HOSTILE)),
        "".join(pages.pod_page(Explanation(pod=POD, fits=(), refusals=(), problem=HOSTILE))),
        "".join(pages.decisions_page(DecisionPage(decisions=(DECISION,), next=1))),
        "".join(pages.missing_page(HOSTILE)),
    ],
    ids=["overview", "node", "pod", "decisions", "missing"],
)
def test_nothing_that_others_wrote_becomes_markup(page: str) -> None:
    """Names, models and reasons come from other machines; none of them opens a tag or leaves an attribute."""
    assert re.findall("<script[^>]*>", page) == [f'<script src="{assets.SCRIPT.path}" defer>']
    assert "alert('x')" not in page
    assert all(target.startswith(("/", "#main", "data:,")) and "<" not in target for target in links(page))


def test_a_page_holds_no_script_and_no_style() -> None:
    """The browser is told to run none that stands in a page, so none may be needed."""
    page = "".join(pages.node_page(DETAIL, [POD]))
    assert "<style" not in page
    assert not re.search(r"<script[^>]*>[^<]|\son\w+=|\sstyle=", page)


def test_dead_links_and_doubtful_gpus_stand_on_the_nodes_page() -> None:
    """Which, since when and when they are used again, in the table, under the pointer and for the ear."""
    page = "".join(pages.node_page(DETAIL, []))
    for text in ("9, 11", "2026-11-23T09:12:00Z", "used again if up until then 2026-11-23T09:20:00Z"):
        assert text in page
    doubted = GPU.model_copy(update={"doubtful": True, "reasons": ("row remap pending",)})
    well = DETAIL.model_copy(update={"link_faults": (), "gpus": (doubted,)})
    assert "NVLinks that are not used" not in "".join(pages.node_page(well, []))
    assert "".join(pages.node_page(well, [])).count("row remap pending; pods get it last") == 3


async def crawl(extender: Running, start: str) -> dict[str, int]:
    """Follow every link from a page; returns path → status."""
    found: dict[str, int] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path], text = await extender.get(path)
            assert not re.search(r"https?://(?!www\.w3\.org)", text)
            waiting += {target for target in links(text) if target.startswith("/")}
    return found


@pytest.mark.slow
async def test_every_link_leads_somewhere(tmp_path: Path) -> None:
    """From the front page to every node, picture and pod, placed or waiting."""
    async with serving(tmp_path, *fleet({"dgx-a100": 1, "a100-pcie-8-pairs": 1})) as extender:
        loop = SchedulerLoop(extender.api, extender.session, extender.url)
        await loop.schedule(await extender.create("train", 4))
        await extender.create("huge", 64)
        found = await crawl(extender, "/")
    assert set(found.values()) == {200}
    assert {"/decisions", "/fragmentation", "/nodes/dgx-a100-0", "/pods/default/huge", "/pods/default/train"} <= set(
        found
    )
    assert any(path.startswith("/v1/inspect/nodes/dgx-a100-0/topology.svg") for path in found)
    assert any(path.endswith("pod=default/train") for path in found)


@pytest.mark.slow
async def test_many_nodes_come_page_by_page(tmp_path: Path) -> None:
    """No page shows more than it should, and together they show all."""
    async with serving(tmp_path, *fleet({"t4-4": 5})) as extender:
        seen: list[str] = []
        for count in (2, 2, 1):
            _, text = await extender.get(f"/v1/inspect/nodes?limit=2&after={seen[-1] if seen else ''}")
            answer = json.loads(text)
            assert len(answer["nodes"]) == count
            seen += [node["name"] for node in answer["nodes"]]
        assert seen == [f"t4-4-{number}" for number in range(5)]
        assert answer["next"] is None


@pytest.mark.slow
async def test_many_pods_come_page_by_page(tmp_path: Path) -> None:
    """In order of namespace and name, whether they wait or not; all of them would hold up kube-scheduler."""
    async with serving(tmp_path, SimulatedNode("n1", "dgx-a100", used=(0,))) as extender:
        for number in range(4):
            await extender.create(f"p{number}", 1)
        seen: list[str] = []
        for count in (2, 2, 1):
            _, text = await extender.get(f"/v1/inspect/pods?limit=2&after=default/{seen[-1] if seen else ''}")
            answer = json.loads(text)
            assert len(answer["pods"]) == count
            seen += [pod["name"] for pod in answer["pods"]]
        assert seen == ["n1-occupant", "p0", "p1", "p2", "p3"]
        assert answer["next"] is None


def test_the_front_page_says_where_all_pods_are() -> None:
    """It shows the first ones only."""
    some = "".join(pages.overview(FIGURES | {"pods": 3.0}, [], [NODE], [POD], [WAITING]))
    every = "".join(pages.overview(FIGURES | {"pods": 2.0}, [], [NODE], [POD], [WAITING]))
    assert ("All pods" in some, "All pods" in every) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/nodes/x", "/pods/a/b", "/v1/inspect/nodes/x", "/v1/inspect/pods/a/b"])
async def test_what_is_not_there_is_404(tmp_path: Path, path: str) -> None:
    """In words, on the page and in JSON."""
    async with serving(tmp_path) as extender:
        status, text = await extender.get(path)
        assert status == 404
        assert "no" in text.lower()


@pytest.mark.slow
async def test_pages_allow_nothing_from_outside(tmp_path: Path) -> None:
    """The browser is told so, too, and to run nothing that stands in the page."""
    async with serving(tmp_path) as extender, extender.session.get(extender.url) as response:
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy


@pytest.mark.slow
async def test_no_page_names_another_host(tmp_path: Path) -> None:
    """Of all paths that the application has, also those that its framework adds; each page of HTML has a policy."""
    app = application(load(None, {}, {}))
    described = {path for path, verbs in app.openapi()["paths"].items() if "get" in verbs}
    paths = {
        path for path in {getattr(route, "path", "") for route in app.routes} | described if path and "{" not in path
    }
    async with serving(tmp_path, SimulatedNode("n1", "t4-4")) as extender:
        for path in paths:
            async with extender.session.get(extender.url + path) as response:
                text = await response.text()
                assert not re.search(r"https?://(?!www\.w3\.org)", text), path
                if response.content_type == "text/html":
                    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'"), path
    assert {"/", "/decisions", "/openapi.json", "/v1/inspect/nodes"} <= paths


@pytest.mark.slow
def test_the_schema_of_the_configuration_has_the_name_of_its_kind() -> None:
    """With the sections of features, and whatever our class is called."""
    schema = application(load(None, {}, {})).openapi()
    assert schema["paths"]["/v1/inspect/config"]["get"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ] == {"$ref": "#/components/schemas/ExtenderConfiguration"}
    document = schema["components"]["schemas"]["ExtenderConfiguration"]
    assert document["description"] == "The whole document."
    assert len(document["properties"]) == len(WholeConfiguration.model_fields)


@pytest.mark.slow
async def test_a_page_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    """Whoever watches asks every few seconds."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4")) as extender:
        async with extender.session.get(f"{extender.url}/nodes/n1") as first:
            tag = first.headers["ETag"]
        async with extender.session.get(f"{extender.url}/nodes/n1", headers={"If-None-Match": tag}) as again:
            assert (again.status, await again.read()) == (304, b"")
        async with extender.session.get(f"{extender.url}/nodes/n1", headers={"If-None-Match": '"other"'}) as changed:
            assert changed.status == 200


@pytest.mark.slow
async def test_the_cluster_opens_block_by_block_and_rack_by_rack(tmp_path: Path) -> None:
    """Each level leads to the next one, and to the nodes inside."""
    where = [("b1", "r1"), ("b1", "r2"), ("b2", "r1")]
    labels = [{"topology.kubernetes.io/block": block, "topology.kubernetes.io/rack": rack} for block, rack in where]
    nodes = [SimulatedNode(f"n{number}", "t4-4", labels=each) for number, each in enumerate(labels)]
    async with serving(tmp_path, *nodes) as extender:
        front, block, rack = [(await extender.get(path))[1] for path in ("/", "/?block=b1", "/?block=b1&rack=r2")]
    assert "/?block=b1" in links(front)
    assert "/?block=b1&rack=r2" in links(block)
    shown = [{target for target in links(page) if target.startswith("/nodes/")} for page in (front, block, rack)]
    assert shown == [{"/nodes/n0", "/nodes/n1", "/nodes/n2"}, {"/nodes/n0", "/nodes/n1"}, {"/nodes/n1"}]


@pytest.mark.slow
async def test_a_legend_explains_no_colour_that_the_page_does_not_have(tmp_path: Path) -> None:
    """By holder, a GPU that is claimed has the colour of its pod."""
    claimed = '<span class="chip claimed" aria-hidden="true">·</span>'
    async with serving(tmp_path, SimulatedNode("n1", "t4-4")) as extender:
        for path in ("/", "/nodes"):
            assert claimed in (await extender.get(path))[1]
            assert claimed not in (await extender.get(f"{path}?colour=holder"))[1]


@pytest.mark.slow
async def test_a_level_without_a_name_in_the_address_is_none(tmp_path: Path) -> None:
    """Forms and scripts send the names of fields that are empty."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4", labels={"topology.kubernetes.io/rack": "r1"})) as extender:
        assert "/nodes/n1" in links((await extender.get("/?block=&rack=&nvlink-domain="))[1])


@pytest.mark.slow
async def test_a_picture_shows_who_has_each_gpu_and_the_ring_that_is_asked_for(tmp_path: Path) -> None:
    """By letter and colour; the ring of one pod at a time."""
    async with serving(tmp_path, SimulatedNode("n1", "dgx-1v")) as extender:
        loop = SchedulerLoop(extender.api, extender.session, extender.url)
        await loop.schedule(await extender.create("train", 4))
        _, plain = await extender.get("/v1/inspect/nodes/n1/topology.svg")
        _, ringed = await extender.get("/v1/inspect/nodes/n1/topology.svg?pod=default/train")
    assert plain.count("held by A: default/train") == 4
    assert ("link ring" in plain, ringed.count('"link ring"')) == (False, 4)


@pytest.mark.slow
@pytest.mark.parametrize("path", JSON)
async def test_json_waits_while_a_call_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """As pages do: it begins with a gap, which ends when the calls of kube-scheduler do."""
    gap_began, calls_ended = asyncio.Event(), asyncio.Event()

    async def gap(calls: CallsFirst) -> None:
        gap_began.set()
        await calls_ended.wait()

    async with serving(tmp_path, SimulatedNode("n1", "t4-4")) as extender:
        monkeypatch.setattr(CallsFirst, "gap", gap)
        reading = asyncio.create_task(extender.get(path))
        beginning = asyncio.create_task(gap_began.wait())
        done, _ = await asyncio.wait({reading, beginning}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {beginning}
        calls_ended.set()
        assert (await reading)[0] in (200, 404)


@pytest.mark.slow
async def test_what_if_waits_while_a_call_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides on all nodes."""
    gaps = 0
    real = CallsFirst.gap

    async def gap(calls: CallsFirst) -> None:
        nonlocal gaps
        gaps += 1
        await real(calls)

    async with serving(tmp_path, SimulatedNode("n1", "t4-4")) as extender:
        monkeypatch.setattr(CallsFirst, "gap", gap)
        body = json.dumps(gpu_pod("new", 1))
        async with extender.session.post(f"{extender.url}/v1/inspect/what-if", data=body) as answer:
            assert answer.status == 200
    assert gaps > 0


@pytest.mark.slow
async def test_the_configuration_in_force_can_be_read(tmp_path: Path) -> None:
    """As it would be written."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4"), settings={"scheduling.candidates": "3"}) as extender:
        _, text = await extender.get("/v1/inspect/config")
        assert json.loads(text)["scheduling"]["candidates"] == 3


def test_a_node_page_shows_what_other_health_agents_say() -> None:
    """Each word with who says it, why, and whether it closes the node; without any there is no such table."""
    sign = SIGN.model_copy(update={"name": "XIDErrors", "value": "True", "agent": "AKS", "detail": "XID 79"})
    page = "".join(pages.node_page(DETAIL.model_copy(update={"signs": (sign,)}), []))
    for shown in ("condition XIDErrors=True", "AKS", "XID 79", "What other health agents say"):
        assert shown in page
    assert "other health agents" not in "".join(pages.node_page(DETAIL.model_copy(update={"signs": ()}), []))


def test_a_node_page_shows_devices_of_which_nobody_tells_the_gpu() -> None:
    """Each with the ResourceClaim that holds it; without any there is no such table."""
    device = ClaimedDeviceInfo(claim="ml/vm", device="gpu-vfio-0")
    page = "".join(pages.node_page(DETAIL.model_copy(update={"unknown_devices": (device,)}), []))
    assert "ml/vm" in page
    assert "gpu-vfio-0" in page
    assert "nobody tells" not in "".join(pages.node_page(DETAIL.model_copy(update={"unknown_devices": ()}), []))


def test_a_node_page_shows_how_the_device_plugin_offers_the_gpus() -> None:
    """GPUs that are offered alike in one row; nothing where no other device plugin serves."""
    offers = (OfferInfo(gpus=(0, 2), offered="whole as nvidia.com/gpu"), OfferInfo(gpus=(1,), offered="not offered"))
    page = "".join(pages.node_page(DETAIL.model_copy(update={"offers": offers}), []))
    for shown in ("What the device plugin offers", "0, 2", "whole as nvidia.com/gpu", "not offered"):
        assert shown in page
    assert "device plugin offers" not in "".join(pages.node_page(DETAIL.model_copy(update={"offers": ()}), []))
