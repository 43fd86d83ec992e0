"""GPUs can be held for the next pod of an owner; only one with the same request gets them, and no pod that waits already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from extender.cluster.candidates.holds import Heir, Hold, Holds
from extender.cluster.objects.kinds import OwnerReference, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from tests.extender.builders import cluster, node, pod
from tests.extender.cluster.caches.test_restart_groups import of_replica
from topology.request.gpu_request import GpuRequest

HOLD = Hold("n1", 0b11, expires=100.0, is_firm=True)
HEIR = Heir("ml/rs", GpuRequest.plain(2), 1000, 0)


def bequeathed(heir: Heir = HEIR) -> Holds:
    holds = Holds()
    holds.put("plan", HOLD)
    holds.bequeath("plan", heir)
    return holds


def owned(item: Pod, owner: str = "rs") -> Pod:
    owners = [OwnerReference(owner, controller=True, kind="ReplicaSet")]
    return with_fields(item, metadata=with_fields(item.metadata, owner_references=owners))


def test_an_heir_gets_what_is_held_once() -> None:
    """The second pod gets nothing."""
    holds = bequeathed()
    assert holds.awaits("ml/rs")
    assert [holds.inherit("first", HEIR), holds.inherit("second", HEIR)] == [True, False]
    assert holds.places(0.0) == {"first": "n1"}
    assert not holds.awaits("ml/rs")


@pytest.mark.parametrize(
    "other",
    [
        replace(HEIR, owner="ml/other"),
        replace(HEIR, request=GpuRequest.plain(1)),
        replace(HEIR, cpu_milli=2000),
        replace(HEIR, memory_bytes=1),
    ],
    ids=["owner", "gpus", "cpu", "memory"],
)
def test_another_pod_gets_nothing(other: Heir) -> None:
    """It has another owner, or requests something else."""
    holds = bequeathed()
    assert not holds.inherit("pod", other)
    assert holds.places(0.0) == {"plan": "n1"}


def test_pods_that_wait_already_and_pods_that_have_a_hold_get_nothing() -> None:
    """Neither does any pod once that is revoked, released or expired."""
    holds = bequeathed(replace(HEIR, not_for=frozenset({"sibling"})))
    holds.put("planned", Hold("n2", 1, expires=100.0))
    assert not holds.inherit("sibling", HEIR)
    assert not holds.inherit("planned", HEIR)
    holds.revoke("plan")
    assert not holds.inherit("new", HEIR)
    for end in (lambda: holds.release("plan"), lambda: holds.places(200.0)):
        holds.put("plan", HOLD)
        holds.bequeath("plan", HEIR)
        end()
        assert not holds.inherit("new", HEIR)


def test_a_hold_that_yields_to_nobody_is_told_apart() -> None:
    """It ends when it expires."""
    holds = bequeathed()
    holds.put("soft", replace(HOLD, is_firm=False))
    assert (holds.firm_of("plan", 0.0), holds.firm_of("soft", 0.0), holds.firm_of("plan", 100.0)) == (HOLD, None, None)


def state_with(*pods: Pod) -> ClusterState:
    state = cluster(node("n1"), *pods)
    heir = state.heir_of(gpu_pod) if (gpu_pod := state.pods.get("old")) else None
    assert heir
    state.holds.put("plan", HOLD)
    state.holds.bequeath("plan", heir)
    return state


def test_a_new_pod_of_the_owner_inherits_when_the_watch_tells_of_it() -> None:
    """Others do not."""
    state = state_with(owned(pod("old", 2, on="n1")))
    feed = PodFeed(state)
    for item in (pod("orphan", 2), owned(pod("larger", 4)), owned(pod("stranger", 2), "other")):
        feed.changed(item)
    assert state.holds.places(0.0) == {"plan": "n1"}
    feed.changed(owned(pod("new", 2)))
    assert state.holds.places(0.0) == {"new": "n1"}


def test_the_next_pod_of_a_group_that_restarts_inherits_also_from_another_stateful_set() -> None:
    """A LeaderWorkerSet creates new ones when it restarts a replica."""
    state = state_with(of_replica(pod("old", 2, on="n1"), "s1"))
    PodFeed(state).changed(of_replica(pod("new", 2), "s2"))
    assert state.holds.places(0.0) == {"new": "n1"}
