"""The decisions and the room of a served extender are remembered, and shown as pages, as JSON and by the plugin."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.scheduler_loop import SchedulerLoop
from extender.binding.outcome import BindTarget, Chosen
from extender.features.quality.feature import Quality
from extender.features.quality.series import QUALITY
from extender.inspect.decisions import Decision
from extender.inspect.history import History
from extender.kit.clock import Instant
from extender.telemetry.metrics import Metrics
from tests.extender.builders import PAIRS, cluster, finish
from tests.extender.plugin import invoke
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from topology.formats.catalog import machine
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest


def test_a_decision_tells_the_best_of_an_empty_node_and_the_loss_as_the_score_weighs_it() -> None:
    """In the round after its bind; when, is when it was bound."""
    compiled = TopologyClass(machine(PAIRS))
    found = decide(Situation(compiled, 0b101), GpuRequest.plain(2))
    best = decide(Situation(compiled, 0xFF), GpuRequest.plain(2))
    assert isinstance(found, Placement)
    assert isinstance(best, Placement)
    assert found.bandwidth
    assert best.bandwidth
    assert found.value_lost is not None
    history = History()
    quality = Quality(cluster(), Metrics("digest", QUALITY), lambda: Instant(5.0, 90.0), history, pods_to_come=0.7)
    quality.judge_later(BindTarget("ml", "p", "uid", "n1"), Chosen(GpuRequest.plain(2), found, compiled))
    assert history.decisions.page(1).decisions == ()
    finish(quality.round())
    assert history.decisions.page(1).decisions == (
        Decision(
            number=1,
            at=datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC),
            namespace="ml",
            name="p",
            uid="uid",
            node="n1",
            indexes=(0, 2),
            gb_per_s=found.bandwidth.point,
            best_gb_per_s=best.bandwidth.point,
            loss=0.7 * found.value_lost,
            alternative=None,
        ),
    )


@pytest.mark.slow
async def test_a_served_extender_shows_what_it_bound_and_what_else_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the calls that kube-scheduler makes, as pages and as JSON."""
    monkeypatch.setattr("extender.features.quality.feature.ROUND_SECONDS", 0.05)
    async with serving(tmp_path, SimulatedNode("n1", PAIRS), SimulatedNode("n2", "dgx-1v")) as extender:
        loop = SchedulerLoop(extender.api, extender.session, extender.url)
        for name, count in (("one", 1), ("two", 2), ("four", 4)):
            await loop.schedule(await extender.create(name, count))
        assert await eventually(lambda: is_remembered(extender, 3))
        assert await eventually(lambda: is_counted(extender))
        found = json.loads((await extender.get("/v1/inspect/decisions?limit=2"))[1])
        rest = json.loads((await extender.get(f"/v1/inspect/decisions?after={found['next']}"))[1])
        _, page = await extender.get("/decisions")
        _, older = await extender.get(f"/decisions?after={found['next']}")
        _, odd = await extender.get("/decisions?after=%C2%B2%00<script>")
        asked = ("why", "four", "-n", "default", "--kubeconfig", str(tmp_path / "kubeconfig"))
        told = await asyncio.to_thread(invoke, *asked, "-o", "wide", "--extender", extender.url)
        forgotten = await asyncio.to_thread(invoke, *asked)
        room = json.loads((await extender.get("/v1/inspect/fragmentation"))[1])
        _, drawn = await extender.get("/fragmentation")
    assert [each["name"] for each in (*found["decisions"], *rest["decisions"])] == ["four", "two", "one"]
    four = found["decisions"][0]
    assert {four["node"], four["alternative"]["node"]} == {"n1", "n2"}
    assert four["gb_per_s"] == four["best_gb_per_s"] > four["alternative"]["gb_per_s"]
    first, _, *choice = told.stdout.splitlines()
    assert first == f"default/four: on {four['node']}"
    assert (
        f"Z; predicted {four['gb_per_s']:.0f} GB/s (the node's best is {four['best_gb_per_s']:.0f}); future pods"
        in choice[0]
    )
    assert choice[1].startswith(f"preferred to {four['alternative']['node']}; predicted ")
    assert "--extender asks the extender that bound it" in forgotten.stdout
    assert re.findall(r'href="/pods/default/(\w+)"', page) == ["four", "two", "one"]
    assert re.findall(r'href="/pods/default/(\w+)"', older) == ["one"]
    assert "<script>" not in odd
    assert [size["gpus"] for size in room["sizes"]] == [1, 2, 4, 8]
    assert drawn.count('role="img"') == 4


async def is_counted(extender: Running) -> bool:
    """Whether the room was counted once."""
    return bool(json.loads((await extender.get("/v1/inspect/fragmentation"))[1])["sizes"])


async def is_remembered(extender: Running, count: int) -> bool:
    """Whether so many decisions are."""
    return len(json.loads((await extender.get("/v1/inspect/decisions"))[1])["decisions"]) == count
