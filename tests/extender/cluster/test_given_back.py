"""What a pod holds alone, and so gives back: never a GPU that another pod still has a share of, and nothing twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.candidates.shape import Shape
from extender.cluster.given_back import Holders, about_to_be_whole, given_back, held_alone
from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import claim, cluster, gpus, node, pod
from tests.extender.mig import cut, cut_node, slice_pod
from tests.extender.shares import SHARE_GIB, share, sharer, sharing, sharing_node
from topology.request.gpu_request import GpuRequest

A, B, C = gpus("n1", 0, 1, 2)
FIRST, SECOND = 0b1, 0b10


def view_of(first: Node, *pods: Pod) -> NodeView:
    return cluster(first, *pods).views["n1"]


def after(view: NodeView, *owners: str) -> Shape:
    """Return the shape of the node once these pods are gone."""
    held = held_alone(view)
    return view.shape.after(sum((given_back(view, held[owner]) for owner in owners), Held()))


def left_gib(shape: Shape) -> dict[int, int]:
    return {gpu.position: gpu.left_gib for gpu in shape.shares.shared}


def test_a_gpu_is_free_when_all_of_its_shares_have_gone_and_not_before() -> None:
    """Until it is whole again it takes shares of any class."""
    view = view_of(sharing_node(), sharing("one", A, 10, "dev"), sharing("two", A, 20, "dev"))
    assert held_alone(view) == {"one": Held(0, ((0, 10, "dev"),)), "two": Held(0, ((0, 20, "dev"),))}
    shape = after(view, "one")
    assert (shape.free & FIRST, left_gib(shape)) == (0, {0: SHARE_GIB - 20})
    shape = after(view, "one", "two")
    assert (shape.free & FIRST, shape.shares.room_gib(0, "prod")) == (FIRST, SHARE_GIB)
    assert shape.perhaps_free & FIRST, "and the kubelet may take it for free, too"


def test_more_pods_than_are_told_apart_still_keep_a_gpu() -> None:
    """Nodes on which many pods share a GPU are alike, but not what these hold."""
    names = [f"p{number}" for number in range(5)]
    view = view_of(sharing_node(), *(sharing(name, A, 5) for name in names))
    assert after(view, *names[:4]).free & FIRST == 0
    assert after(view, *names).free & FIRST


@pytest.mark.parametrize("first", [sharing_node(beyond={A: 8}), sharing_node(seen={A: {"unknown": 4, "one": 10}})])
def test_a_gpu_that_something_else_uses_stays_shared(first: Node) -> None:
    """Memory beyond shares, or a pod that only the agent saw."""
    view = view_of(first, sharing("one", A, 10))
    assert after(view, "one").free & FIRST == 0


def test_what_is_used_beyond_a_gpu_that_is_too_full_is_not_given_back() -> None:
    """Of 39 GiB 8 are used beyond shares, and shares have 35."""
    view = view_of(sharing_node(beyond={A: 8}), sharing("one", A, 15), sharing("two", A, 20))
    assert left_gib(after(view, "one")) == {0: SHARE_GIB - 8 - 20}


def test_the_node_may_share_no_further_gpu_instead_of_one_that_is_about_to_be_whole() -> None:
    """Its kubelet changes over later."""
    view = view_of(sharing_node(max_gpus=1), sharing("one", A, 10))
    assert after(view, "one").shares.openable == ()


def test_shares_of_two_classes_and_gpus_with_two_owners_are_nobodys_alone() -> None:
    """Nobody knows what is free without one of them."""
    view = view_of(sharing_node(), sharing("one", A, 10, "dev"), sharing("two", A, 10, "prod"))
    assert held_alone(view) == {"one": Held(), "two": Held()}
    whole = [pod(name, 1, on="n1", placed=(B,), phase="Running") for name in ("x", "y")]
    view = view_of(sharing_node(), *whole, pod("z", 1, on="n1", placed=(C,), phase="Running"))
    assert held_alone(view) == {"x": Held(), "y": Held(), "z": Held(0b100)}


@pytest.mark.parametrize("is_share", [False, True])
def test_what_the_agent_saw_of_a_pod_that_is_gone_is_the_same_that_its_claims_name(is_share: bool) -> None:
    """A report knows names only. Until it is proven that the containers have stopped, the GPU counts as held, once."""
    claims, seen = (share(A, "gone", 10) if is_share else claim(A, "gone")), {A: {"gone": 10}} if is_share else {}
    view = view_of(sharing_node(claims, seen=seen, whole={} if is_share else {A: "gone"}))
    assert held_alone(view) == {"gone": Held(0, ((0, 10, ""),)) if is_share else Held(FIRST)}
    assert after(view, "gone").free & FIRST


@pytest.mark.parametrize("is_known", [False, True], ids=["never seen", "deleted"])
def test_a_pod_that_is_gone_holds_what_its_claims_name_and_what_the_agent_saw(is_known: bool) -> None:
    """The report may name fewer GPUs than the claims, or another one."""
    state = cluster(sharing_node(claim(A, "gone"), claim(B, "gone"), whole={A: "gone", C: "gone"}))
    if is_known:
        gone = pod("gone", 2, on="n1", placed=(A, B), phase="Running")
        state.pods.changed(gone)
        state.pods.deleted(gone)
    assert held_alone(state.views["n1"]) == {"gone": Held(0b111)}


def test_a_gpu_that_the_agent_saw_of_two_pods_of_one_name_is_nobodys_alone() -> None:
    """A StatefulSet gives its next pod the same name. The report does not say which of them it is."""
    claims = claim(A, "first"), replace(claim(B, "second"), name="first")
    view = view_of(sharing_node(*claims, whole={A: "first"}))
    assert held_alone(view) == {"first": Held(), "second": Held(SECOND), ("ml", "first"): Held()}


def test_a_share_of_a_gpu_of_which_a_pod_has_a_slice_of_an_earlier_cut_gives_nothing_back() -> None:
    """The GPU was made whole again under that pod."""
    of_slice = replace(claim("MIG-gone", "cutter"), parent=A)
    view = view_of(sharing_node(share(A, "sharer", SHARE_GIB), of_slice), sharing("sharer", A, SHARE_GIB))
    assert held_alone(view)["sharer"] == Held()
    assert after(view, "sharer").free & FIRST == 0


def test_sick_gpus_are_held_and_not_given_back() -> None:
    """They are not free without their pod."""
    view = view_of(node("n1", sick=(A,)), pod("x", 2, on="n1", placed=(A, B), phase="Running"))
    held = held_alone(view)["x"]
    assert (held, given_back(view, held)) == (Held(FIRST | SECOND), Held(SECOND))


def test_a_slice_is_given_back_alone_and_its_gpu_never() -> None:
    """The GPU stays cut."""
    topology = cut("n1", {0: ("1g.10gb",) * 2, 1: ("1g.10gb",)})
    owners = [
        slice_pod(name, "1g.10gb", on="n1", placed=(mig_slice.uuid,), phase="Running")
        for name, mig_slice in zip("xyz", topology.slices, strict=True)
    ]
    view = view_of(cut_node(topology), *owners)
    held, first = held_alone(view), 1 << len(topology)
    assert held == {"x": Held(first), "y": Held(first << 1), "z": Held(first << 2)}
    assert given_back(view, held["z"]) == held["z"]
    assert held["z"].gpus_on(topology) == 1 / 8


def test_shares_are_parts_of_a_gpu_by_memory() -> None:
    """A DGX A100's GPUs have 40 GiB."""
    view = view_of(sharing_node(), sharing("one", A, 10))
    assert view.shape.topology_class is not None
    assert held_alone(view)["one"].gpus_on(view.shape.topology_class.node) == 10 / 40
    assert Held(FIRST | SECOND).gpus_on(view.shape.topology_class.node) == 2


