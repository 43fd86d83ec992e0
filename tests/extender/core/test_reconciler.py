"""Between calls a served extender puts right what strangers did to ledgers and pods, and says so."""

from __future__ import annotations

import time
from asyncio import Lock
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from benchmarks.processes.client import MERGE_PATCH, Json
from benchmarks.simulated.double.resources import EVENTS, NODES
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from extender.binding.driver import Driver
from extender.binding.intents import FencePod, Intent, Refused, Reply
from extender.core.reconciler import CONFLICT_SECONDS, Reconciler
from extender.kubernetes.events import CONFLICT, EventRecorder
from extender.telemetry.core import LEDGER_REPAIRS
from extender.telemetry.metrics import Metrics
from tests.dra import allocated, read_claim
from tests.extender.builders import pod
from tests.extender.cluster.test_nodes_by_claim import published, reported, user
from tests.extender.four_gpus import MACHINE
from tests.extender.polling import until
from tests.extender.serving import Running, serving
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.annotations.records import (
    Holder,
    Observed,
    PlacementRecord,
    decode_ledger,
    encode_ledger,
    encode_observed,
    encode_placement,
)
from topology.errors import PayloadError

N1 = SimulatedNode("n1", "t4-4", used=(0, 1))
UUIDS = tuple(gpu.uuid for gpu in N1.topology.gpus)


def written_on(extender: Running, node: str = "n1") -> dict[str, str]:
    found: dict[str, str] = extender.store.get(NODES, "", node)["metadata"]["annotations"]
    return found


def claims(extender: Running, node: str = "n1") -> dict[str, str]:
    """Return GPU → pod, nothing of a ledger that cannot be read."""
    try:
        return {claim.gpu: claim.name for claim in decode_ledger(written_on(extender, node)[keys.LEDGER]).claims}
    except (KeyError, PayloadError):
        return {}


async def annotate(extender: Running, node: str, key: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {key: value}}}
    (await extender.api.call("PATCH", f"/api/v1/nodes/{node}", patch, content_type=MERGE_PATCH)).ok()


async def bind_around(extender: Running, name: str, gpus: int, placed: tuple[str, ...] = ()) -> None:
    """Bind a pod to n1 as somebody else would, with a record of his own making."""
    pods = "/api/v1/namespaces/default/pods"
    (await extender.api.call("POST", pods, gpu_pod(name, gpus))).ok()
    record = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": placed}))} if placed else {}
    binding = {"metadata": {"name": name, "annotations": record}, "target": {"name": "n1"}}
    (await extender.api.call("POST", f"{pods}/{name}/binding", binding)).ok()


def events_of(extender: Running, reason: str) -> list[Json]:
    """Return the events of a reason."""
    return [item for item in extender.store.list(EVENTS).items if item["reason"] == reason]


def told(extender: Running, reason: str) -> list[Json]:
    """Return what the events of a reason are about."""
    return [item["involvedObject"] for item in events_of(extender, reason)]


@pytest.mark.slow
@pytest.mark.parametrize("text", [None, "{", '{"v":1,"generation":1,"claims":[]}'])
async def test_a_damaged_ledger_is_rebuilt_and_the_node_is_told(text: str | None, tmp_path: Path) -> None:
    """C15: two events on the node, one count, and the ledger as it was."""
    async with serving(tmp_path, N1) as extender:
        before = claims(extender)
        await annotate(extender, "n1", keys.LEDGER, text)
        await until(lambda: claims(extender) == before)
        await until(lambda: told(extender, "GPULedgerBroken") and told(extender, "GPULedgerRebuilt"))
        assert {about["kind"] for about in told(extender, "GPULedgerBroken")} == {"Node"}
        assert 'gputopo_ledger_repairs_total{kind="rebuilt"} 1.0' in (await extender.get("/metrics"))[1]


@pytest.mark.slow
async def test_the_gpus_of_a_node_are_recorded(tmp_path: Path) -> None:
    """After an upgrade: the ledger of an earlier version says nothing of them, and the claims stay."""
    async with serving(tmp_path, N1) as extender:
        before = decode_ledger(written_on(extender)[keys.LEDGER])
        older = replace(before, generation=before.generation + 10_000, gpus=None)
        await annotate(extender, "n1", keys.LEDGER, encode_ledger(older))
        await until(lambda: decode_ledger(written_on(extender)[keys.LEDGER]).gpus == tuple(sorted(UUIDS)))
        assert decode_ledger(written_on(extender)[keys.LEDGER]).claims == before.claims


@pytest.mark.slow
async def test_a_stranger_is_adopted(tmp_path: Path) -> None:
    """C18: its node counts it at once, and its ledger names it once the agent does."""
    async with serving(tmp_path, N1) as extender:
        await bind_around(extender, "stranger", 1)
        holders = {gpu: Holder("default", "n1-occupant", "main") for gpu in UUIDS[:2]}
        observed = Observed(holders | {UUIDS[3]: Holder("default", "stranger", "main")})
        await annotate(extender, "n1", keys.OBSERVED, encode_observed(observed))
        await until(lambda: claims(extender).get(UUIDS[3]) == "stranger")
        await until(lambda: told(extender, "GPUPlacementAdopted"))


