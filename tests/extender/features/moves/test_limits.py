"""No pod moves more often than the limits allow, of whichever owner, of and for whichever namespace."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.gpu_pods import GpuPod, read_gpu_pod
from extender.cluster.objects.kinds import OwnerReference
from extender.features.moves.limits import HOUR_SECONDS, MoveLimits, RecordedMove, UnderWay
from extender.features.moves.settings import MovesSettings
from extender.kit.clock import Instant
from tests.extender.builders import pod
from tests.extender.cluster.caches.test_restart_groups import of_replica

CREATED = 1767225600.0
"""When the pods were created, in wall seconds."""
DAY = 86400.0


def limits(**more: object) -> MoveLimits:
    settings = {"perHour": 4, "namespacePerHour": 2, "betweenMoves": "10m"} | more
    return MoveLimits(MovesSettings.model_validate(settings))


def of(owner: str, namespace: str = "ml") -> GpuPod:
    item = pod(f"{owner}-pod", 1, on="n1")
    owners = [OwnerReference(owner, controller=True, kind="ReplicaSet")]
    metadata = replace(item.metadata, namespace=namespace, owner_references=owners)
    gpu_pod = read_gpu_pod(replace(item, metadata=metadata))
    assert gpu_pod
    return gpu_pod


def at(seconds: float, age: float = DAY) -> Instant:
    return Instant(seconds, CREATED + age)


def test_an_owner_has_peace_after_a_move() -> None:
    """Another owner of the namespace may go on."""
    counted = limits()
    assert counted.may_move(of("a"), at(0.0))
    counted.moved(RecordedMove.of(of("a").pod, "other", 0.0))
    assert [counted.may_move(of("a"), at(seconds)) for seconds in (599.0, 600.0)] == [False, True]
    assert counted.may_move(of("b"), at(0.0))


def test_a_young_pod_stays_also_where_nobody_remembers_that_it_moved() -> None:
    """So a planner that starts anew moves no pod again."""
    assert [limits().may_move(of("a"), at(0.0, age)) for age in (599.0, 600.0)] == [False, True]


def test_a_namespace_loses_so_many_pods_an_hour_and_gets_room_by_so_many() -> None:
    """Both are over after an hour."""
    counted = limits()
    for owner in "ab":
        counted.moved(RecordedMove.of(of(owner).pod, "greedy", 0.0))
    assert not counted.may_move(of("c"), at(1.0))
    assert counted.may_move(of("c", "other"), at(1.0))
    assert [counted.may_ask(name, 1.0) for name in ("greedy", "modest")] == [False, True]
    assert counted.may_move(of("c"), at(HOUR_SECONDS))
    assert counted.may_ask("greedy", HOUR_SECONDS)


def test_no_more_pods_move_in_an_hour_than_the_cluster_allows() -> None:
    """Whatever their namespaces are."""
    counted = limits()
    for number in range(4):
        counted.moved(RecordedMove.of(of(f"o{number}", f"n{number}").pod, f"for{number}", 0.0))
    assert not counted.may_ask("new", HOUR_SECONDS - 1)
    assert counted.may_ask("new", HOUR_SECONDS)


def test_pods_that_are_yet_to_move_count_as_if_they_had() -> None:
    """So two plans that overlap keep the limits, too."""
    counted, under_way = limits(), UnderWay.adding([(of("c").pod, "for")])
    assert [counted.may_move(of(owner), at(0.0), under_way) for owner in "ca"] == [False, True]
    assert limits(betweenMoves="0s").may_move(of("c"), at(0.0), under_way)
    one, two, elsewhere = of("a").pod, of("b").pod, [of("d", "n1").pod, of("e", "n2").pod]
    assert counted.may_move_together([one], "greedy", 0.0, under_way)
    assert not counted.may_move_together([one, two], "greedy", 0.0, under_way)
    assert counted.may_move_together(elsewhere, "greedy", 0.0, under_way)
    assert not counted.may_move_together(elsewhere, "for", 0.0, under_way)
    assert not limits(perHour=2).may_move_together(elsewhere, "greedy", 0.0, under_way)


def test_two_pods_of_one_owner_do_not_move_together() -> None:
    """Nor do two where one more of the namespace is one too many; without a pause between moves owners do not matter."""
    counted, one, two = limits(), of("a").pod, of("b").pod
    assert counted.may_move_together([one, two], "for", 0.0)
    assert not counted.may_move_together([one, one], "for", 0.0)
    assert limits(betweenMoves="0s").may_move_together([one, one], "for", 0.0)
    counted.moved(RecordedMove.of(of("c").pod, "other", 0.0))
    assert not counted.may_move_together([one, two], "for", 0.0)
    assert counted.may_move_together([one], "for", 0.0)


def test_pods_that_restart_together_are_one_owner_and_count_as_their_number() -> None:
    """Whichever StatefulSets they have. They move together, and then the owner has peace."""
    one, two = (of_replica(pod(name, 1, on="n1"), name) for name in ("leader", "worker"))
    counted, sibling = limits(), read_gpu_pod(of_replica(pod("next", 1, on="n1"), "next"))
    assert sibling
    assert counted.may_move_together([one, two], "for", 0.0)
    assert not counted.may_move_together([one, two, of("a").pod], "for", 0.0)
    counted.moved(RecordedMove.of(one, "other", 0.0))
    assert not counted.may_move(sibling, at(599.0))
    assert counted.may_move(sibling, at(600.0))
