"""What a placeholder asks for: more than any refused node of the groups that would help has free, or nothing at all."""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.candidates.node_groups import REMEMBERED
from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.state import ClusterState
from extender.features.autoscaling.need import FreeCounts, Need, NoNeed, need_of
from tests.extender.builders import DGX, at, cluster, node, pod
from tests.extender.features.queue.queued import queued
from tests.extender.scattered import counted, refuse, ring, scattered
from tests.extender.shares import SHARE_GIB, sharer, sharing_node
from topology.annotations import keys
from topology.formats.catalog import machine
from topology.placement.verdict import Reason

FOUR_LEFT = (0, 2, 4, 6)
"""Of each pair one."""


def asked_for(state: ClusterState, uid: str, *names: str) -> tuple[int, str] | NoNeed:
    """Return how many GPUs of which groups a placeholder would ask for, after a refusal by these nodes."""
    found = state.pods.get(uid)
    assert found is not None
    need = need_of(state, found, names, FreeCounts(state), at())
    return (need.gpus, " ".join(need.groups)) if isinstance(need, Need) else need


def refused(state: ClusterState, uid: str, *names: str) -> tuple[int, str] | NoNeed:
    """Have filter refuse the pod, and return what is asked for then."""
    found = state.pods.get(uid)
    assert found is not None
    refuse(state, found.pod, *names)
    return asked_for(state, uid, *names)


def test_one_more_than_any_refused_node_has_free() -> None:
    """Four are free on the one, three on the other; a third one was not asked, since it is closed to the pod by its taints."""
    state = cluster(*scattered("a", *FOUR_LEFT), *scattered("b", 1, 2, 4, 6, 7), counted(node("c")), ring("r", 2))
    assert refused(state, "r", "a", "b") == (5, "pairs.8")


def test_never_less_than_the_pod_asks_for() -> None:
    """Only a machine without such links has enough free, so that none of the group that helps was named."""
    state = cluster(counted(node("slow", "l4-8"), "l4.8"), *scattered("full", *range(8)), ring("r", 2))
    assert refused(state, "r", "slow") == (2, "pairs.8")


def test_machines_that_would_not_help_raise_no_count() -> None:
    """An empty machine without NVLink has eight free; the placeholder cannot go there."""
    state = cluster(counted(node("slow", "l4-8"), "l4.8"), *scattered("a", *FOUR_LEFT), ring("r", 2))
    assert refused(state, "r", "slow", "a") == (5, "pairs.8")


def test_nothing_where_an_empty_machine_would_not_do_either() -> None:
    """No machine in pairs joins four."""
    state = cluster(*scattered("a", *FOUR_LEFT), ring("r", 4))
    assert refused(state, "r", "a") is NoNeed.NO_GROUP


def test_nothing_where_a_new_node_has_no_more_than_a_refused_one() -> None:
    """A machine of the group that is up and has not reported yet may be the one that comes."""
    fresh = counted(node("fresh", topology=None, status=None, observed=None, claims=None))
    state = cluster(fresh, *scattered("a", *FOUR_LEFT), ring("r", 2))
    assert refused(state, "r", "fresh", "a") is NoNeed.NO_LARGER


def test_nothing_for_another_reason_than_links() -> None:
    """A node that is closed opens again, and a machine too full is counted by autoscalers themselves."""
    state = cluster(*scattered("a", *FOUR_LEFT), ring("r", 2))
    state.memory.refusals.add("r", frozenset({Reason.CLOSED, Reason.TOO_FEW_FREE}), 0.0)
    assert asked_for(state, "r", "a") is NoNeed.OTHER_REASON


def test_nothing_once_the_counts_do_not_suffice_either() -> None:
    """Then autoscalers see the pod themselves, and a placeholder would bring a second node."""
    state = cluster(*scattered("a", *FOUR_LEFT), ring("r", 2))
    refuse(state, ring("r", 2), "a")
    state.pods.changed(pod("another", 3, on="a"))
    assert asked_for(state, "r", "a") is NoNeed.SEEN_BY_COUNT


