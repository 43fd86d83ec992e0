"""The members of a PodGroup that were tried together are bound together, or none of them is."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.simulated.double.resources import PODS
from extender.binding.outcome import Bound, Failure
from extender.cluster.candidates.holds import Held, Hold, Holds
from extender.cluster.objects.kinds import Pod
from extender.verbs.filter_prioritize import filter_nodes
from extender.verbs.wire import ExtenderArgs
from tests.extender.binds import failure_of, uuid
from tests.extender.builders import PAIRS
from tests.extender.world import Replica, World
from topology.annotations import keys

MEMBERS = ("m0", "m1", "m2")


def world_with(*nodes: str, members: tuple[str, ...] = MEMBERS, gpus: int = 2) -> tuple[World, Replica]:
    """Return machines of four linked pairs, and the pods of one PodGroup, each of which wants a pair, or all GPUs."""
    world = World(*(nodes or ("n1",)), machine_name=PAIRS)
    for name in members:
        limits = {keys.GPU_RESOURCE: str(gpus)}
        spec = {
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            "schedulingGroup": {"podGroupName": "train"},
        }
        metadata = {"name": name, "annotations": {keys.REQUIRED_AFFINITY: "nvlink"} if gpus == 2 else {}}
        world.store.create(PODS, "default", {"metadata": metadata, "spec": spec})
    return world, Replica(world)


def offered(replica: Replica, name: str, *nodes: str) -> list[str]:
    """Ask filter about a pod."""
    asked = msgspec.json.decode(msgspec.json.encode(replica.world.find(name)), type=Pod)
    return list(filter_nodes(replica.state, ExtenderArgs(asked, node_names=list(nodes)), replica.clock()).node_names)


def test_a_trial_of_which_all_members_fit_is_bound_as_it_was_offered() -> None:
    world, replica = world_with()
    assert [offered(replica, name, "n1") for name in MEMBERS] == [["n1"]] * 3
    assert all(isinstance(replica.bind(name), Bound) for name in reversed(MEMBERS))
    assert world.placed("m0") == {uuid(0, PAIRS), uuid(1, PAIRS)}


def test_a_pod_that_is_faster_than_one_member_keeps_all_of_them_back() -> None:
    """Else the others would run and wait for it; tried again, they find what is left."""
    world, replica = world_with()
    for name in ("q", "r"):
        world.add_pod(name, 2, 0, **{keys.REQUIRED_AFFINITY: "nvlink"})
    replica.catch_up()
    for name in MEMBERS:
        offered(replica, name, "n1")
    assert isinstance(replica.bind("q"), Bound), "on the pair that is left"
    assert isinstance(replica.bind("r"), Bound), "on the pair of a member"
    replica.catch_up()
    assert [failure_of(replica.bind(name)) for name in MEMBERS] == [Failure.GANG] * 3
    assert not any(world.placed(name) for name in MEMBERS)
    assert [offered(replica, name, "n1") for name in MEMBERS] == [["n1"], ["n1"], []]


def test_once_the_first_member_is_bound_nobody_takes_what_the_others_were_offered() -> None:
    """Not even one who fits nowhere else, and whose bind is faster."""
    world, replica = world_with(members=("m0", "m1", "m2", "m3"))
    world.add_pod("q", 2, 0, **{keys.REQUIRED_AFFINITY: "nvlink"})
    replica.catch_up()
    for name in ("m0", "m1", "m2", "m3"):
        offered(replica, name, "n1")
    assert offered(replica, "q", "n1") == ["n1"], "whether the group will be bound is not known yet"
    assert isinstance(replica.bind("m0"), Bound)
    assert failure_of(replica.bind("q")) is Failure.NO_FIT
    assert offered(replica, "q", "n1") == []
    assert all(isinstance(replica.bind(name), Bound) for name in ("m3", "m2", "m1"))


def test_what_a_member_is_offered_is_kept_while_its_claims_are_being_written() -> None:
    world, replica = world_with(members=("m0", "m1", "m2", "m3"))
    world.add_pod("q", 2, 0, **{keys.REQUIRED_AFFINITY: "nvlink"})
    replica.catch_up()
    for name in ("m0", "m1", "m2", "m3"):
        offered(replica, name, "n1")
    binds = [replica.start_bind(name) for name in ("m0", "m1", "m2", "m3")]
    for bind in binds:
        next(bind)
    assert offered(replica, "q", "n1") == []


def test_the_trial_that_is_bound_need_not_be_the_last_one() -> None:
    """kube-scheduler tries several sets of nodes, and takes the best one."""
    world, replica = world_with("n1", "n2", "n3")
    for node in ("n1", "n2", "n3"):
        assert [offered(replica, name, node) for name in MEMBERS] == [[node]] * 3
    assert all(isinstance(replica.bind(name, "n1"), Bound) for name in reversed(MEMBERS))
    assert world.placed("m0") == {uuid(0, PAIRS), uuid(1, PAIRS)}, "though it came last"


def test_a_member_that_came_later_is_tried_alone() -> None:
    world, replica = world_with()
    for name in ("m0", "m1"):
        offered(replica, name, "n1")
    assert isinstance(replica.bind("m0"), Bound)
    assert offered(replica, "m2", "n1") == ["n1"]
    assert isinstance(replica.bind("m2"), Bound)
    assert isinstance(replica.bind("m1"), Bound)
    assert world.placed("m1").isdisjoint(world.placed("m2"))


def refused_pair() -> tuple[World, Replica]:
    """Return two members that were tried together, of which one was refused: a faster pod has taken GPUs of the other."""
    world, replica = world_with(members=("m0", "m1"))
    for name in ("q", "r", "s"):
        world.add_pod(name, 2, 0, **{keys.REQUIRED_AFFINITY: "nvlink"})
    replica.catch_up()
    for name in ("m0", "m1"):
        offered(replica, name, "n1")
    assert all(isinstance(replica.bind(name), Bound) for name in ("q", "r", "s")), "one pair is left"
    replica.catch_up()
    assert failure_of(replica.bind("m1")) is Failure.GANG
    return world, replica


def test_a_member_is_not_tried_again_before_the_others_are_refused_too() -> None:
    """kube-scheduler still counts the other one as placed, and would bind this one alone."""
    _, replica = refused_pair()
    assert offered(replica, "m1", "n1") == []
    assert failure_of(replica.bind("m0")) is Failure.GANG
    assert [offered(replica, name, "n1") for name in ("m0", "m1")] == [["n1"], []]


def test_a_member_is_not_bound_before_kube_scheduler_has_tried_the_others_again() -> None:
    """It may try this one before it has read our answer about the other one."""
    world, replica = refused_pair()
    assert failure_of(replica.bind("m0")) is Failure.GANG
    assert offered(replica, "m1", "n1") == ["n1"]
    assert failure_of(replica.bind("m1")) is Failure.GANG
    assert not world.placed("m1")


@pytest.mark.parametrize("ends", ["deleted", "late"])
def test_nobody_waits_for_a_member_that_is_gone_or_never_comes(ends: str) -> None:
    world, replica = refused_pair()
    if ends == "deleted":
        world.delete("m0", 0)
        replica.catch_up()
    else:
        replica.seconds += 31.0
    assert offered(replica, "m1", "n1") == ["n1"]
    assert isinstance(replica.bind("m1"), Bound)


@pytest.mark.parametrize("order", [("m0", "m1"), ("m1", "m0")])
def test_two_members_with_the_same_offer_are_not_bound(order: tuple[str, str]) -> None:
    """As when kube-scheduler has passed over one of them in the trial before: it is not known then which began a trial."""
    _, replica = world_with("n1", "n2", members=("m0", "m1"), gpus=8)
    assert [offered(replica, *asked) for asked in (("m1", "n2"), ("m0", "n1"), ("m1", "n1"))] == [
        ["n2"],
        ["n1"],
        ["n1"],
    ]
    assert [failure_of(replica.bind(name)) for name in order] == [Failure.GANG] * 2


def test_a_pod_of_a_group_of_which_nothing_is_remembered_is_bound_alone() -> None:
    """After a restart of the extender, or where another replica was asked."""
    _, replica = world_with()
    assert all(isinstance(replica.bind(name), Bound) for name in MEMBERS)


def test_what_is_kept_for_a_member_that_never_comes_is_kept_for_a_while() -> None:
    holds = Holds()
    holds.put("gone", Hold("n1", 0b11, 30.0, is_firm=True))
    assert (holds.kept("other", 29.0), holds.kept("other", 30.0)) == ({"n1": Held(0b11)}, {})
