"""A group keeps no more room from other groups than its pods make credible, and not for longer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.groups import GRACE_SECONDS, RENEWED_SECONDS
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.filter_prioritize import filter_nodes
from extender.verbs.wire import ExtenderArgs
from tests.extender.builders import cluster, gpus, node, pod
from topology.annotations import keys
from topology.request.domains import OURS, Level

RACKS, NODES_PER_RACK = 4, 4
NAMES = [f"n{number}" for number in range(RACKS * NODES_PER_RACK)]
NOW = 1_800_000_000.0
AN_HOUR_AGO, TEN_SECONDS_AGO, EIGHT_MINUTES_AGO = "2027-01-15T07:00:00Z", "2027-01-15T07:59:50Z", "2027-01-15T07:52:00Z"


def created_in(namespace: str, made: Pod) -> Pod:
    """Put a pod into a namespace."""
    return replace(made, metadata=replace(made.metadata, namespace=namespace))


def gated(made: Pod) -> Pod:
    """Put a pod behind a scheduling gate."""
    return replace(made, spec=replace(made.spec, scheduling_gates=[{"name": "x"}]))


def bound(rack: int, size: int, created: str, position: int = 0, group: str = "evil") -> Pod:
    """Build a pod of one GPU of a group in this rack."""
    wants = {keys.GROUP: f"{group}{rack}", keys.GROUP_SIZE: str(size)}
    on = NAMES[rack * NODES_PER_RACK]
    name = f"bound-{rack}-{position}"
    return created_in(
        "evil",
        pod(name, 1, on=on, placed=gpus(on, position), wants=wants, phase="Running", terminated=False, created=created),
    )


def waiting(rack: int, size: int, name: str = "fresh") -> Pod:
    """Build a pod of that group that was created a moment ago, and is bound nowhere."""
    wants = {keys.GROUP: f"evil{rack}", keys.GROUP_SIZE: str(size)}
    return created_in("evil", pod(f"{name}-{rack}", 1, wants=wants, created=TEN_SECONDS_AGO))


def hall(*pods: Pod) -> ClusterState:
    """Build racks of four empty machines, and these pods."""
    labels = [{"topology.kubernetes.io/rack": f"r{number // NODES_PER_RACK}"} for number in range(len(NAMES))]
    return cluster(*(node(name, labels=of) for name, of in zip(NAMES, labels, strict=True)), *pods)


def racks_open_to_others(state: ClusterState) -> int:
    """Return how many machines a group of two whole machines may begin on, which requires one rack."""
    wants = {keys.GROUP: "train", keys.GROUP_SIZE: "2", keys.GROUP_AFFINITY: "required-rack"}
    asked = created_in("good", pod("victim", 8, wants=wants, created=TEN_SECONDS_AGO))
    state.pods.changed(asked)
    return len(filter_nodes(state, ExtenderArgs(asked, node_names=NAMES), Instant(0.0, NOW)).node_names)


HUGE = 999_999_999
OTHERS = "good", OURS, "train", ""
"""A group of another namespace."""


@pytest.mark.parametrize("behind_gate", [True, False])
def test_new_pods_that_are_not_bound_do_not_renew_a_reservation(behind_gate: bool) -> None:
    """One pod a minute costs its tenant nothing, and a large size is quickly written."""
    fresh = [waiting(rack, HUGE) for rack in range(RACKS)]
    attackers = [bound(rack, HUGE, AN_HOUR_AGO) for rack in range(RACKS)]
    state = hall(*attackers, *(gated(each) if behind_gate else each for each in fresh))
    assert racks_open_to_others(state) == NODES_PER_RACK - 1


def test_a_size_counts_for_twice_the_pods_that_are_bound() -> None:
    """So one pod of one GPU, bound this moment, keeps one GPU and no rack."""
    state = hall(*(bound(rack, HUGE, TEN_SECONDS_AGO) for rack in range(RACKS)))
    assert racks_open_to_others(state) == NODES_PER_RACK - 1


def test_a_pod_that_was_only_offered_a_node_makes_no_other_credible() -> None:
    """Quotas limit what is bound. Hundreds of small groups that wait would keep every rack otherwise."""
    begun = waiting(0, HUGE)
    groups, age_of = hall(begun).indexes.groups, Instant(0.0, NOW).age_seconds
    kept = groups.reserved(OTHERS, 1, lambda uid: NAMES[0], [begun.metadata.uid], age_of)
    assert kept[Level.RACK, "r0"] == 0


def reserved(*pods: Pod, now: float = NOW, gpus_each: int = 1) -> int:
    """Return how many pods of so many GPUs the groups of rack 0 keep from other groups there."""
    age_of = Instant(0.0, now).age_seconds
    return hall(*pods).indexes.groups.reserved(OTHERS, gpus_each, lambda uid: None, (), age_of)[Level.RACK, "r0"]


def test_many_small_groups_keep_no_more_than_their_gpus() -> None:
    """Eight groups that wait for one GPU each need one machine, and not eight."""
    pods = [bound(0, 2, TEN_SECONDS_AGO, place, group=f"small-{place}-") for place in range(8)]
    assert reserved(*pods, gpus_each=8) == 1


@pytest.mark.parametrize(
    ("created", "size", "expected"),
    [
        ([TEN_SECONDS_AGO], HUGE, 1),
        ([TEN_SECONDS_AGO] * 3, HUGE, 3),
        ([TEN_SECONDS_AGO] * 3, 4, 1),
        ([EIGHT_MINUTES_AGO, TEN_SECONDS_AGO], HUGE, 2),
        ([AN_HOUR_AGO, TEN_SECONDS_AGO], HUGE, 0),
        ([EIGHT_MINUTES_AGO], HUGE, 0),
    ],
)
def test_bound_pods_renew_a_reservation_for_ten_minutes(created: list[str], size: int, expected: int) -> None:
    """After that only the pods that exist count, however often one of them is replaced."""
    pods = [bound(0, size, when, position) for position, when in enumerate(created)]
    assert reserved(*pods) == expected


def test_the_two_times_are_exact() -> None:
    """A minute after the newest pod, ten minutes after the oldest."""
    begun, first = NOW - 10, bound(0, HUGE, TEN_SECONDS_AGO)
    assert reserved(first, now=begun + GRACE_SECONDS - 1) == 1
    assert reserved(first, now=begun + GRACE_SECONDS) == 0
    later = bound(0, HUGE, "2027-01-15T08:09:20Z", 1)  # half a minute before the ten minutes are over
    assert reserved(first, later, now=begun + RENEWED_SECONDS - 1) == 2
    assert reserved(first, later, now=begun + RENEWED_SECONDS) == 0


def test_a_pod_that_has_succeeded_makes_no_more_credible() -> None:
    """It costs no quota any more."""
    done = [bound(0, HUGE, TEN_SECONDS_AGO, place) for place in range(1, 4)]
    ended = [replace(each, status=replace(each.status, phase="Succeeded")) for each in done]
    assert reserved(bound(0, HUGE, TEN_SECONDS_AGO), *ended) == 1


def test_only_bound_pods_are_the_newest() -> None:
    """One that waits keeps room for itself, and for no other."""
    assert reserved(bound(0, HUGE, EIGHT_MINUTES_AGO), waiting(0, HUGE)) == 1
    assert reserved(bound(0, HUGE, EIGHT_MINUTES_AGO), waiting(0, HUGE), bound(0, HUGE, TEN_SECONDS_AGO, 1)) == 3
