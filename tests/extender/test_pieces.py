"""No piece of work on the event loop grows with the number of nodes: others have their turns between two heavy nodes."""

from __future__ import annotations

import asyncio
from asyncio import Lock
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from extender.binding.driver import Driver
from extender.cluster.caches.topology_changes import CHANGES, WINDOW_SECONDS
from extender.cluster.candidates.shape import Shape
from extender.cluster.objects.kinds import Node
from extender.cluster.objects.topologies import NodeGpus, Topologies
from extender.cluster.state import ClusterState
from extender.core.reconciler import Reconciler
from extender.inspect import inspection
from extender.inspect.faults import Faults
from extender.inspect.judgement import NODES_A_STEP, barred_nodes, prepare_judgement
from extender.kit.calls_first import CallsFirst
from extender.kit.turns import TURN_SECONDS
from extender.kubernetes.events import EventRecorder
from extender.service import Extender
from extender.telemetry.core import LEDGER_REPAIRS
from extender.telemetry.metrics import Metrics
from extender.verbs import preparing
from extender.web.views import list_nodes
from tests.extender.builders import DGX, at, claim, cluster, gpus, node, pod
from tests.extender.mig import cut
from tests.extender.virtual_time import VirtualTimeLoop, in_virtual_time
from tests.extender.world import Replica, World
from topology.annotations.codec import encode_topology
from topology.effort import finish
from topology.formats.catalog import machine
from topology.node.model import Gpu, NodeTopology
from topology.node.silicon import Excluded, Silicon

HEAVY_SECONDS = 0.02
"""What one node may cost at once; see `test_worst_topology`."""


def busy(seconds: float) -> None:
    """Take the loop's time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(seconds)


async def longest_wait(work: Awaitable[object]) -> float:
    """Return for how long others had no turn while something was done."""
    clock, waits = asyncio.get_running_loop().time, [0.0]

    async def others() -> None:
        while True:
            began = clock()
            await asyncio.sleep(0)
            waits.append(clock() - began)

    waiting = asyncio.create_task(others())
    await asyncio.sleep(0)
    await work
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    return max(waits)


@in_virtual_time
async def test_others_have_their_turns_between_the_rows_of_a_page() -> None:
    """As many rows at once as fit into a turn; all of them are there, in order."""
    step = TURN_SECONDS / 4

    def row(number: int) -> int:
        busy(step)
        return number

    async def rows() -> None:
        assert await CallsFirst().listed(map(row, range(100))) == list(range(100))

    assert await longest_wait(rows()) <= TURN_SECONDS + 2 * step


def test_a_list_of_heavy_nodes_is_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page costs at once is the cost of one node."""
    state = cluster(*(node(f"n{number}") for number in range(12)))
    real = inspection._node

    def heavy(*given: Any) -> Any:
        busy(HEAVY_SECONDS)
        return real(*given)

    monkeypatch.setattr(inspection, "_node", heavy)
    extender = cast("Extender", SimpleNamespace(state=state, calls=CallsFirst()))

    @in_virtual_time
    async def look() -> None:
        async def page() -> None:
            answer = msgspec.json.decode((await list_nodes(extender, limit=9)).body)
            assert [row["name"] for row in answer["nodes"]] == sorted(state.views)[:9]

        assert await longest_wait(page()) <= HEAVY_SECONDS + TURN_SECONDS

    look()


