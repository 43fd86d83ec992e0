"""MIG devices that a DRA driver publishes are slices of a node that is for claims, and what holds one keeps others from pods."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

import pytest

from extender.cluster.candidates.holds import Held
from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.published_parts import PublishedPart, PublishedParts, SharedCounters
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from extender.inspect.drift import drift
from extender.inspect.faults import Faults
from extender.inspect.occupation import occupations
from tests.dra import allocated, gpu, read_claim, read_slice, resource_slice
from tests.extender.builders import claim, cluster, gpus, node, pod
from tests.extender.cluster.test_nodes_by_claim import OBSERVED, OURS, made_for, reported, user
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest

WHOLE: Final = gpus("n1", *range(8))
SMALL, LARGE, OTHER = "MIG-1g-0", "MIG-3g-0", "MIG-1g-4"
PLACES: Final = {SMALL: ("1g.10gb", 0, 1), LARGE: ("3g.40gb", 0, 4), OTHER: ("1g.10gb", 4, 1)}


def parts(counters: SharedCounters = SharedCounters(), unusable: str = "") -> PublishedParts:  # noqa: B008 - a value
    """Return three slices that can be made of the node's first GPU."""
    listed = tuple(
        PublishedPart("n1", uuid.lower(), WHOLE[0], uuid, profile, size << 33, start, size, on_demand=True)
        for uuid, (profile, start, size) in PLACES.items()
    )
    return PublishedParts(listed, counters, frozenset({unusable} - {""}))


def published(*claims: ResourceClaim, offered: PublishedParts | None = None, ledger: str = "") -> ClusterState:
    """Return a node with these devices; its ledger may name one of them for a pod `p`."""
    state, offered = ClusterState(), offered or parts()
    state.claims.allocated_here = lambda item: item.metadata.name.startswith(OURS)
    state.claims.parts_of = lambda name: offered if name == "n1" else None
    devices = [gpu(position, uuid) for position, uuid in enumerate(WHOLE)]
    devices += [{"name": uuid.lower(), "attributes": {"parentUUID": {"string": WHOLE[0]}}} for uuid in PLACES]
    state.claims.slices.replaced([read_slice(resource_slice("n1", devices))])
    state.claims.replaced(claims)
    state.claims.hear(True)
    named = (replace(claim(ledger, "p"), parent=WHOLE[0]),) if ledger else ()
    return cluster(node(claims=named, status=OBSERVED), into=state)


def taken(state: ClusterState) -> set[str]:
    view = state.views["n1"]
    return {uuid for position, uuid in enumerate(view.devices) if not view.shape.free >> position & 1}


@pytest.mark.parametrize(
    ("held", "kept"),
    [("mig-1g-0", {SMALL, LARGE, WHOLE[0]}), ("mig-3g-0", {SMALL, LARGE, WHOLE[0]}), ("gpu-0", {WHOLE[0], *PLACES})],
)
def test_what_a_claim_of_any_class_holds_keeps_its_gpu_and_what_overlaps(held: str, kept: set[str]) -> None:
    """The other slices of the GPU stay free, unless it is held whole."""
    state = published(read_claim(allocated("theirs", "n1", held)))
    assert taken(state) == kept
    view = state.views["n1"]
    assert "held by ResourceClaim ml/theirs" in Faults(view).of(0)[0]


@pytest.mark.parametrize("device", [SMALL, WHOLE[0]])
def test_what_the_ledger_plans_counts_as_taken(device: str) -> None:
    """By the same rules, before any claim is allocated."""
    state = published(ledger=device)
    state.pods.changed(pod("p"))
    assert taken(state) == ({SMALL, LARGE, WHOLE[0]} if device == SMALL else {WHOLE[0], *PLACES})


def test_a_slice_is_given_by_its_profile_and_stays_its_pods() -> None:
    """The ledger and the claim name the same slice."""
    request = GpuRequest(1, profile="1g.10gb", by_claim=True)
    view = published().views["n1"]
    verdict = view.decide_for("p", request)
    assert isinstance(verdict, Placement) and view.devices[verdict.gpus[0]] == OTHER, "it spoils no larger one"
    state = published(made_for("p", allocated(OURS, "n1", "mig-1g-0")), ledger=SMALL)
    verdict = state.views["n1"].decide_for("p", request)
    assert isinstance(verdict, Placement) and state.views["n1"].devices[verdict.gpus[0]] == SMALL
    assert not state.views["n1"].dra.held


def test_counters_that_do_not_suffice_keep_a_device_from_pods() -> None:
    """Also where no memory overlaps; what cannot be used is never free."""
    counter = ("n1", "gpu-0", "decoders")
    used = {SMALL: {counter: Fraction(1)}, OTHER: {counter: Fraction(1)}, LARGE: {}}
    offered = parts(SharedCounters({counter: Fraction(1)}, used))
    assert taken(published(offered=offered)) == set()
    assert taken(published(offered=offered, ledger=SMALL)) == {SMALL, LARGE, WHOLE[0], OTHER}
    assert taken(published(offered=parts(unusable=LARGE))) == {LARGE}