def test_a_gpu_that_all_shares_have_left_is_about_to_be_whole_until_the_agent_says_so() -> None:
    """It is not free before: its kubelet knows it in GiB."""
    gone = sharer("gone", 10, on="n1", gpu=A, phase="Succeeded", terminated=True)
    view = view_of(sharing_node(seen={A: {"gone": 10}}), gone, sharing("two", B, 10))
    assert (view.shape.free & FIRST, about_to_be_whole(view, FIRST | SECOND)) == (0, Held(FIRST))


def test_exactly_what_is_held_is_free_for_a_pod_and_nothing_else() -> None:
    """Or nothing, if a share has no room."""
    shape = view_of(sharing_node(), sharing("one", A, 30)).shape
    request = GpuRequest(0, memory_gib=(9,))
    placement = shape.only(Held(0, ((0, 9, ""),))).decide(request)
    assert (getattr(placement, "shares", None), shape.only(Held(0, ((0, 10, ""),))).shares.shared) == ((0,), ())
    assert getattr(shape.only(Held(0, ((3, 9, ""),))).decide(request), "shares", None) == (3,)
    assert shape.only(Held(0b1000)).free == 0b1000


@pytest.mark.parametrize(("position", "places"), [(0, (0,)), (3, None)])
def test_no_share_begins_a_gpu_while_it_is_unknown_who_holds_which(
    position: int, places: tuple[int, ...] | None
) -> None:
    """A share may still come to a GPU that pods share already."""
    shape = replace(view_of(sharing_node(), sharing("one", A, 30)).shape, hidden=1)
    decision = shape.only(Held(0, ((position, 9, ""),))).decide(GpuRequest(0, memory_gib=(9,)))
    assert getattr(decision, "shares", None) == places


def test_what_many_pods_of_a_node_hold_is_computed_once() -> None:
    """And again for the next version of the node."""
    state = cluster(sharing_node(), sharing("one", A, 10))
    holders, view = Holders(), state.views["n1"]
    assert holders.of(view) is holders.of(view)
    state.pods.changed(sharing("two", A, 10, version=2))
    assert holders.of(state.views["n1"]).keys() == {"one", "two"}