@pytest.mark.slow
async def test_a_pod_that_runs_on_other_gpus_is_corrected_and_told(tmp_path: Path) -> None:
    """N9: its claims follow the agent's report, with an event on the pod and a count."""
    async with serving(tmp_path, N1) as extender:
        real = Observed({gpu: Holder("default", "n1-occupant", "main") for gpu in UUIDS[2:]})
        await annotate(extender, "n1", keys.OBSERVED, encode_observed(real))
        await until(lambda: claims(extender) == dict.fromkeys(UUIDS[2:], "n1-occupant"))
        await until(lambda: [about["name"] for about in told(extender, "GPUPlacementCorrected")] == ["n1-occupant"])
        assert 'gputopo_ledger_repairs_total{kind="moved"} 1.0' in (await extender.get("/metrics"))[1]


@pytest.mark.slow
async def test_pods_with_one_gpu_are_told_of_it(tmp_path: Path) -> None:
    """C16: both pods and the node, a gauge, and a state that people can see; only the node's event names the pods."""
    async with serving(tmp_path, N1) as extender:
        await bind_around(extender, "forger", 2, placed=UUIDS[:2])
        await until(lambda: len({about["name"] for about in told(extender, "GPUConflict")}) == 3)
        assert "gputopo_gpus_in_conflict 2.0" in (await extender.get("/metrics"))[1]
        assert '"conflict"' in (await extender.get("/v1/inspect/nodes/n1"))[1]
        said = {item["involvedObject"]["name"]: item["message"] for item in events_of(extender, "GPUConflict")}
        assert all(f"default/{name}" in said["n1"] for name in ("n1-occupant", "forger"))
        assert "forger" not in said["n1-occupant"]
        assert "n1-occupant" not in said["forger"]


@pytest.mark.slow
async def test_a_silent_agent_is_told_of_and_its_node_closes(tmp_path: Path) -> None:
    """N2: event, gauge and reason; the pod that runs there keeps its claims."""
    async with serving(tmp_path, N1, settings={"agents.silence": "300ms"}) as extender:
        await until(lambda: told(extender, "GPUAgentSilent"))
        assert "gputopo_nodes_silent 1.0" in (await extender.get("/metrics"))[1]
        assert "has not reported for too long" in (await extender.get("/v1/inspect/nodes/n1"))[1]
        assert set(claims(extender).values()) == {"n1-occupant"}


async def test_a_fence_that_is_refused_for_good_is_told_once_a_minute() -> None:
    """Somebody else's webhook keeps nodes closed; whoever reads the log learns of which pod, and why."""
    world = World("n1", machine_name=MACHINE, ledgers=False)
    world.add_pod("waits")
    replica, metrics = Replica(world), Metrics("", [LEDGER_REPAIRS])

    async def execute(intent: Intent, seconds: float) -> Reply:
        return Refused(403, "no status for you") if isinstance(intent, FencePod) else world.execute(intent)

    events, turns = EventRecorder(partial(pytest.fail, "nothing is sent")), defaultdict[str, Lock](Lock)
    upkeep = Reconciler(
        state=replica.state,
        timers=replica.attention,
        driver=Driver(execute, replica.clock, 3.0),
        lock_of=turns.__getitem__,
        events=events,
        metrics=metrics,
    )
    with capture_logs() as lines:
        for _ in range(35):
            await upkeep.round()
            replica.seconds += 2.0
    assert [(line["pod"], line["reason"]) for line in lines] == [("default/waits", "no status for you")] * 2


@pytest.mark.slow
async def test_a_tenth_of_500_ledgers_is_rebuilt_within_30_seconds(
    tmp_path: Path, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """C15: none is lost, whatever was done to them."""
    nodes = [SimulatedNode(f"n{number}", "t4-4", used=(0, number % 4 or 3)) for number in range(500)]
    damaged = [node.name for node in nodes[::10]]
    async with serving(tmp_path, *nodes) as extender:
        before = {node.name: claims(extender, node.name) for node in nodes}
        began = time.monotonic()
        for number, name in enumerate(damaged):
            await annotate(extender, name, keys.LEDGER, (None, "{", '{"v":1,"generation":1,"claims":[]}')[number % 3])
        await until(lambda: all(claims(extender, name) == before[name] for name in damaged), goal(30))
        figure(f"C15: 50 of 500 ledgers were rebuilt after {time.monotonic() - began:.2f} s (goal 30)")
        assert {node.name: claims(extender, node.name) for node in nodes} == before


@pytest.mark.parametrize(("rounds", "is_told"), [(1, False), (2, True)])
async def test_a_gpu_that_a_claim_explains_by_the_next_round_is_in_no_conflict(rounds: int, is_told: bool) -> None:
    """A watch may show a claim after the agent's report. Pods and nodes hear only of what lasts."""
    replica, monitor = Replica(World("n1")), read_claim(allocated("monitor", "n1", "gpu-0", admin=True))
    state = published(ledger=("p",))
    state.pods.changed(pod("p", on="n1"))
    reported(state, user("dcgm", "monitor", "gpu-0"))
    assert state.conditions.in_conflict == {"n1"}
    events, turns = EventRecorder(partial(pytest.fail, "nothing is sent")), defaultdict[str, Lock](Lock)
    reconciler = Reconciler(
        state=state,
        timers=replica.attention,
        driver=Driver(partial(pytest.fail, "nothing is written"), replica.clock, 3.0),
        lock_of=turns.__getitem__,
        events=events,
        metrics=Metrics("", [LEDGER_REPAIRS]),
    )
    for _ in range(rounds):
        await reconciler.round()
        replica.seconds += CONFLICT_SECONDS
    state.claims.changed(monitor)
    await reconciler.round()
    assert not state.conditions.in_conflict
    assert events.is_news("p", CONFLICT) != is_told
