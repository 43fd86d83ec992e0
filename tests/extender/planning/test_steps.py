"""What the pods of a large cluster hold is looked at, and added up, in steps of a millisecond or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from extender.cluster import node_view
from extender.cluster.candidates.holds import Held
from extender.cluster.candidates.shape import Shape
from extender.cluster.candidates.shape_index import SHAPE_STEPS
from extender.features.queue.running import LOOKED_AT_ONCE, running_pods
from extender.planning import moves
from extender.planning.moves import GROUPED_AT_ONCE, MOST_MOVES_FOR_GANG, MovablePod, plan_moves
from extender.planning.planned_nodes import FILED_AT_ONCE, PREPARE_STEPS, PlannedNodes
from extender.planning.queue import NodesOfCluster
from extender.planning.reservations import ADDED_AT_ONCE, Running, reserve
from extender.planning.units import PendingPod
from tests.extender.builders import at, cluster, gpus, node, pod
from tests.extender.planning.gangs import gang, places_of, planned_nodes
from tests.extender.shares import sharing, sharing_node
from topology.request.gpu_request import GpuRequest

SMALL = "rtx-3090-2"


def test_a_step_gives_back_what_pods_hold_on_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is known before the first step is what the nodes are like."""
    state = cluster(*(node(f"n{number}", SMALL) for number in range(3 * FILED_AT_ONCE)))
    calls, step, after = Counter[int](), 0, Shape.after

    def counted(shape: Shape, given_back: Held) -> Shape:
        calls[step] += 1
        return after(shape, given_back)

    monkeypatch.setattr(Shape, "after", counted)
    for _ in planned_nodes(state).later(dict.fromkeys(state.views, Held(0b1))):
        step += 1
    assert (calls[0], max(calls.values()), calls.total()) == (0, FILED_AT_ONCE, 3 * FILED_AT_ONCE)


def test_what_is_left_of_planned_nodes_is_decided_on_in_steps() -> None:
    """Something else of each of them."""
    count, request = PREPARE_STEPS // SHAPE_STEPS + 1, GpuRequest(1)
    state = cluster(*(node(f"n{number}") for number in range(count)))
    planned = PlannedNodes(NodesOfCluster(state), {name: Held(number) for number, name in enumerate(state.views, 1)})
    assert len([*planned.prepare(request, enters=True)]) == 1
    assert not [*planned.prepare(request, enters=True)]


def test_what_many_pods_give_back_is_put_in_order_and_added_up_in_steps() -> None:
    """Nothing is found for this gang, so that each pod counts twice."""
    state = cluster(node("n1", SMALL), node("n2", SMALL))
    running, unit = [Running("n1", Held(0b1), None)] * (4 * ADDED_AT_ONCE), gang("g", 2, 2, 2)
    assert len([*reserve(planned_nodes(state), places_of(state), unit, running)]) >= 8


def test_a_step_looks_at_few_pods_however_many_share_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has as many shares as its ledger takes claims."""
    names = [f"n{number}" for number in range(4)]
    pods = [
        sharing(f"{name}-{gpu}-{number}", uuid, 1, on=name)
        for name in names
        for gpu, uuid in enumerate(gpus(name, 0, 1, 2, 3))
        for number in range(20)
    ]
    state = cluster(*(sharing_node(name=name) for name in names), *pods)
    pods_of, step, taken = Counter[int](), 0, node_view.NodeView.taken_and_across

    def counted(view: node_view.NodeView) -> object:
        pods_of[step] += len(view.holdings)
        return taken(view)

    monkeypatch.setattr(node_view.NodeView, "taken_and_across", counted)
    for _ in running_pods(state, at()):
        step += 1
    assert pods_of.total() == len(pods)
    assert max(pods_of.values()) <= LOOKED_AT_ONCE + 80


def test_a_step_groups_few_pods_however_many_restart_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of one group are on as many nodes as move at once."""
    names = [f"n{number}" for number in range(MOST_MOVES_FOR_GANG)]
    state = cluster(*(node(name, SMALL) for name in names))
    movable = [
        MovablePod(PendingPod(pod(f"{group}-{name}"), GpuRequest.plain(1)), name, Held(0b1), 1.0, f"g{group}")
        for group in range(GROUPED_AT_ONCE)
        for name in names
    ]
    calls, step, held = Counter[int](), 0, moves._held

    def counted(pods: Sequence[MovablePod], name: str) -> Held:
        calls[step] += 1
        return held(pods, name)

    monkeypatch.setattr(moves, "_held", counted)
    for _ in plan_moves(planned_nodes(state), PendingPod(pod("w", 2), GpuRequest.plain(2)), movable, 0.0):
        step += 1
    assert calls.total() >= len(movable)
    assert max(calls.values()) <= GROUPED_AT_ONCE + MOST_MOVES_FOR_GANG
