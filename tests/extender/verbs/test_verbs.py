"""What filter and prioritize answer."""

from __future__ import annotations

import json

import pytest

from extender.binding.bind import bind
from extender.binding.outcome import BindTarget
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from extender.verbs.wire import decode_args, encode
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod, running
from topology.annotations import keys

NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}


def passing(state: ClusterState, asked: Pod, *names: str, now: float = 0.0, candidates: int = 16) -> list[str]:
    return list(filter_nodes(state, args(asked, *names), at(now), candidates=candidates).node_names)


def scores(state: ClusterState, asked: Pod, *names: str, now: float = 0.0) -> dict[str, int]:
    return {entry.host: entry.score for entry in prioritize_nodes(state, args(asked, *names), at(now))}


def used(name: str, *positions: int, machine_name: str = PAIRS) -> tuple[Node, Pod]:
    """Return a node and the pod that holds these GPUs of it."""
    taken = gpus(name, *positions, machine_name=machine_name)
    owner = f"on-{name}"
    return node(name, machine_name, claims=tuple(claim(gpu, owner) for gpu in taken)), running(owner, name, *taken)


def test_passes_the_node_whose_free_set_is_joined_by_nvlink() -> None:
    """Another one has more free GPUs, but of each pair only one."""
    state = cluster(*used("scattered", 0, 2), *used("narrow", 0, 1, 2, 3, 4, 6, 7), *used("whole", 0, 1, 2, 3, 4, 5))
    assert passing(state, pod("p", 2, wants=NVLINK), "scattered", "narrow", "whole") == ["whole", "scattered"]
    assert passing(state, pod("p", 2, wants=NVLINK), "narrow") == []


def test_says_why_when_nothing_fits() -> None:
    """Reasons are few, and in the map that keeps preemption from trying what cannot help."""
    state = cluster(*used("n1", 0, 2, 4, 6), *used("n2", 0, 2, 4, 6), node("n3", topology=None))
    answer = filter_nodes(state, args(pod("p", 2, wants=NVLINK), "n1", "n2", "n3", "n4"), at())
    assert (answer.node_names, answer.failed_nodes) == ([], None)
    messages = answer.failed_and_unresolvable_nodes or {}
    assert messages["n1"] == messages["n2"] != ""
    assert messages["n3"] == "no GPU topology is published (an agent has to run there)"
    assert messages["n4"] == "node is not known to the extender yet (the pod is tried again)"


def test_a_pod_that_is_gone_is_not_counted_among_those_that_wait() -> None:
    """kube-scheduler may hear of its deletion after us; one that we have not heard of yet waits like any other."""
    state, asked = cluster(*used("n1", 0, 2, 4, 6)), pod("p", 2, wants=NVLINK)
    for known, waits in ((False, True), (True, True), (False, False)):
        if known:
            state.pods.changed(asked)
        elif not waits:
            state.pods.deleted(asked)
        assert passing(state, asked, "n1") == []
        assert bool(state.memory.refusals.waiting()) is waits


def test_a_nomination_is_not_called_dead_while_its_victims_leave() -> None:
    """Its refusal is one that pods can cure; the others' stay unresolvable."""
    state = cluster(*used("n1", *range(8)), *used("n2", *range(8)))
    answer = filter_nodes(state, args(pod("p", 1, nominated="n1"), "n1", "n2"), at())
    assert list(answer.failed_nodes or ()) == ["n1"]
    assert list(answer.failed_and_unresolvable_nodes or ()) == ["n2"]


def test_a_nomination_to_a_node_that_can_never_serve_is_dead() -> None:
    """Waiting there would be for ever."""
    state = cluster(node("n1"))
    answer = filter_nodes(state, args(pod("p", 9, nominated="n1"), "n1"), at())
    assert (answer.failed_nodes, list(answer.failed_and_unresolvable_nodes or {})) == (None, ["n1"])


@pytest.mark.parametrize(("candidates", "count"), [(16, 16), (0, 40), (1, 1)])
def test_passes_on_so_many_candidates_and_no_reasons(candidates: int, count: int) -> None:
    """0 is all of them, 1 pins."""
    state = cluster(*(node(f"n{i:02}") for i in range(40)), node("bad", topology=None))
    asked = args(pod("p", 2), "bad", *(f"n{i:02}" for i in range(40)))
    answer = filter_nodes(state, asked, at(), candidates=candidates)
    assert encode(answer) == encode({"NodeNames": [f"n{i:02}" for i in range(count)]})


def test_never_returns_a_name_that_was_not_asked_for() -> None:
    """Unknown and repeated names are tolerated."""
    state = cluster(node("n1"), node("n2"), node("n3"))
    assert passing(state, pod("p", 2), "n3", "n1", "nobody", "n3") == ["n1", "n3"]