def test_nodes_are_decided_on_in_slices_before_a_waiting_pod_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shape in each here; the explanation itself decides on none."""
    monkeypatch.setattr(preparing, "PREPARE_STEPS", 1)
    held = {f"n{count}": gpus(f"n{count}", *range(count)) for count in range(4)}
    nodes = (node(name, claims=tuple(claim(gpu, f"on-{name}") for gpu in there)) for name, there in held.items())
    state = cluster(*nodes, pod("waits", 3))
    waits = state.pods.get("waits")
    assert waits
    assert len([*prepare_judgement(state, waits.pod, at())]) == 3
    monkeypatch.delattr(Shape, "decide")
    explanation = inspection.explain(state, "ml", "waits", at())
    assert explanation
    assert len(explanation.fits) == 4


@pytest.mark.slow
def test_labels_and_taints_of_many_nodes_are_read_in_steps() -> None:
    """So that who asks about a waiting pod takes turns; the answer takes what was read."""
    state = cluster(*(node(f"n{number}") for number in range(3 * NODES_A_STEP)), pod("waits", 1))
    waits = state.pods.get("waits")
    assert waits
    spec = msgspec.structs.replace(waits.pod.spec, node_selector={"pool": "b"})
    steps = barred_nodes(state, msgspec.structs.replace(waits.pod, spec=spec))
    for _ in range(3):
        next(steps)
    assert len(finish(steps)) == 3 * NODES_A_STEP


def test_a_node_that_goes_while_others_are_shown_is_left_out() -> None:
    """The names were read before."""
    state = cluster(node("n1"), node("n2"), node("n3"))
    rows = inspection.nodes(state, ["n1", "n2", "n3"], at())
    assert next(rows).name == "n1"
    state.nodes.deleted(node("n2", version=2))
    assert [row.name for row in rows] == ["n3"]


def restless(state: ClusterState, *names: str) -> None:
    """Change the topology of each node so often that it is not read any more."""
    for version in range(2, CHANGES + 4):
        for name in names:
            state.nodes.changed(flipped(name, version))


def flipped(name: str, version: int) -> Node:
    text = encode_topology(machine(DGX if version % 2 else "t4-4", host=name))
    return node(name, version=version, topology=text)


def test_topologies_that_are_still_since_the_same_moment_are_read_one_a_step() -> None:
    """A node that changes in between is read as it is then."""
    names = ("n1", "n2", "n3")
    state = cluster(*map(node, names))
    restless(state, *names)
    assert state.views["n1"].payloads.topology.problem is not None
    steps = state.listening(WINDOW_SECONDS + 1.0)
    next(steps)
    state.nodes.changed(flipped("n2", 20))
    assert [state.views[name].payloads.topology.problem is None for name in names] == [True, True, False]
    assert len(list(steps)) == 1
    assert [state.views[name].shape.closed for name in names] == [None] * 3
    assert len(state.views["n2"].uuids) == 4


@pytest.mark.slow
def test_upkeep_lets_others_have_their_turns_between_two_such_topologies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round reads all that have been still."""
    replica, names = Replica(World("n1")), [f"r{number}" for number in range(6)]
    for name in names:
        replica.state.nodes.changed(node(name))
    restless(replica.state, *names)
    replica.state.refresh()
    real = Topologies.read

    def heavy(self: Topologies, text: str) -> NodeGpus:
        busy(HEAVY_SECONDS)
        return real(self, text)

    monkeypatch.setattr(Topologies, "read", heavy)

    async def execute(*_: object) -> Any:
        raise AssertionError("nothing is written")

    upkeep = Reconciler(
        state=replica.state,
        timers=replica.attention,
        driver=Driver(execute, replica.clock, 3.0),
        lock_of=defaultdict[str, Lock](Lock).__getitem__,
        events=EventRecorder(partial(pytest.fail, "nothing is sent")),
        metrics=Metrics("", [LEDGER_REPAIRS]),
    )

    @in_virtual_time
    async def look() -> None:
        replica.seconds = WINDOW_SECONDS + 1.0
        assert HEAVY_SECONDS <= await longest_wait(upkeep.round()) <= HEAVY_SECONDS + TURN_SECONDS

    look()


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count how often somebody asks what a device excludes."""
    count, real = [0], Excluded.across

    def across(self: Excluded, device: str) -> bool:
        count[0] += 1
        return real(self, device)

    monkeypatch.setattr(Excluded, "across", across)
    return lambda: count[0]


def test_the_row_of_a_large_node_costs_as_much_as_it_has_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """72 GPUs, each with a claim: nothing there is cut, so nothing is compared."""
    names = tuple(f"GPU-{number}" for number in range(72))
    topology = NodeTopology(tuple(Gpu(number, name, "x") for number, name in enumerate(names)))
    claims = tuple(claim(name, f"p{number}") for number, name in enumerate(names))
    state = cluster(node("n1", topology=encode_topology(topology), claims=claims))
    made, asked = counted(monkeypatch), list[object]()
    monkeypatch.setattr(Silicon, "excluded_by", lambda *given: asked.append(given))
    [shown] = inspection.nodes(state, ["n1"], at())
    assert (len(shown.gpus), made(), asked) == (72, 0, [])


def test_the_row_of_a_node_with_slices_compares_each_whole_gpu_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who have slices say it by themselves."""
    topology = cut("n1", {0: ("1g.10gb", "1g.10gb"), 1: ("1g.10gb",)})
    whole, part = topology.gpus[0].uuid, topology.slices[0].uuid
    state = cluster(node("n1", topology=encode_topology(topology), claims=(claim(whole, "p1"), claim(part, "p2"))))
    view, made = state.views["n1"], counted(monkeypatch)
    faults = Faults(view)
    reasons = {device: faults.of(position) for position, device in enumerate(view.devices)}
    assert [device for device, said in reasons.items() if "ml/p1 has the whole GPU" in said] == [
        piece.uuid for piece in topology.slices if piece.gpu == 0
    ]
    assert made() == len(view.devices)
