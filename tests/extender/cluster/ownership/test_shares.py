"""What is taken of GPUs that are shared, by whom, and when live pods cannot have one together."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.objects.kinds import Container, Node, Pod, ResourceRequirements
from extender.cluster.ownership.conflicts import hidden_gib, hidden_gpus
from tests.extender.builders import claim, cluster, gpus, pod, running
from tests.extender.shares import SHARE_GIB, share, sharer, sharing, sharing_node
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, encode_placement
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest

A, B, C, *REST = gpus("n1", *range(8))


def view(*objects: Node | Pod) -> NodeView:
    """Return the node as it is seen with these pods."""
    return cluster(*objects).views["n1"]


def ended(name: str) -> Pod:
    """Build a pod whose containers have stopped, and whose node's agent does not know it yet."""
    return sharer(name, 1, on="n1", gpu=A, phase="Succeeded", terminated=True)


def taken(found: NodeView) -> dict[str, tuple[int, str | None]]:
    """Return GPU → GiB and class."""
    return {gpu: (use.memory_gib, use.sharing_class) for gpu, use in found.uses.items()}


@pytest.mark.parametrize(
    ("node", "pods", "expected"),
    [
        (sharing_node(share(A, "p", 10)), [sharing("p", A)], (10, "")),
        (sharing_node(share(A, "p", 10)), [], (10, "")),
        (sharing_node(), [sharing("p", A)], (10, "")),
        (sharing_node(seen={A: {"p": 10}}), [sharer("p", 10, on="n1")], (10, "")),
        (sharing_node(share(A, "p", 10), seen={A: {"p": 10}}), [sharing("p", A)], (10, "")),
        (sharing_node(share(A, "p", 10), share(A, "q", 5), seen={A: {"p": 10}}), [sharing("p", A)], (15, "")),
        (sharing_node(share(A, "p", 10), seen={A: {"p": 20}}), [sharing("p", A)], (20, "")),
        (sharing_node(share(A, "p", 8)), [sharing("p", A)], (10, "")),
        (sharing_node(share(A, "p", 10, "dev")), [], (10, "dev")),
        (sharing_node(share(A, "p", 10, "dev"), seen={A: {"p": 12}}), [], (12, "dev")),
        (sharing_node(seen={A: {"p": 10}}), [sharer("p", 10, on="n1", sharing_class="dev")], (10, "dev")),
    ],
)
def test_each_container_takes_its_share_once(node: Node, pods: list[Pod], expected: tuple[int, str]) -> None:
    """However it is known: by claim, by record or by report; where they differ, the most counts."""
    assert taken(view(node, *pods)) == {A: expected}


@pytest.mark.parametrize(
    ("node", "pods"),
    [
        (sharing_node(seen={A: {"nobody-knows": 10}}), []),
        (sharing_node(share(A, "p", 1), seen={A: {"q": 1}}), [sharer("q", 1, on="n1", sharing_class="dev")]),
        (sharing_node(share(A, "p", 1), whole={A: "q"}), [running("q", "n1", A)]),
        (sharing_node(share(A, "p", 1)), [running("q", "n1", A)]),
        (sharing_node(claim(A, "q"), seen={A: {"q": 1}}), [running("q", "n1", A)]),
        (sharing_node(claim(A, "q"), seen={A: {"over": 1}}), [running("q", "n1", A), ended("over")]),
        (sharing_node(share(A, "p", 1), whole={A: "nobody-knows"}), []),
    ],
)
def test_nothing_goes_beside_what_is_not_known_and_what_cannot_be_together(node: Node, pods: list[Pod]) -> None:
    """A container of which nobody knows the class, two classes, or a GPU that is whole and shared."""
    assert taken(view(node, *pods))[A][1] is None


def test_two_pods_of_one_name_take_what_is_claimed_for_both() -> None:
    """What was seen under their name is one's or the other's, and counts once."""
    claims = (replace(share(A, uid, 10), name="p") for uid in ("old", "new"))
    node = sharing_node(*claims, seen={A: {"p": 10}})
    assert taken(view(node, sharing("p", A, uid="new"))) == {A: (20, "")}


def test_what_is_left_without_some_pods_is_told() -> None:
    """As preemption asks; a GPU that nobody shares then is not shared."""
    use = view(sharing_node(share(A, "p", 10), share(A, "q", 5))).uses[A]
    left = use.without({"q"})
    assert left is not None and left.memory_gib == 10
    assert use.without({"p", "q"}) is None