def test_equals_are_taken_fullest_first_then_by_name() -> None:
    """On alike GPUs a pod that talks to nobody loses nothing anywhere: the emptier node stays whole."""
    state = cluster(*used("b-half", 0, 1, 2, 3, machine_name="l4-8"), node("a", "l4-8"), node("c", "l4-8"))
    order = passing(state, pod("p", 1), "a", "b-half", "c")
    assert order.index("a") < order.index("c")
    assert set(order) == {"a", "b-half", "c"}


def test_a_pod_without_gpus_passes_everywhere() -> None:
    """It is none of our business."""
    state = cluster(node("n1", topology=None))
    assert passing(state, pod("p", 0), "n1", "elsewhere") == ["n1", "elsewhere"]
    assert scores(state, pod("p", 0), "n1", "elsewhere") == {}


def test_a_request_that_cannot_be_read_fails_everywhere_with_its_reason() -> None:
    """A guess would place the pod where its user did not want it."""
    asked = pod("p", 2, wants={keys.REQUIRED_AFFINITY: "nvlnk"})
    answer = filter_nodes(cluster(node("n1")), args(asked, "n1", "n2"), at())
    messages = answer.failed_and_unresolvable_nodes or {}
    assert (answer.node_names, list(messages)) == ([], ["n1", "n2"])
    assert set(messages.values()) == {
        "gputopo.dev/required-affinity: 'nvlnk' is not one of nvlink, pcie-switch, numa-node"
    }
    assert prioritize_nodes(cluster(node("n1")), args(asked, "n1"), at()) == []


def test_a_requirement_relaxes_with_the_age_of_the_pod() -> None:
    """After `relax-after` a worse node will do."""
    state = cluster(*used("n1", 0, 2, 4, 6))
    asked = pod("p", 2, wants=NVLINK | {keys.RELAX_AFTER: "10m"})
    assert passing(state, asked, "n1", now=599.0) == []
    assert passing(state, asked, "n1", now=600.0) == ["n1"]


def test_answers_whole_nodes_with_whole_nodes() -> None:
    """A scheduler without `nodeCacheCapable` takes nothing else."""
    asked = json.dumps({
        "Pod": {"metadata": {"uid": "p"}, "spec": {"containers": [{"resources": {"limits": {keys.GPU_RESOURCE: "1"}}}]}},
        "Nodes": {"items": [{"metadata": {"name": name}, "spec": {"kept": name}} for name in ("n1", "n2")]},
        "NodeNames": None,
    })  # fmt: skip
    answer = filter_nodes(cluster(node("n2")), decode_args(asked.encode()), at())
    assert json.loads(encode(answer))["Nodes"] == {"items": [{"metadata": {"name": "n2"}, "spec": {"kept": "n2"}}]}


def test_answers_nothing_before_the_whole_cluster_was_seen() -> None:
    """Without the pods every GPU looks free."""
    state = ClusterState()
    state.nodes.replaced([node("n1")])
    answer = filter_nodes(state, args(pod("p"), "n1"), at())
    assert (answer.node_names, answer.error) == ([], "the cluster has not been listed yet")
    assert prioritize_nodes(state, args(pod("p"), "n1"), at()) == []


def test_one_node_gets_a_ten_and_nobody_else() -> None:
    """kube-scheduler breaks ties at random, so there must not be any at the top."""
    state = cluster(node("a"), node("b"), *used("c", 0, 2, 4, 6), *used("full", *range(8)))
    found = scores(state, pod("p", 4), "full", "c", "b", "a", "nobody")
    assert found["a"] == 10
    assert (found["full"], found["nobody"]) == (0, 0)
    assert 1 <= found["c"] < found["b"] == 9


def test_scores_nothing_when_nothing_fits_any_more() -> None:
    """Between filter and prioritize a node may have filled up."""
    assert scores(cluster(*used("n1", *range(8))), pod("p", 1), "n1") == {"n1": 0}


