"""How much room there is for pods of each size, and who stands in the way."""

from __future__ import annotations

from pathlib import Path

from extender.cluster.objects.kinds import Node, Pod
from extender.inspect.fragmentation import Fragmentation, InTheWay, Room, fragmentation
from tests.extender.builders import PAIRS, claim, cluster, gpus, node, running
from tests.extender.plugin import plugin


def used(name: str, *owners: tuple[str, tuple[int, ...]]) -> list[Node | Pod]:
    """Return a node of four NVLink pairs, and the pods that hold these GPUs of it."""
    taken = {owner: gpus(name, *positions, machine_name=PAIRS) for owner, positions in owners}
    claims = tuple(claim(gpu, owner) for owner, uuids in taken.items() for gpu in uuids)
    return [node(name, PAIRS, claims=claims), *(running(owner, name, *uuids) for owner, uuids in taken.items())]


def rooms(told: Fragmentation) -> dict[int, Room]:
    return {room.gpus: room for room in told.sizes}


def test_room_is_counted_by_links_and_not_by_gpus() -> None:
    """Four free GPUs of four pairs are room for two pods of two by count, and for none by NVLink."""
    room = rooms(
        fragmentation(cluster(*used("n1", ("a", (0,)), ("b", (2,)), ("c", (4,)), ("d", (6,))), node("n2", PAIRS)))
    )
    assert (room[1].now, room[1].by_count, room[1].empty) == (12, 12, 16)
    assert (room[2].now, room[2].by_count, room[2].empty) == (4, 6, 8)
    assert (room[8].now, room[8].by_count, room[8].empty) == (0, 1, 0)


def test_pods_in_the_way_are_those_whose_leaving_makes_the_most_room() -> None:
    """Of these, the ones with few GPUs first."""
    told = fragmentation(cluster(*used("n1", ("one", (0,)), ("two", (2, 4)), ("pair", (6, 7)))))
    in_the_way = rooms(told)[2].in_the_way
    assert [(each.name, each.gpus, each.room) for each in in_the_way] == [("two", 2, 2), ("one", 1, 1), ("pair", 2, 1)]
    assert isinstance(in_the_way[0], InTheWay)
    assert {each.node for each in in_the_way} == {"n1"}


def test_closed_nodes_have_no_room() -> None:
    """Nor would they if they were empty."""
    told = fragmentation(cluster(node("n1", PAIRS), node("n2", topology=None)))
    assert rooms(told)[1].empty == 8
    assert fragmentation(cluster()).sizes == ()


async def test_the_plugin_prints_a_row_for_each_size(tmp_path: Path) -> None:
    """From the annotations alone."""
    result = await plugin(tmp_path, "fragmentation")
    assert result.exit_code == 0, result.output
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["GPUS", "FIT-NOW", "BY-COUNT", "IF-EMPTY", "IN-THE-WAY"]
    assert [row.split()[:4] for row in rows] == [
        ["1", "10", "10", "12"],
        ["2", "3", "5", "4"],
        ["4", "1", "2", "2"],
        ["8", "0", "0", "1"],
    ]
