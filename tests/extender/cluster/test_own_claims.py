"""What a pod finds that has claims on a node already: its own count as left, those of all others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.candidates.shape import Shape
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import PAIRS, claim, cluster, gpus, node, pod, running
from tests.extender.shares import SHARE_GIB, share, sharer, sharing, sharing_node
from topology.annotations.records import Claim
from topology.annotations.status_codec import encode_status
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.claims_left import ClaimsLeft
from topology.placement.decide import Decision
from topology.placement.verdict import UNDECIDED, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest

A, B, *REST = gpus("n1", *range(8))
WHOLE = tuple(claim(gpu, "others") for gpu in REST)
"""Nothing of these GPUs is left."""


def view(*objects: Node | Pod) -> NodeView:
    """Return the node as it is seen with these pods."""
    return cluster(*objects, pod("others", len(REST))).views["n1"]


def decision(seen: NodeView, asked: Pod) -> Decision:
    """Decide for a pod, by whatever claims it has there."""
    return seen.decide_for(asked.metadata.uid, read_request(asked).request)


def places(seen: NodeView, asked: Pod) -> tuple[int, ...]:
    """Return the positions of the GPUs that the pod gets; empty where it does not fit."""
    verdict = decision(seen, asked)
    return verdict.gpus if isinstance(verdict, Placement) else ()


def test_a_share_keeps_its_gpu_and_what_it_has_of_it() -> None:
    """All that is left beside the others, its own included; one GiB more goes to the GPU that is free."""
    seen = view(sharing_node(share(B, "p", 10), share(B, "q", 5), *WHOLE), sharing("q", B, 5))
    assert places(seen, sharer("p", SHARE_GIB - 5)) == (1,)
    assert places(seen, sharer("p", SHARE_GIB - 4)) == (0,)
    assert places(seen, sharer("new", SHARE_GIB - 15)) == (1,)


def test_a_share_keeps_its_gpu_on_a_node_where_nobody_else_has_one() -> None:
    """All of the GPU is left then."""
    assert places(cluster(sharing_node(share(B, "p", 10))).views["n1"], sharer("p", SHARE_GIB)) == (1,)


def test_a_pod_with_a_share_gets_none_of_a_gpu_that_another_pod_claimed_whole() -> None:
    """It has outgrown its own, and the other pod is not bound yet: nothing but its claim says whose the GPU is."""
    seen = view(
        sharing_node(share(A, "p", 10), share(A, "q", 5), claim(B, "whole"), *WHOLE), sharing("q", A, 5), pod("whole")
    )
    assert places(seen, sharer("p", SHARE_GIB - 5)) == (0,)
    assert places(seen, sharer("p", SHARE_GIB - 4)) == ()


def test_a_dead_claim_on_a_whole_gpu_leaves_it_to_a_pod_with_a_share() -> None:
    """The pod that claimed it is bound elsewhere."""
    claims = share(A, "p", 10), share(A, "q", 5), claim(B, "elsewhere"), *WHOLE
    seen = view(sharing_node(*claims), sharing("q", A, 5), pod("elsewhere", on="n2"))
    assert places(seen, sharer("p", SHARE_GIB)) == (1,)


@pytest.mark.parametrize("own_gib", [1, 10])
def test_hidden_gib_count_against_a_pod_with_a_share_too(own_gib: int) -> None:
    """Nobody knows on which GPU they are: perhaps on its own."""
    stray = sharer("stray", 10, on="n1", phase="Running", terminated=False)
    claims = share(A, "p", own_gib), share(A, "q", 5), claim(B, "others"), *WHOLE
    seen = view(sharing_node(*claims), sharing("q", A, 5), stray)
    assert places(seen, sharer("p", SHARE_GIB - 15)) == (0,)
    assert places(seen, sharer("p", SHARE_GIB - 14)) == ()


def test_a_share_stays_on_its_gpu_though_it_would_go_elsewhere_now() -> None:
    """A pod without claims goes to the GPU that is fuller."""
    seen = view(sharing_node(share(A, "q", 20), share(B, "p", 5), *WHOLE), sharing("q", A, 20))
    assert places(seen, sharer("p", 5)) == (1,)
    assert places(seen, sharer("new", 5)) == (0,)


def test_a_pod_keeps_its_gpus_though_others_would_be_better() -> None:
    """They break two pairs, where a pod without claims gets one whole pair."""
    of_pairs = gpus("n1", 1, 2, machine_name=PAIRS)
    seen = cluster(node("n1", PAIRS, claims=tuple(claim(gpu, "p") for gpu in of_pairs))).views["n1"]
    assert places(seen, pod("p", 2)) == (1, 2)
    assert places(seen, pod("new", 2)) in {(4, 5), (6, 7)}


def test_a_pod_with_a_share_gets_none_of_a_gpu_of_which_a_pod_has_a_slice_of_an_earlier_cut() -> None:
    """Other pods have shares of it, too: the GPU was made whole while the pod with the slice lived."""
    gone = replace(claim("MIG-gone", "owner"), parent=A)
    claims = gone, share(A, "q", 10), share(B, "p", 10), share(B, "r", SHARE_GIB - 10), *WHOLE
    live = running("owner", "n1", "MIG-gone"), sharing("q", A), sharing("r", B, SHARE_GIB - 10)
    seen = view(sharing_node(*claims), *live)
    assert places(seen, sharer("p", 10)) == (1,)
    assert places(seen, sharer("p", 11)) == ()


def test_claims_that_are_for_more_gpus_than_the_pod_needs_are_not_kept() -> None:
    """Of shares as of whole GPUs: the pod goes where it is best, its own GPUs counted as left."""
    both = share(A, "p", 5), share(B, "p", 5, container="side"), share(REST[0], "q", 20)
    seen = cluster(sharing_node(*both), sharing("q", REST[0], 20)).views["n1"]
    assert places(seen, sharer("p", 10)) == (2,)
    assert places(seen, sharer("p", {"main": 5, "side": 5})) == (2,)
    of_pairs = gpus("n1", 1, 2, 5, machine_name=PAIRS)
    seen = cluster(node("n1", PAIRS, claims=tuple(claim(gpu, "p") for gpu in of_pairs))).views["n1"]
    assert places(seen, pod("p", 2)) in {(0, 1), (2, 3), (4, 5), (6, 7)}


@pytest.mark.parametrize("asked", [sharer("p", 10), pod("p", 1)])
def test_nothing_else_is_looked_for_before_it_is_decided_whether_claims_are_kept(
    monkeypatch: pytest.MonkeyPatch, asked: Pod
) -> None:
    """The search goes on with the next call, and ends with the same GPUs."""
    calls: list[int] = []

    def undecided(shape: Shape, *args: object) -> Decision:
        calls.append(shape.free)
        return UNDECIDED

    monkeypatch.setattr(Shape, "decide", undecided)
    own = share(A, "p", 10) if read_request(asked).request.is_share else claim(A, "p")
    assert decision(view(sharing_node(own, *WHOLE)), asked) is UNDECIDED
    assert len(calls) == 1


def test_gpus_that_a_pod_has_claimed_are_idle_as_far_as_they_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """When CPU is counted; a sick one, or one of another node, is not. Others' are not either."""
    idle: list[object] = []

    def nothing(shape: Shape, request: GpuRequest, to_come: object, counted: object, *rails: object) -> Decision:
        idle.append(counted)
        return UNDECIDED

    monkeypatch.setattr(Shape, "decide", nothing)
    own = tuple(claim(gpu, "p") for gpu in (A, B, "GPU-of-nobody"))
    seen = cluster(node(claims=(*own, claim(REST[0], "q")), sick=(B,))).views["n1"]
    assert decision(seen, pod("p", 2)) is UNDECIDED
    assert idle == [0b1111_1001]


