"""The fleets that cost most are what they are called."""

from __future__ import annotations

from benchmarks.performance.worst import FLEETS, OWN_CLASSES, RANDOM_SHAPES, own_classes, random_shapes
from benchmarks.simulated.fleet import mixed_fleet
from topology.request.suitability import anonymous


def test_no_two_nodes_are_of_one_class() -> None:
    """Their drivers differ, and their wires are those of the common fleet."""
    nodes = own_classes(mixed_fleet(200))
    assert len({anonymous(node.topology) for node in nodes}) == 200
    assert [node.topology.links for node in nodes] == [node.topology.links for node in mixed_fleet(200)]


def test_of_5000_nodes_1900_differ() -> None:
    """By machine, free GPUs and CPU."""
    nodes = random_shapes(mixed_fleet(5000))
    assert 1850 < len({(node.machine, node.used, node.cpus) for node in nodes}) < 1950


def test_fleets_have_the_names_that_the_floor_is_asked_about() -> None:
    """So that what they take can be compared with it."""
    names = [node.name for node in mixed_fleet(50)]
    assert FLEETS.keys() == {OWN_CLASSES, RANDOM_SHAPES}
    assert all([node.name for node in made(mixed_fleet(50))] == names for made in FLEETS.values())