def test_nothing_for_a_group_that_has_to_stay_in_one_domain() -> None:
    """Nobody knows which rack a new node would be in."""
    wants = {
        keys.REQUIRED_AFFINITY: "nvlink",
        keys.GROUP: "g",
        keys.GROUP_SIZE: "2",
        keys.GROUP_AFFINITY: "required-rack",
    }
    state = cluster(*scattered("a", *FOUR_LEFT), pod("r", 2, wants=wants))
    assert refused(state, "r", "a") is NoNeed.DOMAIN


def test_a_declared_group_counts_without_a_node() -> None:
    """The operator says what an empty node of it is like."""
    state = ClusterState(expected={"a100.8": machine(DGX)})
    known = cluster(*scattered("a", *FOUR_LEFT))
    for name in known.nodes:
        found = known.nodes.get(name)
        assert found
        state.nodes.replaced([found.node])
    state.pods.replaced([ring("r", 4)])
    assert refused(state, "r", "a") == (4, "a100.8")


def test_a_group_whose_last_node_is_gone_is_remembered() -> None:
    """Autoscalers take groups down to nothing, and up again."""
    gone = counted(node("gone", DGX), "a100.8")
    state = cluster(gone, *scattered("a", *FOUR_LEFT), ring("r", 4))
    assert [group.name for group in state.node_groups] == ["a100.8", "pairs.8"]
    state.nodes.deleted(gone)
    assert refused(state, "r", "a") == (4, "a100.8")


def test_a_node_with_ever_new_labels_does_not_make_groups_forgotten_that_others_were_in() -> None:
    """A node may write its own labels."""
    gone, restless = counted(node("gone", DGX), "a100.8"), node("restless", "l4-8")
    state = cluster(gone, counted(restless, "l4.8"), *scattered("a", *FOUR_LEFT), ring("r", 4))
    assert [group.name for group in state.node_groups] == ["a100.8", "l4.8", "pairs.8"]
    state.nodes.deleted(gone)
    for number in range(2 * REMEMBERED):
        state.nodes.changed(counted(node("restless", "l4-8", version=2 + number), f"made-up-{number}"))
        assert state.node_groups
    assert refused(state, "r", "a") == (4, "a100.8")
    assert len([*state.node_groups]) <= REMEMBERED + 2


@pytest.mark.parametrize("sick", [1, 2])
def test_most_nodes_of_a_group_say_what_it_is_like(sick: int) -> None:
    """One machine that lost its links does not speak for the others."""
    nodes = [counted(node(f"n{number}", "l4-8" if number < sick else DGX)) for number in range(3)]
    [group] = cluster(*nodes).node_groups
    assert group.would_take(read_request(ring("r", 4)).request) == (sick == 1)


def test_pods_that_have_ended_take_nothing_of_the_count() -> None:
    """kube-scheduler does not count them either."""
    machine_, owner = scattered("a", *FOUR_LEFT)
    ended = msgspec.structs.replace(owner, status=msgspec.structs.replace(owner.status, phase="Succeeded"))
    assert FreeCounts(cluster(machine_, owner)).of("a") == 4
    assert FreeCounts(cluster(machine_, ended)).of("a") == 8


def test_autoscalers_see_shares_themselves() -> None:
    """No placeholder of whole GPUs stands for a share."""
    asked = sharer("p", SHARE_GIB + 1, wants={keys.GPU_MODEL: "*H200*"})
    state = cluster(sharing_node(), asked)
    refuse(state, asked, "n1")
    found = state.pods.get("p")
    assert found is not None
    assert need_of(state, found, ["n1"], FreeCounts(state), at()) is NoNeed.OTHER_REASON


def in_queue(count: int, *used: int) -> ClusterState:
    """Return a machine in pairs with these GPUs in use, and a pod behind the queue's gate."""
    return cluster(*scattered("a", *used), queued("q", count))


def test_a_pod_in_the_queue_gets_one_for_whatever_it_has_no_room_for() -> None:
    """Autoscalers do not see it, so its placeholder also stands for what counts alone would tell."""
    assert asked_for(in_queue(4, *range(8)), "q", "a") == (4, "pairs.8")
    assert asked_for(in_queue(4, 0, 1, 2), "q", "a") == (6, "pairs.8")