def test_pods_like_one_with_claims_are_counted_with_what_it_has() -> None:
    """Shares on two GPUs, and whole GPUs."""
    seen = view(sharing_node(share(A, "p", 10), share(A, "q", 9), *WHOLE), sharing("q", A, 9))
    request = read_request(sharer("p", 10)).request
    assert (seen.how_many_fit("p", request), seen.how_many_fit("new", request)) == (6, 5)
    seen = view(sharing_node(claim(A, "p"), *WHOLE))
    assert (seen.how_many_fit("p", GpuRequest(1)), seen.how_many_fit("new", GpuRequest(1))) == (2, 1)


@pytest.mark.parametrize("own", [(), (share(REST[0], "p", 5), share(REST[0], "q", SHARE_GIB - 5))])
def test_a_share_begins_on_a_sound_gpu(own: Sequence[Claim]) -> None:
    """Though a doubtful one comes first, and whether the pod has outgrown a claim or has none; else on the doubtful one."""
    states = tuple(GpuStatus(gpu, share_gib=SHARE_GIB, doubtful=gpu == A) for gpu in (A, B, *REST))
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(8, Limits.NONE))
    status = encode_status(NodeGpuStatus(1, states, device_plugin=plugin))
    seen = view(node(claims=(*(own or WHOLE[:1]), *WHOLE[1:]), status=status))
    request = read_request(sharer("p", SHARE_GIB)).request
    for held, position in (Held(), 1), (Held(0b10), 0):
        verdict = seen.decide_for("p", request, held)
        assert isinstance(verdict, Placement) and verdict.gpus == (position,)


