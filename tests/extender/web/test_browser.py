"""The pages in a real browser: nothing on its console, nothing from elsewhere, live, and of use to everybody.

The pictures that it takes lie in `reports/web`, for people to look at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from benchmarks.processes.client import MERGE_PATCH
from benchmarks.simulated.fleet import SimulatedNode, join, mixed_fleet, share_pod
from benchmarks.simulated.scheduler_loop import SchedulerLoop
from extender.features.view.feature import View, ViewAccess
from extender.inspect.decisions import Alternative, Decision
from extender.inspect.fragmentation import Fits
from extender.inspect.history import History
from extender.inspect.room_over_time import EVERY_SECONDS
from extender.inspect.samples import GpuSample
from extender.inspect.sight import Sight
from extender.kit.clock import Instant
from tests.conftest import ROOT
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from tests.extender.web import axe
from tests.extender.web.browser import program, tab
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, LinkFault, NodeGpuStatus

pytestmark = [
    pytest.mark.waits,
    pytest.mark.skipif(program() is None, reason="no Chromium is installed (Debian: apt-get install chromium)"),
]

PICTURES = ROOT / "reports" / "web"
PAINTED_MS = 1_000
"""After which a person who waits for a page begins to think of something else."""
HOSTILE = "<img src=x onerror=hacked=1><script>hacked=1</script>\"'&amp;"
PAGES = {
    "overview": "/",
    "block": "/?block=b1",
    "holders": "/?colour=holder",
    "nodes": "/nodes?island=2&sort=free",
    "pods": "/pods?sort=age",
    "node": "/nodes/n1",
    "ring": "/nodes/n1?pod=default/train",
    "sick": "/nodes/n3",
    "shared": "/nodes/n5",
    "pod": "/pods/default/train",
    "waiting": "/pods/default/huge",
    "decisions": "/decisions",
    "fragmentation": "/fragmentation",
    "week": "/fragmentation?over=week",
    "missing": "/nodes/nowhere",
}


def where(block: str, rack: str) -> dict[str, str]:
    return {"topology.kubernetes.io/block": block, "topology.kubernetes.io/rack": rack}


HIDING = {"view.enabled": "true", "view.port": "0"}
"""Settings of a view."""
NODES = (
    SimulatedNode("n1", "dgx-1v", used=(0,), labels=where("b1", "r1")),
    SimulatedNode("n2", "dgx-a100", used=(0, 1, 2, 3, 4, 5), labels=where("b1", "r2")),
    SimulatedNode("n3", "hgx-h100", used=(0, 1, 2, 3, 4, 6), labels=where(HOSTILE, "r1")),
    SimulatedNode("n4", "l40s-8", used=(0, 1, 2, 3, 4, 5, 6)),
    SimulatedNode("n5", "dgx-a100", used=(3, 4, 5, 6, 7), shared_gpus=2),
)


@asynccontextmanager
async def inhabited(folder: Path) -> AsyncIterator[Running]:
    """Serve a small cluster with everything that pages show: holders, a sick GPU, pods that wait, decisions, a short past.

    Whoever reads the view may see no pod.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("extender.service.History", short_past)
        patched.setattr(View, "access", sees_no_pod)
        patched.setattr(View, "samples_of", busy_gpus)
        patched.setattr(View, "asks_for_tokens", False)
        async with serving(folder, *NODES, settings=HIDING) as extender:
            loop = SchedulerLoop(extender.api, extender.session, extender.url)
            await loop.schedule(await extender.create("train", 4))
            await loop.schedule(await extender.create("serve", 2))
            for name in ("notebook", "service"):
                shared = share_pod(name, 10)
                made = await extender.api.call("POST", "/api/v1/namespaces/default/pods", shared)
                await loop.schedule(made.ok())
            huge = await extender.create("huge", 8)
            await extender.post("filter", {"Pod": huge, "Nodes": None, "NodeNames": [node.name for node in NODES]})
            await extender.create(HOSTILE, 1)
            await sicken(extender, NODES[2], 5)
            yield extender


async def sees_no_pod(view: View, token: str, namespaces: Iterable[str], first: str) -> ViewAccess:
    return ViewAccess(Sight(frozenset(), unasked=1), None)


async def busy_gpus(view: View, node: str) -> dict[str, GpuSample]:
    return {gpu.uuid: GpuSample(0.93, 60 << 30, 80 << 30, 312.0, 400.0, 66.0) for gpu in NODES[0].topology.gpus}


def short_past() -> History:
    """Return what a feature has written of two minutes: a decision, and for how many pods there was room."""
    history = History()
    decision = Decision(
        number=1,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        namespace="default",
        name="serve",
        uid="serve",
        node="n2",
        indexes=(6, 7),
        gb_per_s=200.0,
        best_gb_per_s=200.0,
        loss=0.5,
        alternative=Alternative("n1", 40.0, 1.5),
    )
    history.decisions.add(decision)
    for minute in range(2):
        history.room.add(Instant(minute * EVERY_SECONDS, minute * EVERY_SECONDS), {1: Fits(3, 3, 8), 2: Fits(1, 2, 4)})
    return history


