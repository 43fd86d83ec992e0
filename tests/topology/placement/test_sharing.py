"""The decision where GPUs may be shared and CPU counts."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.effort import finish
from topology.formats.catalog import machine
from topology.placement.decide import Decision, Situation, decide
from topology.placement.shares import NO_SHARES, ONLY_ENFORCE, SharedGpu, Shares, capacity_of
from topology.placement.sharing import FRAGMENTED_GPU
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import Communication, GpuRequest
from topology.request.shares import SameGpu
from topology.value.coming_back import MANY_PODS
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind
from topology.value.score import Weights

HALF = PodKind(1, gpu_milli=500, cpu_milli=4_000)
WHOLE = PodKind(1, cpu_milli=8_000)
PROFILE = DemandProfile([(HALF, 0.5), (WHOLE, 0.5)])
PLENTY = 512_000


def appraised(name: str, *demand: tuple[int, float]) -> TopologyClass:
    topology_class = TopologyClass(machine(name))
    finish(topology_class.appraise(Weights(demand=demand)))
    return topology_class


MESH = appraised("dgx-1v", (1, 0.4), (2, 0.35), (4, 0.25))
FLAT = appraised("hgx-h100", (1, 0.5), (2, 0.5))
PAIR = appraised("rtx-3090-2", (1, 0.5), (2, 0.5))


def share(kind: PodKind, *gpu_milli: int) -> Decision:
    return placed(kind, FreeCapacity(gpu_milli, PLENTY))


def asking(*gib: int, sharing_class: str = "", same_gpu: SameGpu = SameGpu.PREFERRED, cpu_milli: int = 0) -> GpuRequest:
    return GpuRequest(
        0,
        communication=Communication.NONE,
        cpu_milli=cpu_milli,
        memory_gib=gib,
        sharing_class=sharing_class,
        same_gpu=same_gpu,
    )


def shares_of(capacity: FreeCapacity, pods: int = 1) -> Shares:
    """GPUs of 1000 GiB, so that thousandths and GiB are the same."""
    begun = tuple(SharedGpu(i, milli, pods=pods) for i, milli in enumerate(capacity.gpu_milli) if milli < 1000)
    return Shares((1000,) * len(capacity.gpu_milli), begun, capacity.free)


def placed(kind: PodKind, capacity: FreeCapacity, to_come: DemandProfile = PROFILE, pods: int = 1) -> Decision:
    request = replace(GpuRequest.plain(kind.gpus), cpu_milli=kind.cpu_milli)
    if kind.shares:
        request = asking(kind.gpu_milli, cpu_milli=kind.cpu_milli)
    return decide(
        Situation(MESH, capacity.free, capacity=capacity, to_come=to_come, shares=shares_of(capacity, pods)), request
    )


def test_a_share_goes_where_another_one_is() -> None:
    """GPU 6 is half taken; filling it up breaks nothing."""
    found = share(HALF, 1000, 1000, 1000, 1000, 1000, 1000, 500, 1000)
    assert isinstance(found, Placement)
    assert found.gpus == (6,)


def test_a_share_that_has_to_open_a_gpu_breaks_no_island() -> None:
    """GPUs 0 to 3 are an island, 4 is what is left of the other; 7 is too full."""
    found = share(HALF, 1000, 1000, 1000, 1000, 1000, 0, 0, 300)
    assert isinstance(found, Placement)
    assert found.gpus == (4,)


def test_of_two_begun_gpus_the_one_is_taken_that_the_others_miss_less() -> None:
    """GPU 1 is the fullest, and is taken where nothing is to come; GPU 0 where only that one could be used up in full."""
    capacity, fifth = FreeCapacity((700, 500, 0, 0, 0, 0, 0, 0), PLENTY), PodKind(1, gpu_milli=200)
    for to_come, taken in ((DemandProfile(()), 1), (DemandProfile([(PodKind(1, gpu_milli=500), 1.0)]), 0)):
        found = placed(fifth, capacity, to_come)
        assert isinstance(found, Placement)
        assert found.gpus == (taken,)


@pytest.mark.parametrize(
    ("gpu_milli", "taken", "links"), [((700, 0, 0, 0, 0, 0, 0, 0), 0, False), ((0, 0, 0, 0, 0, 1000, 1000, 0), 5, True)]
)
def test_the_score_of_a_share_is_what_the_others_lose(gpu_milli: tuple[int, ...], taken: int, links: bool) -> None:
    """Of capacity, and of links: a GPU that is begun, or one that comes back later."""
    capacity = FreeCapacity(gpu_milli, PLENTY)
    found = placed(HALF, capacity)
    lost = FRAGMENTED_GPU * (PROFILE.value(capacity) - PROFILE.value(capacity.without(HALF, (taken,))))
    if links:
        lost += MESH.value_lost(capacity.free, 1 << taken)
    else:
        lost += (MESH.value(capacity.free | 1 << taken) - MESH.value(capacity.free)) / 2
    assert isinstance(found, Placement)
    assert (found.gpus, found.affinity, found.bandwidth) == ((taken,), None, None)
    assert found.score == pytest.approx(-MESH.weights.pods_to_come * lost)


@pytest.mark.parametrize(("pods", "taken"), [((1, 2, 4), 2), ((3, 2, 1), 0), ((4, 1, 4), 0)])
def test_a_share_leaves_alone_the_gpu_that_is_whole_again_the_soonest(pods: tuple[int, ...], taken: int) -> None:
    """Of GPUs with as much left, the one with the most pods: it comes back last anyway."""
    shares = Shares((1000,) * 8, tuple(SharedGpu(i, 500, pods=count) for i, count in enumerate(pods)))
    capacity = capacity_of(8, 0, shares, PLENTY)
    found = decide(Situation(FLAT, 0, capacity=capacity, to_come=PROFILE, shares=shares), asking(250))
    assert isinstance(found, Placement)
    assert found.gpus == (taken,)


def test_a_share_begins_a_gpu_where_another_one_is_busy_for_long_anyway() -> None:
    """Two nodes with one GPU free: beside two pods it is the dearer the sooner these end."""
    scores = []
    for pods in (1, 2, 4):
        shares = Shares((24,) * 2, (SharedGpu(1, 0, pods=pods),), 0b01)
        capacity = capacity_of(2, 0b01, shares, PLENTY)
        found = decide(Situation(PAIR, 0b01, capacity=capacity, to_come=PROFILE, shares=shares), asking(6))
        assert isinstance(found, Placement)
        scores.append(found.score)
    assert scores == sorted(scores) and len({*scores}) == 3


def test_a_share_stays_beside_another_one_for_as_long_as_there_is_room() -> None:
    """Though that GPU would be whole again soon, and where nobody knows what comes as well."""
    shares = Shares((24,) * 2, (SharedGpu(1, 18),), 0b01)
    capacity = capacity_of(2, 0b01, shares, PLENTY)
    for to_come in (DemandProfile([(PodKind(1, gpu_milli=250), 1.0)]), None):
        found = decide(Situation(PAIR, 0b01, capacity=capacity, to_come=to_come, shares=shares), asking(6))
        assert isinstance(found, Placement)
        assert found.gpus == (1,)
    three_of_an_island = Shares((24,) * 8, (SharedGpu(3, 18),), 0b0111)
    assert (MESH.value(0b1111) - MESH.value(0b0111)) / 2 > MESH.value_lost(0b0111, 0b0001), (
        "to wait for it would be dearer"
    )
    capacity = capacity_of(8, 0b0111, three_of_an_island, PLENTY)
    quarters = DemandProfile([(PodKind(1, gpu_milli=250), 1.0)])
    situation = Situation(MESH, 0b0111, capacity=capacity, to_come=quarters, shares=three_of_an_island)
    found = decide(situation, asking(6))
    assert isinstance(found, Placement)
    assert found.gpus == (3,)


def test_whole_gpus_are_taken_where_the_shared_one_comes_back_last() -> None:
    """One GPU beside one with four pods is of less use to pods of two than beside one with a single pod."""
    scores = []
    for pods in (1, 2, 4):
        shares = Shares((24,) * 2, (SharedGpu(1, 12, pods=pods),), 0b01)
        capacity = capacity_of(2, 0b01, shares, PLENTY)
        found = decide(Situation(PAIR, 0b01, capacity=capacity, to_come=PROFILE, shares=shares), GpuRequest.plain(1))
        assert isinstance(found, Placement)
        scores.append(found.score)
    assert scores == sorted(scores) and len({*scores}) == 3


def test_what_two_nodes_lose_alike_is_a_tie_to_the_last_digit() -> None:
    """So that the fuller one is taken, and not the one whose sum was rounded down; one of many pods more puts nothing off."""
    lefts = ((530, 190), (530, 190, 350, 1000, 1000), (230, 0, 0, 470), (770, 130, 20), (1000, 610, 240))
    share, kinds = PodKind(1, gpu_milli=230), DemandProfile(())
    capacities = [FreeCapacity((*left, *[0] * (8 - len(left))), PLENTY) for left in lefts]
    found = [placed(share, capacity, kinds, MANY_PODS) for capacity in capacities]
    assert len({each.score for each in found if isinstance(each, Placement)}) == 1


def test_the_free_capacity_that_others_lose_is_taken_off_the_score_of_whole_gpus() -> None:
    """At the same rate as for shares."""
    capacity, taking = FreeCapacity((1000,) * 8, 40_000), PodKind(2, cpu_milli=32_000)
    found, alone = placed(taking, capacity), decide(Situation(MESH, capacity.free), GpuRequest.plain(2))
    assert isinstance(found, Placement)
    assert isinstance(alone, Placement)
    lost = PROFILE.value(capacity) - PROFILE.value(capacity.without(taking, alone.gpus))
    assert lost > 0
    assert replace(found, score=alone.score, value_lost=alone.value_lost) == alone
    assert found.value_lost == pytest.approx((alone.value_lost or 0.0) + FRAGMENTED_GPU * lost)
    assert found.score == pytest.approx(alone.score - MESH.weights.pods_to_come * FRAGMENTED_GPU * lost)


def test_a_share_that_no_gpu_has_left_is_turned_away() -> None:
    """With what removing pods could cure."""
    found = share(HALF, 400, 400, 0, 0, 0, 0, 0, 0)
    assert isinstance(found, Rejection)
    assert (found.reason, found.resolvable) == (Reason.TOO_FEW_FREE, True)


def test_whole_gpus_are_chosen_by_the_plan_alone() -> None:
    """Free capacity tells nodes apart, not the sets of one node."""
    capacity = FreeCapacity((1000, 1000, 1000, 1000, 1000, 500, 0, 1000), 40_000)
    found = placed(PodKind(4, cpu_milli=32_000), capacity)
    alone = decide(Situation(MESH, capacity.free), GpuRequest.plain(4))
    assert isinstance(found, Placement)
    assert isinstance(alone, Placement)
    assert (found.gpus, found.bandwidth) == (alone.gpus, alone.bandwidth)


def test_a_pod_goes_where_it_leaves_cpu_for_the_gpus_beside_it() -> None:
    """Two nodes with the same free GPUs; on the second the pod would take the last cores."""
    gpus = (1000, 1000, 1000, 1000, 0, 0, 0, 0)
    taking = PodKind(1, cpu_milli=20_000)
    plenty, tight = (placed(taking, FreeCapacity(gpus, cores * 1000)) for cores in (96, 24))
    assert isinstance(plenty, Placement)
    assert isinstance(tight, Placement)
    assert plenty.score > tight.score


@given(st.lists(st.integers(0, 10), min_size=8, max_size=8), st.integers(1, 9))
def test_a_share_fits_where_and_only_where_a_gpu_has_so_much_left(tenths: list[int], asked: int) -> None:
    """Whatever is taken of the others, and never more than is there."""
    found = share(PodKind(1, gpu_milli=asked * 100), *(each * 100 for each in tenths))
    assert isinstance(found, Placement) == (max(tenths) >= asked)
    if isinstance(found, Placement):
        assert tenths[found.gpus[0]] >= asked


def rooms(draw: st.DrawFn) -> Shares:
    """Eight GPUs: free or taken whole, or shared by one of two classes with some GiB left; at most a few more may be shared."""
    size = draw(st.tuples(*[st.sampled_from((0, 6, 8))] * 8))
    state = draw(st.tuples(*[st.sampled_from(("free", "taken", "", "prod"))] * 8))
    shared = tuple(
        SharedGpu(i, draw(st.integers(-1, size[i])), each, draw(st.integers(0, MANY_PODS)))
        for i, each in enumerate(state)
        if each not in ("free", "taken") and size[i]
    )
    shareable = sum(1 << i for i, each in enumerate(state) if each == "free" and size[i])
    return Shares(size, shared, shareable, draw(st.none() | st.integers(0, 3)))


def fits_by_brute_force(shares: Shares, request: GpuRequest) -> bool:
    """Try every GPU for every share."""
    for chosen in product(range(8), repeat=len(request.memory_gib)):
        if request.same_gpu is SameGpu.REQUIRED and len(set(chosen)) > 1:
            continue
        if request.same_gpu is SameGpu.NEVER and len(set(chosen)) < len(chosen):
            continue
        begun = {position for position in chosen if shares.shareable >> position & 1}
        if shares.more is not None and len(begun) > shares.more:
            continue
        taken = Counter[int]()
        for position, gib in zip(chosen, request.memory_gib, strict=True):
            taken[position] += gib
        if all(_room(shares, position, request.sharing_class) >= gib for position, gib in taken.items()):
            return True
    return False


def _room(shares: Shares, position: int, sharing_class: str) -> int:
    for gpu in shares.shared:
        if gpu.position == position:
            return gpu.left_gib if gpu.sharing_class == sharing_class else -1
    return shares.share_gib[position] if shares.shareable >> position & 1 else -1


def test_an_overfull_gpu_takes_no_room_from_the_others() -> None:
    """Foreign processes may use more than is left of it; the shares fit exactly on the two that nobody shares yet."""
    overfull = SharedGpu(7, -1, "prod", 0)
    shares = Shares((0, 0, 0, 0, 0, 6, 6, 6), (overfull,), shareable=0b0110_0000)
    assert shares.takes((1, 1, 4, 6), "prod", apart=False)
    assert not shares.takes((1, 2, 4, 6), "prod", apart=False)


@pytest.mark.slow
@given(st.data())
def test_shares_fit_where_and_only_where_brute_force_finds_a_place(data: st.DataObject) -> None:
    """On one GPU or several, as the pod says; and what is chosen is such a place, on one GPU wherever that is possible."""
    shares = data.draw(st.composite(rooms)())
    request = asking(
        *data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4)),
        sharing_class=data.draw(st.sampled_from(("", "prod"))),
        same_gpu=data.draw(st.sampled_from(SameGpu)),
    )
    capacity = capacity_of(8, shares.shareable, shares, PLENTY)
    to_come = data.draw(st.none() | st.just(PROFILE))
    found = decide(Situation(MESH, shares.shareable, capacity=capacity, to_come=to_come, shares=shares), request)
    assert isinstance(found, Placement) == fits_by_brute_force(shares, request)
    if isinstance(found, Placement):
        left = shares
        for position, gib in zip(found.shares, request.memory_gib, strict=True):
            assert left.room_gib(position, request.sharing_class) >= gib
            left = left.taken(position, gib, request.sharing_class)
        assert found.gpus == tuple(dict.fromkeys(found.shares))
        together = fits_by_brute_force(shares, asking(sum(request.memory_gib), sharing_class=request.sharing_class))
        expected = {SameGpu.REQUIRED: True, SameGpu.NEVER: len(found.shares) == 1, SameGpu.PREFERRED: together}
        assert (len(found.gpus) == 1) == expected[request.same_gpu]


def test_a_share_that_begins_a_gpu_leaves_the_pods_other_shares_their_room() -> None:
    """The smaller GPU would do for the largest share, and one more may be shared: then the others would find no place."""
    shares = Shares((4, 6, 8) + (0,) * 5, (SharedGpu(0, 4),), 0b110, 1)
    found = decide(Situation(MESH, 0b110, shares=shares), asking(5, 4, 3))
    assert isinstance(found, Placement)
    assert found.shares == (2, 0, 2)


@pytest.mark.slow
@given(st.data())
def test_a_share_goes_where_least_is_lost_at_once_then_later_then_to_the_fullest_gpu(data: st.DataObject) -> None:
    """Of all GPUs that have room for it, each looked at on its own."""
    shares = data.draw(st.composite(rooms)())
    gib = data.draw(st.integers(1, 8))
    free, request = shares.shareable, asking(gib)
    capacity = capacity_of(8, free, shares, PLENTY)
    found = decide(Situation(MESH, free, capacity=capacity, to_come=PROFILE, shares=shares), request)
    if isinstance(found, Rejection):
        return

    def lost(position: int) -> tuple[float, float, int]:
        others_full = [
            gpu if gpu.position == position else replace(gpu, left_gib=min(0, gpu.left_gib)) for gpu in shares.shared
        ]
        only_there = replace(shares, shared=tuple(others_full), shareable=shares.shareable & 1 << position)
        nobody_for_long = replace(only_there, shared=tuple(replace(gpu, pods=0) for gpu in others_full))
        at_once, in_all = (
            decide(Situation(MESH, free, capacity=capacity, to_come=PROFILE, shares=each), request)
            for each in (nobody_for_long, only_there)
        )
        if isinstance(at_once, Rejection) or isinstance(in_all, Rejection):
            return math.inf, 0.0, 0
        left = next((gpu.left_gib for gpu in shares.shared if gpu.position == position), shares.share_gib[position])
        assert at_once.value_lost is not None and in_all.value_lost is not None
        later = in_all.value_lost - at_once.value_lost
        return round(at_once.value_lost, 6), round(later, 6), left

    assert lost(found.gpus[0]) == min(map(lost, range(8)))


@pytest.mark.parametrize(
    ("shares", "says", "resolvable"),
    [
        (NO_SHARES, "GPUs are not shared there", False),
        (Shares(refused=ONLY_ENFORCE), "GPUs are shared only in mode enforce", False),
        (Shares((8,) * 8), "no GPU has 7 GiB left for class prod", True),
        (Shares((8,) * 8, (SharedGpu(0, 7),)), "no GPU has 7 GiB left for class prod", True),
        (Shares((8,) * 8, (SharedGpu(0, 6, "prod"),), 0b10, 0), "no GPU has 7 GiB left for class prod", True),
        (Shares((6,) * 8, (), 0b1), "no suitable GPU has 7 GiB to share", False),
        (
            Shares((8,) * 8, (SharedGpu(0, 2, "prod"),), beyond=1),
            "no GPU has 7 GiB left for class prod, beside memory that is used beyond shares",
            True,
        ),
    ],
)
def test_a_share_that_finds_no_place_is_told_why(shares: Shares, says: str, resolvable: bool) -> None:
    """In the same words on equal nodes."""
    found = decide(Situation(MESH, shares.shareable, shares=shares), asking(7, sharing_class="prod"))
    assert isinstance(found, Rejection)
    assert (found.message, found.resolvable) == (says, resolvable)


def test_no_gpu_begins_to_be_shared_while_it_is_unknown_who_holds_a_free_one() -> None:
    """Those that are shared already are known."""
    shares = Shares((8,) * 8, (SharedGpu(0, 3),), 0b10)
    assert decide(Situation(MESH, 0b10, shares=shares, unknown=1), asking(3)) == decide(
        Situation(MESH, 0b10, shares=shares), asking(3)
    )
    assert isinstance(decide(Situation(MESH, 0b10, shares=shares, unknown=1), asking(4)), Rejection)


def test_shares_of_models_that_are_not_asked_for_are_left_alone() -> None:
    """As whole GPUs are."""
    shares = Shares((8,) * 8, (SharedGpu(0, 3),), 0b10)
    found = decide(Situation(MESH, 0b10, shares=shares), replace(asking(3), models=("*h100*",)))
    assert isinstance(found, Rejection)
    assert found.reason is Reason.UNSUITABLE_GPUS