def test_a_share_begins_where_what_is_held_for_others_has_broken_a_pair() -> None:
    """Links of a GPU that another pod is about to get are lost anyway."""
    seen = cluster(sharing_node(machine_name=PAIRS)).views["n1"]
    verdict = seen.decide_for("p", read_request(sharer("p", 10)).request, Held(0b100))
    assert isinstance(verdict, Placement) and verdict.gpus == (3,)


def test_holds_yield_where_a_pod_fits_only_without_them() -> None:
    """Those that never yield stay. Where the pod fits with all of them, or nothing is held, the first decision counts."""
    seen = view(node(claims=WHOLE))
    first, second, both = Held(0b01), Held(0b10), Held(0b11)
    for held, kept, position in (
        (both, NOTHING, 0),
        (both, first, 1),
        (first, second, 1),
    ):
        verdict = seen.decide_yielding("p", GpuRequest(1), held, kept=kept)
        assert isinstance(verdict, Placement) and verdict.gpus == (position,)
    assert isinstance(seen.decide_yielding("p", GpuRequest(1), both, kept=both), Rejection)
    assert isinstance(seen.decide_yielding("p", GpuRequest(2), NOTHING, kept=first), Placement)
    assert seen.decide_yielding("p", GpuRequest(3), NOTHING, kept=first) == seen.decide_for("p", GpuRequest(3))


@pytest.mark.parametrize(
    ("own", "asked"),
    [((claim(A, "p"), claim(B, "p")), pod("p", 3)), ((share(A, "p", 1), share(B, "p", 1)), sharer("p", SHARE_GIB))],
    ids=["whole GPUs", "shares"],
)
def test_the_ledger_has_room_for_new_claims_in_place_of_the_pods_own(
    monkeypatch: pytest.MonkeyPatch, own: Sequence[Claim], asked: Pod
) -> None:
    """The new ones replace them."""
    rooms: list[ClaimsLeft] = []

    def nothing(shape: Shape, *args: object) -> Decision:
        rooms.append(shape.claims_left)
        return Rejection(Reason.TOO_FEW_FREE, "none is left")

    seen = view(sharing_node(*own, *WHOLE))
    seen = replace(seen, shape=replace(seen.shape, claims_left=ClaimsLeft(5, 6)))
    monkeypatch.setattr(Shape, "decide", nothing)
    decision(seen, asked)
    assert rooms[-1] == ClaimsLeft(7, 8)
    seen.decide_for("new", read_request(asked).request)
    assert rooms[-1] == ClaimsLeft(5, 6)