async def sicken(extender: Running, node: SimulatedNode, position: int) -> None:
    """Have the node's agent say that a GPU is sick, and one of its NVLinks dead."""
    gpus = tuple(
        GpuStatus(gpu.uuid, healthy=at != position, reasons=(f"XID 79: {HOSTILE}",) if at == position else ())
        for at, gpu in enumerate(node.topology.gpus)
    )
    dead = LinkFault(node.topology.gpus[position].uuid, 3, HOSTILE)
    annotations = {keys.STATUS: encode_status(NodeGpuStatus(1, gpus, link_faults=(dead,)))}
    patch = {"metadata": {"annotations": annotations}}
    (await extender.api.call("PATCH", f"/api/v1/nodes/{node.name}", patch, content_type=MERGE_PATCH)).ok()

    async def seen() -> bool:
        return "XID 79" in (await extender.get(f"/v1/inspect/nodes/{node.name}"))[1]

    assert await eventually(seen)


def keep(name: str, picture: bytes) -> None:
    """Put a picture where people find it."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.png").write_bytes(picture)


async def test_no_page_makes_the_browser_complain(tmp_path: Path) -> None:
    """No error, no broken policy, no request to anybody else, no markup from names; by day, by night and on paper."""
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        assert (await extender.get("/"))[1].count("too few GPUs are free") == 1
        for name, path in PAGES.items():
            for scheme, medium in (("light", "screen"), ("dark", "screen"), ("light", "print")):
                await page.look(scheme, medium)
                await page.open(extender.url + path)
                shown = scheme if medium == "screen" else medium
                keep(f"{name}-{shown}", await page.screenshot())
                assert await page.value("typeof hacked") == "undefined"
                assert await page.value("document.querySelectorAll('img').length") == 0
        complaints = [each for each in page.complaints if "/nodes/nowhere" not in each]
        assert complaints == []
        assert all(url.startswith((extender.url, "data:")) for url in page.requested)


async def test_nothing_keeps_people_with_a_screen_reader_or_a_keyboard_out(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """By axe-core: no finding that it calls serious or critical, by day and by night."""
    try:
        script = axe.source(tmp_path)
    except axe.AxeUnavailable as reason:
        pytest.skip(str(reason))
    passed = 0
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        hidden = (extender.view_url + path for path in ("/?colour=holder", "/nodes/n1", "/pods", "/nodes"))
        for path in (*(extender.url + path for path in PAGES.values()), *hidden):
            for scheme in ("light", "dark"):
                await page.look(scheme)
                await page.open(path)
                await page.value(f"{script};0")
                told = await page.value(
                    "axe.run().then(({violations, passes}) => ({violations, passes: passes.length}))"
                )
                assert grave(told["violations"]) == [], f"{path} {scheme}"
                passed += told["passes"]
    figure(
        f"web: axe-core {axe.VERSION}: 0 serious findings on {len(PAGES) + 4} pages, light and dark; {passed} checks passed"
    )


def grave(violations: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return what matters of axe's findings: the rule, and the elements that break it."""
    return [
        (found["id"], [f"{node['html'][:200]} {node['failureSummary']}" for node in found["nodes"]])
        for found in violations
        if found["impact"] in ("serious", "critical")
    ]


async def test_pages_are_no_wider_than_a_phone(tmp_path: Path) -> None:
    """Tables scroll in their cards; nothing else does, and links of the menu are large enough for a finger."""
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        size = {"width": 375, "height": 667, "deviceScaleFactor": 2, "mobile": True}
        await page.call("Emulation.setDeviceMetricsOverride", **size)
        for name, path in PAGES.items():
            await page.open(extender.url + path)
            keep(f"{name}-phone", await page.screenshot())
            assert await page.value("document.documentElement.scrollWidth") <= 375, path
        height = "document.querySelector('.menu a').getBoundingClientRect().height"
        assert await page.value(height) >= 24


async def test_a_page_keeps_up_without_being_loaded_again(tmp_path: Path) -> None:
    """A new pod appears; what a person has typed and where the keyboard stands is left alone."""
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await page.open(extender.url)
        await page.value("window.same = true, document.querySelector('input[type=search]').value = 'typed'")
        await page.value("document.querySelector('#waiting a[href=\"/pods/default/huge\"]').focus()")
        await extender.create("newcomer", 64)
        await page.becomes("document.querySelector('#waiting').textContent.includes('default/newcomer')")
        assert await page.value("window.same")
        assert await page.value("document.querySelector('input[type=search]').value") == "typed"
        assert await page.value("document.activeElement.getAttribute('href')") == "/pods/default/huge"
        assert page.complaints == []


async def test_whoever_wants_a_page_to_stand_still_can_stop_it(tmp_path: Path) -> None:
    """With one button."""
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await page.open(extender.url)
        await page.value("document.querySelector('#liveliness button').click()")
        assert await page.value("document.querySelector('[role=status]').textContent") == "stands still"
        before = len(page.requested)
        await page.value("new Promise(done => setTimeout(done, 7000))")
        assert len(page.requested) == before