@pytest.mark.parametrize(
    ("pods", "conflict"),
    [
        ([sharing("p", A, 20), sharing("q", A, 20)], ""),
        ([sharing("p", A, 20), sharing("q", A, 21)], "pq"),
        ([sharing("p", A, 1, "dev"), sharing("q", A, 1, "dev")], ""),
        ([sharing("p", A, 1, "dev"), sharing("q", A, 1)], "pq"),
        ([sharing("p", A, 1), running("q", "n1", A)], "pq"),
        ([sharing("p", A, 1), running("q", "n1", B)], ""),
        ([sharing("p", A, 1), sharing("q", A, 1, "dev"), sharing("r", B, 1)], "pq"),
    ],
)
def test_shares_are_a_conflict_only_if_they_cannot_be_together(pods: list[Pod], conflict: str) -> None:
    """Beside a whole GPU, of two classes, or more than the 40 GiB that the GPU has."""
    found = view(sharing_node(), *pods).conflicts
    assert {gpu: "".join(pod.uid for pod in several) for gpu, several in found.items()} == (
        {A: conflict} if conflict else {}
    )


def test_a_pod_that_bypassed_us_is_ledgered_by_amount_and_class() -> None:
    """Once the agent has seen its share."""
    pod = sharer("p", 10, on="n1", sharing_class="dev", phase="Running", terminated=False)
    assert view(sharing_node(seen={A: {"p": 10}}), pod).unledgered == (share(A, "p", 10, "dev"),)


def test_what_an_init_container_needs_beyond_the_others_is_claimed_under_its_name() -> None:
    """The record says what each asked for, the claims what they need side by side."""
    pod = sharer("p", 20, on="n1", gpu=A, phase="Running", terminated=False)
    init = Container("load", ResourceRequirements({keys.SHARE_RESOURCE: 30}))
    record = PlacementRecord({"main": (A,), "load": (A,)}, memory_gib={"main": 20, "load": 30})
    pod = msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, init_containers=[init]),
        metadata=msgspec.structs.replace(pod.metadata, annotations={keys.PLACEMENT: encode_placement(record)}),
    )
    expected = {share(A, "p", 10, container="load"), share(A, "p", 20)}
    assert set(view(sharing_node(), pod).unledgered) == expected


def test_shares_of_which_nobody_knows_where_they_are_are_counted() -> None:
    """In GiB, and as a GPU each: they may be on any."""
    pod = sharer("p", {"main": 10, "side": 5}, on="n1", phase="Running", terminated=False)
    assert (hidden_gib(view(sharing_node(), pod).holdings), hidden_gpus(view(sharing_node(), pod).holdings)) == (15, 2)
    partly = view(sharing_node(seen={A: {"p": 10}}), pod)
    assert (hidden_gib(partly.holdings), hidden_gpus(partly.holdings)) == (5, 1)


def test_room_is_kept_for_a_share_of_which_nobody_knows_where_it_is() -> None:
    """It may be on any GPU: so it counts against each, and as one GPU where whole ones are asked for."""
    stray = sharer("stray", 10, on="n1", phase="Running", terminated=False)
    found = view(sharing_node(share(A, "p", 5)), sharing("p", A, 5), stray)
    left_gib = SHARE_GIB - 5 - 10
    assert isinstance(found.decide_for("new", request_of(sharer("new", left_gib))), Placement)
    assert isinstance(found.decide_for("new", request_of(sharer("new", left_gib + 1))), Rejection)
    assert isinstance(found.decide_for("new", request_of(pod("new", 6))), Placement)
    assert isinstance(found.decide_for("new", request_of(pod("new", 7))), Rejection)


@pytest.mark.parametrize(("beyond", "gib", "fits"), [(0, 29, True), (4, 25, True), (4, 26, False), (30, 1, False)])
def test_memory_that_no_share_explains_counts_against_what_is_free(beyond: int, gib: int, *, fits: bool) -> None:
    """Of a GPU that is shared; all others are whole somebody's. The reason says so."""
    whole = tuple(claim(gpu, "others") for gpu in (B, C, *REST))
    node = sharing_node(share(A, "p", 10), *whole, beyond={A: beyond})
    found = view(node, sharing("p", A), pod("others", 7)).decide_for("new", request_of(sharer("new", gib)))
    assert isinstance(found, Placement) is fits
    if isinstance(found, Rejection):
        assert "beside memory that is used beyond shares" in found.message


def request_of(item: Pod) -> GpuRequest:
    """Return what a pod asks for."""
    return read_request(item).request