class TestRotation:
    """What another extender refuses is not offered again before everything else."""

    NAMES = tuple(f"n{i}" for i in range(5))

    def test_a_pod_that_comes_back_is_offered_the_next_best(self) -> None:
        """And from the start again when there are no more."""
        state = cluster(*map(node, self.NAMES))
        offers = [passing(state, pod("p", 2), *self.NAMES, candidates=2) for _ in range(4)]
        assert offers == [["n0", "n1"], ["n2", "n3"], ["n4"], ["n0", "n1"]]

    def test_a_pod_that_got_as_far_as_scores_was_not_refused(self) -> None:
        """Something else failed then, and the best are still the best."""
        state = cluster(*map(node, self.NAMES))
        for _ in range(2):
            assert passing(state, pod("p", 2), *self.NAMES, candidates=2) == ["n0", "n1"]
            prioritize_nodes(state, args(pod("p", 2), "n0", "n1"), at())

    def test_a_pod_that_got_as_far_as_a_bind_was_not_refused(self) -> None:
        """One candidate may be left, and then nobody asks for scores."""
        state = cluster(*map(node, self.NAMES))
        assert passing(state, pod("p", 2), *self.NAMES, candidates=2) == ["n0", "n1"]
        next(bind(state, BindTarget("ml", "p", "p", "n0"), at, deadline=9.0))
        assert passing(state, pod("p", 2), *self.NAMES, candidates=2) == ["n0", "n1"]

    def test_a_node_that_has_changed_is_worth_another_try(self) -> None:
        """Whatever was refused there may be no more."""
        state = cluster(*map(node, self.NAMES))
        assert passing(state, pod("p", 2), *self.NAMES, candidates=2) == ["n0", "n1"]
        state.nodes.changed(node("n1", sick=gpus("n1", 7), version=2))
        assert "n1" in passing(state, pod("p", 2), *self.NAMES, candidates=4)

    def test_pods_rotate_on_their_own(self) -> None:
        """And a deleted one leaves nothing behind."""
        state = cluster(*map(node, self.NAMES), pod("p", 2))
        assert passing(state, pod("p", 2), *self.NAMES, candidates=2) == ["n0", "n1"]
        assert passing(state, pod("q", 2), *self.NAMES, candidates=2) == ["n0", "n1"]
        state.pods.deleted(pod("p", 2))
        assert state.memory.offers.refused("p", state.shapes) == frozenset()


class TestHolds:
    """Between prioritize and bind the winner's GPUs are kept in mind."""

    def test_the_next_pod_is_steered_past_the_held_gpus(self) -> None:
        """Two pods for one whole pair and one other node: each gets a place."""
        state = cluster(*used("n1", 0, 1, 2, 3, 4, 5), *used("n2", 0, 1, 2, 3, 4, 5))
        assert passing(state, pod("p", 2, wants=NVLINK), "n1", "n2") == ["n1", "n2"]
        assert scores(state, pod("p", 2, wants=NVLINK), "n1", "n2")["n1"] == 10
        assert passing(state, pod("q", 2, wants=NVLINK), "n1", "n2") == ["n2"]

    def test_a_hold_is_taken_when_one_candidate_is_left(self) -> None:
        """kube-scheduler does not ask for scores then."""
        state = cluster(*used("n1", 0, 1, 2, 3, 4, 5), node("n2"))
        assert passing(state, pod("p", 2), "n1", "n2", candidates=1) == ["n1"]
        assert passing(state, pod("q", 2), "n1", "n2", candidates=1) == ["n2"]

    def test_a_hold_never_turns_a_yes_into_a_no(self) -> None:
        """It is a guess; the other pod may go elsewhere, and nobody would wake this one."""
        state = cluster(*used("n1", 0, 1, 2, 3, 4, 5))
        scores(state, pod("p", 2), "n1")
        assert passing(state, pod("q", 2), "n1") == ["n1"]

    def test_a_hold_does_not_keep_its_own_pod_away(self) -> None:
        """The pod comes back after something else has failed."""
        state = cluster(*used("n1", 0, 1, 2, 3, 4, 5), node("n2"))
        scores(state, pod("p", 2), "n1")
        assert scores(state, pod("p", 2), "n1", "n2")["n1"] == 10

    def test_a_hold_expires(self) -> None:
        """Nobody says when a pod was given up on."""
        state = cluster(*used("n1", 0, 1, 2, 3, 4, 5), node("n2"))
        scores(state, pod("p", 2), "n1")
        assert passing(state, pod("q", 2), "n1", "n2", now=29.0) == ["n2"]
        assert passing(state, pod("q", 2), "n1", "n2", now=30.0)[0] == "n1"

    def test_a_deleted_pod_holds_nothing(self) -> None:
        """Its GPUs are there for the next one at once."""
        state = cluster(*used("n1", 0, 1, 2, 3, 4, 5), pod("p", 2))
        scores(state, pod("p", 2), "n1")
        state.pods.deleted(pod("p", 2))
        assert len(state.holds) == 0

    def test_a_pod_that_is_bound_holds_nothing_beside_what_it_has(self) -> None:
        """Where kube-scheduler binds itself, holds would add up for half a minute, and each call goes through all of them."""
        state = cluster(node("n1"), node("n2"), pod("p", 2))
        scores(state, pod("p", 2), "n1", "n2")
        state.pods.changed(running("p", "n2", *gpus("n2", 0, 1), version=2))
        assert len(state.holds) == 0


def test_a_pod_finds_the_gpus_that_it_has_claimed_before() -> None:
    """A bind that died left its claim; the pod itself may still go there."""
    full = gpus("n1", *range(8), machine_name=PAIRS)
    state = cluster(
        node("n1", PAIRS, claims=(claim(full[6], "p"), claim(full[7], "p"), *(claim(gpu, "q") for gpu in full[:6]))),
        running("q", "n1", *full[:6]),
        pod("p", 2),
    )
    assert passing(state, pod("p", 2, wants=NVLINK), "n1") == ["n1"]
    assert passing(state, pod("other", 2), "n1") == []