async def test_a_page_says_when_it_is_not_up_to_date(tmp_path: Path) -> None:
    """The extender is gone: what is shown stays, and is called old."""
    async with tab(tmp_path / "profile") as page:
        async with inhabited(tmp_path) as extender:
            await page.open(extender.url)
        await page.becomes("document.querySelector('[role=status]').textContent.startsWith('not up to date')")
        assert await page.value("document.querySelectorAll('#nodes tbody tr').length") == len(NODES)


async def test_the_ring_of_the_pod_under_pointer_or_keyboard_is_drawn(tmp_path: Path) -> None:
    """And the usual picture comes back."""
    drawn = "document.querySelector('object.picture').contentDocument?.querySelectorAll('.link.ring').length"
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await page.open(f"{extender.url}/nodes/n1")
        assert await page.value(drawn) == 0
        await page.value("document.querySelector('[data-ring$=train]').focus()")
        await page.becomes(f"{drawn} > 0")
        await page.value("document.activeElement.blur()")
        await page.becomes(f"{drawn} === 0")


# Where the first GPU of `train` is in the window, and of how many GPUs the rings are that the picture shows.
GPU = """(() => {
  const picture = document.querySelector('object.picture');
  picture.scrollIntoView({block: 'center'});
  const drawn = picture.contentDocument, seen = picture.getBoundingClientRect();
  const held = [...drawn.querySelectorAll('[class^=held-by]')].find((gpu) => gpu.textContent.includes('default/train'));
  const box = held.querySelector('.gpu').getBoundingClientRect();
  const scale = seen.width / drawn.documentElement.getBoundingClientRect().width;
  return [seen.x + scale * (box.x + box.width / 2), seen.y + scale * (box.y + box.height / 2)];
})()"""
SHOWN = """[...document.querySelector('object.picture').contentDocument.querySelectorAll('.of-a-pod')]
  .filter((ring) => getComputedStyle(ring).visibility === 'visible')
  .map((ring) => ring.querySelectorAll('.around').length).join()"""


async def test_pointing_at_a_gpu_shows_the_ring_of_its_pod(tmp_path: Path) -> None:
    """As long as the pointer is there, and that ring alone; the picture runs no script for it."""
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await page.open(f"{extender.url}/nodes/n1")
        assert await page.value(SHOWN) == ""
        await page.point(await page.value(GPU))
        await page.becomes(f"{SHOWN} === '4'")
        keep("pointed", await page.screenshot())
        await page.point((1, 1))
        await page.becomes(f"{SHOWN} === ''")
        assert page.complaints == []


async def test_nvlinks_that_are_not_used_are_drawn_with_their_reason(tmp_path: Path) -> None:
    """What the agent wrote is text, whatever it is."""
    drawn = "document.querySelector('object.picture').contentDocument"
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await page.open(f"{extender.url}/nodes/n3")
        stumps = f"[...{drawn}.querySelectorAll('g:has(> .link.unused) > title')].map((title) => title.textContent)"
        keep("unused", await page.screenshot())
        assert await page.value(stumps) == [f"GPU 5: NVLink 3 not used: {HOSTILE}"]
        assert await page.value("window.hacked") is None
        assert page.complaints == []


async def test_the_keyboard_reaches_the_content_first(tmp_path: Path) -> None:
    """One key to the link that skips what every page begins with."""
    async with inhabited(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await page.open(extender.url)
        await page.press("Tab")
        assert await page.value("document.activeElement.getAttribute('href')") == "#main"


@pytest.mark.parametrize("nodes", [500, 5_000])
async def test_time_until_a_large_cluster_is_seen(
    tmp_path: Path, nodes: int, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """From the click until the nodes are painted; the front page shows the first fifty, and how to reach the others."""
    racks = [
        SimulatedNode(each.name, each.machine, labels=where(f"b{number // 500}", f"r{number // 25}"))
        for number, each in enumerate(mixed_fleet(nodes))
    ]
    async with serving(tmp_path) as extender, tab(tmp_path / "profile") as page:
        await join(extender.api, racks)
        await eventually(lambda: knows(extender, nodes), timeout_seconds=300)
        begun = monotonic()
        await page.open(extender.url)
        whole = monotonic() - begun
        assert await page.value("document.querySelectorAll('#nodes tbody tr').length") == 50
        painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        await page.becomes("performance.getEntriesByName('first-contentful-paint').length > 0")
        seen = await page.value(painted)
        figure(
            f"web: front page of {nodes:,} nodes painted after {seen:.0f} ms (goal {PAINTED_MS}), "
            f"loaded after {1000 * whole:.0f} ms"
        )
        assert seen <= goal(PAINTED_MS)


async def knows(extender: Running, nodes: int) -> bool:
    """Whether the extender has heard of so many nodes."""
    return f"gputopo_nodes {nodes}.0" in (await extender.get("/metrics", extender.health_url))[1]