def test_devices_that_take_more_than_there_is_exclude_each_other() -> None:
    """In pairs, before anybody has one, and on demand alone: those that exist do so together."""
    decoders = ("n1", "gpu-0", "decoders")
    used = {SMALL: {decoders: Fraction(1)}, OTHER: {decoders: Fraction(3)}, LARGE: {decoders: Fraction(2)}}
    offered = parts(SharedCounters({decoders: Fraction(3)}, used))
    view = published(offered=offered).views["n1"]
    assert view.silicon.overlaps[OTHER] == {SMALL, LARGE} and view.silicon.overlaps[SMALL] == {OTHER, LARGE}
    assert view.shape.excluding(1 << view.devices.index(OTHER)).bit_count() == 4, "with its GPU"
    exist = replace(offered, parts=tuple(replace(part, on_demand=False) for part in offered.parts))
    assert not published(offered=exist).views["n1"].silicon.overlaps


def test_a_ledger_keeps_a_slice_that_is_not_published_now_while_a_claim_holds_anything() -> None:
    """Its pod is dead, and its driver may be publishing anew."""
    ours = made_for("p", allocated(OURS, "n1", "mig-1g-0"))
    for offered, standing in ((parts(), Standing.CLAIMED), (PublishedParts(), Standing.CLAIMED)):
        state = published(ours, offered=offered, ledger=SMALL)
        state.pods.changed(pod("p", phase="Failed"))
        assert [each for _, each in state.views["n1"].claims] == [standing]
    state.claims.deleted(ours)
    assert [each for _, each in state.views["n1"].claims] == [Standing.FREE]


def test_the_agent_tells_who_has_which_mig_device() -> None:
    """It names devices as their driver does. Processes on the GPU are theirs; a device that no claim holds goes to no pod."""
    state = published(made_for("p", allocated(OURS, "n1", "mig-1g-0")), ledger=SMALL)
    state.pods.changed(pod("p"))
    view = reported(state, user("p", OURS, "mig-1g-0"), foreign=(0,))
    assert view.dra.seen_with(("ml", "p")) == {SMALL} and not view.foreign
    states = {view.devices[i]: each.pod for i, each in enumerate(occupations(view, 0)) if each.pod}
    assert states == {SMALL: "ml/p"} and not drift(state).differences
    view = reported(state, user("p", OURS, "mig-1g-0"), user("stray", "gone", "mig-1g-4"))
    assert taken(state) == {SMALL, LARGE, WHOLE[0], OTHER} and view.dra.unexplained.keys() == {OTHER}


def test_counters_of_a_device_that_is_used_without_a_claim_are_not_given_again() -> None:
    """Its container has them, though nothing holds them."""
    counter = ("n1", "gpu-0", "decoders")
    used = {SMALL: {counter: Fraction(1)}, OTHER: {counter: Fraction(1)}, LARGE: {counter: Fraction(1)}}
    exist = tuple(replace(part, on_demand=False) for part in parts().parts)
    state = published(offered=PublishedParts(exist, SharedCounters({counter: Fraction(2)}, used)))
    reported(state, user("stray", "gone", "mig-1g-0"))
    assert taken(state) == {SMALL, WHOLE[0]}
    reported(state, user("stray", "gone", "mig-1g-0"), user("other", "gone", "mig-3g-0"))
    assert taken(state) == {SMALL, LARGE, OTHER, WHOLE[0]}


def test_what_is_planned_in_one_round_counts_for_the_next_pods() -> None:
    """Before it is in a ledger, by the same rules."""
    view = published().views["n1"]
    shape, small = view.shape, 1 << view.devices.index(SMALL)
    left = {uuid for i, uuid in enumerate(view.devices) if shape.beside(Held(small)).free >> i & 1}
    assert {*view.devices} - left == {SMALL, LARGE, WHOLE[0]}
    assert shape.how_many_fit(GpuRequest(1, profile="1g.10gb", by_claim=True)) == (2, True)
    assert shape.how_many_fit(GpuRequest(8, by_claim=True)) == (1, True)
    assert isinstance(view.decide_for("p", GpuRequest(8, by_claim=True), Held(small)), Rejection)


def test_a_device_that_is_not_published_for_a_moment_stays_its_pods_without_a_conflict() -> None:
    """Its driver may be publishing anew; nobody else gets any of its GPU meanwhile."""
    state = published(made_for("p", allocated(OURS, "n1", "mig-1g-0")), offered=PublishedParts(), ledger=SMALL)
    state.pods.changed(pod("p"))
    view = state.views["n1"]
    assert not view.disputed and not view.dra.held and taken(state) == {WHOLE[0]}
