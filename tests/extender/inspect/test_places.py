"""The cluster opens level by level, and every node is found below some place."""

from __future__ import annotations

from extender.cluster.objects.kinds import Node
from extender.inspect.places import node_names_in, places
from tests.extender.builders import cluster, node
from topology.effort import finish
from topology.request.domains import Level, Location


def placed(name: str, block: str | None = None, rack: str | None = None, **known: object) -> Node:
    """Return a node that stands there."""
    names = {"topology.kubernetes.io/block": block, "topology.kubernetes.io/rack": rack}
    labels = {label: value for label, value in names.items() if value is not None}
    return node(name, labels=labels, **known)  # type: ignore[arg-type]


STATE = cluster(placed("n1", "b1", "r1"), placed("n2", "b1", "r2"), placed("n3", "b2", "r1"), placed("n4"))


def test_blocks_come_first_and_nodes_that_nobody_has_placed_last() -> None:
    """With what is in them."""
    found = [(each.level, each.name, each.nodes, each.gpus, each.free) for each in finish(places(STATE))]
    assert found == [
        (Level.BLOCK, "b1", 2, 16, 16),
        (Level.BLOCK, "b2", 1, 8, 8),
        (Level.BLOCK, None, 1, 8, 8),
    ]


def test_a_block_opens_into_its_own_racks() -> None:
    """Racks of other blocks may have the same names."""
    found = finish(places(STATE, Location(block="b1")))
    assert [(each.level, each.name, each.nodes) for each in found] == [(Level.RACK, "r1", 1), (Level.RACK, "r2", 1)]
    assert list(node_names_in(STATE, Location(block="b1"))) == ["n1", "n2"]
    assert list(node_names_in(STATE, Location(block="b1", rack="r1"))) == ["n1"]


def test_a_level_that_nobody_names_is_left_out() -> None:
    """A cluster without blocks begins with its racks; without any names it has no places."""
    assert [each.level for each in finish(places(cluster(placed("n1", rack="r1"))))] == [Level.RACK]
    assert finish(places(cluster(placed("n1")))) == ()
    assert finish(places(STATE, Location(block="b1", rack="r1"))) == ()


def test_gpus_of_a_closed_node_are_not_free() -> None:
    """The node is counted as closed."""
    [block] = finish(places(cluster(placed("n1", "b1"), placed("n2", "b1", ready=False))))
    assert (block.nodes, block.closed, block.gpus, block.free) == (2, 1, 16, 8)


def test_a_node_that_goes_while_others_are_read_is_passed_over() -> None:
    """Whoever reads names a few at a time sees those that are still there."""
    state = cluster(placed("n1"), placed("n2"), placed("n3"))
    names = node_names_in(state, Location())
    assert next(names) == "n1"
    state.nodes.deleted(placed("n2"))
    assert list(names) == ["n3"]


def test_places_are_counted_some_nodes_a_step() -> None:
    """So that whoever counts thousands can let others have their turns."""
    state = cluster(*(placed(f"n{number}", f"b{number % 2}") for number in range(120)))
    counting = places(state)
    assert [next(counting) for _ in range(3)] == [None, None, None]
    found = finish(counting)
    assert [(each.name, each.nodes) for each in found] == [("b0", 60), ("b1", 60)]
