"""Caches never go back, never believe absence, and views are what a naive reading of all facts gives."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from tests.extender.builders import claim, cluster, free, gpus, node, pod, running
from topology.placement.verdict import UNKNOWN_GPUS

G = gpus("n1", *range(8))


@pytest.mark.slow
@given(st.permutations([node(claims=(claim(gpu, "p1"),), generation=i, version=i) for i, gpu in enumerate(G, start=2)]))
def test_the_newest_version_wins_in_whatever_order_they_arrive(versions: list[Node]) -> None:
    """Watch events, replies to our own writes and live reads overtake each other."""
    state = cluster(node(), pod("p1"))
    for number, version in enumerate(versions):
        (state.nodes.learn if number % 2 else state.nodes.changed)(version)
    assert free(state) == (0, 1, 2, 3, 4, 5, 6)


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    """That may cost a conflict, never safety."""
    state = cluster(node())
    state.nodes.changed(versioned(node(sick=(G[0],)), "b"))
    assert 0 not in free(state)
    state.nodes.changed(versioned(node(), "a"))
    assert 0 in free(state)


def test_a_late_reply_raises_nobody_from_the_dead() -> None:
    """What is gone from the cache comes back by the watch only."""
    state = cluster(node(), running("p1", "n1", G[0]))
    state.nodes.deleted(node(version=5))
    state.nodes.learn(node(version=4))
    state.pods.deleted(running("p1", "n1", G[0], version=5))
    state.pods.learn(running("p1", "n1", G[0], version=4))
    assert (len(state.nodes), len(state.pods)) == (0, 0)


def test_a_deletion_of_the_former_node_does_not_touch_its_successor() -> None:
    """Same name, other UID."""
    state = cluster(node(uid="old"))
    state.nodes.changed(node(uid="new", version=9))
    state.nodes.deleted(node(uid="old", version=8))
    assert free(state) == tuple(range(8))


def test_a_node_made_anew_has_no_ledger_of_its_predecessor() -> None:
    """What the old one said does not stand for the new one."""
    state = cluster(node(uid="old", claims=(claim(G[0], "p1"),)), pod("p1"))
    state.nodes.changed(node(uid="new", claims=None, version=9))
    assert (state.views["n1"].claims, state.views["n1"].is_new) == ((), True)


def test_a_list_removes_what_it_does_not_hold() -> None:
    """Deletes that nobody heard of during a gap leave no ghosts."""
    state = cluster(node("n1"), node("n2"), running("p1", "n1", G[0]), pod("p2"))
    state.nodes.replaced([node("n1")])
    state.pods.replaced([pod("p2")])
    assert (list(state.nodes), [found.uid for found in state.pods]) == (["n1"], ["p2"])
    assert (list(state.views), free(state)) == (["n1"], tuple(range(8)))


def test_a_list_takes_a_namesake_for_what_it_is() -> None:
    """The former pod is gone, and its GPUs are not the new one's."""
    state = cluster(node(claims=(claim(G[0], "old"),)), pod("p1", uid="old", on="n1", placed=(G[0],)))
    state.pods.replaced([pod("p1", uid="new")])
    tombstone = state.pods.tombstone("old")
    assert (state.pods.get("old"), tombstone is not None and tombstone.gone) == (None, True)
    assert 0 not in free(state)


def test_nothing_is_known_before_both_lists_have_arrived() -> None:
    """And everything afterwards, whichever came first."""
    state = ClusterState()
    state.pods.replaced(
        [pod("p1", on="n1", placed=(G[0],), phase="Succeeded", terminated=True), running("p2", "n1", G[1])]
    )
    assert (state.synced, dict(state.views)) == (False, {})
    state.nodes.replaced([node(claims=(claim(G[0], "p1"), claim(G[1], "p2")))])
    assert free(state) == (0, 2, 3, 4, 5, 6, 7)


def test_pods_without_gpus_cost_nothing() -> None:
    """Most pods of a cluster are of no interest."""
    assert len(cluster(node(), pod("p1", 0), pod("p2", 1)).pods) == 1


def test_a_count_that_cannot_be_read_is_still_a_pod_with_gpus() -> None:
    """Nobody knows how many it holds."""
    assert cluster(node(), pod("p1", "1.5", on="n1")).views["n1"].shape.closed == UNKNOWN_GPUS


def test_bad_requests_of_a_stranger_do_not_close_a_node() -> None:
    """Only what it holds matters."""
    state = cluster(node(), pod("p1", 1, on="n1", placed=(G[0],), wants={"gputopo.dev/no-such-key": "x"}))
    assert free(state) == (1, 2, 3, 4, 5, 6, 7)


def versioned(item: Node, version: str) -> Node:
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, resource_version=version))


NODES = ("n1", "n2")
PODS = ("a", "b", "c")
POSITIONS = st.sets(st.integers(0, 3), min_size=1, max_size=2)


@dataclass
class PodFacts:
    """What is true of one pod, as the machine below made it."""

    on: str | None = None
    placed: tuple[str, ...] = ()
    phase: str = "Pending"
    terminated: bool = False
    deleting: bool = False
    exists: bool = True
    last_word_heard: bool = False


@dataclass
class NodeFacts:
    """What is true of one node."""

    claims: dict[str, str] = field(default_factory=dict)
    sick: set[str] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)


class Views(RuleBasedStateMachine):
    """Events in any order, some of them repeated or out of date, against a naive recomputation."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.nodes = {name: NodeFacts() for name in NODES}
        self.pods: dict[str, PodFacts] = {}
        self.state = cluster(*map(self._node, NODES))
        self.old = [self._node(name) for name in NODES]

    def _uuid(self, name: str, position: int) -> str:
        return gpus(name, position, machine_name="t4-4")[0]

    def _node(self, name: str) -> Node:
        self.version += 1
        facts = self.nodes[name]
        claims = tuple(claim(gpu, uid) for gpu, uid in sorted(facts.claims.items()))
        version = self.version
        return node(
            name,
            "t4-4",
            claims=claims,
            generation=version,
            sick=tuple(facts.sick),
            held=facts.held,
            version=version,
        )

    def _pod(self, name: str) -> Pod:
        self.version += 1
        facts = self.pods[name]
        return pod(
            name,
            len(facts.placed) or 1,
            on=facts.on,
            placed=facts.placed or None,
            phase=facts.phase,
            terminated=facts.terminated if facts.on else None,
            deleting=facts.deleting,
            version=self.version,
        )

    def _tell_node(self, name: str) -> None:
        self.old.append(self._node(name))
        self.state.nodes.changed(self.old[-1])

    @rule(name=st.sampled_from(NODES), position=st.integers(0, 3), owner=st.sampled_from((*PODS, None)))
    def claim_changes(self, name: str, position: int, owner: str | None) -> None:
        self.nodes[name].claims.pop(self._uuid(name, position), None)
        if owner:
            self.nodes[name].claims[self._uuid(name, position)] = owner
        self._tell_node(name)

    @rule(name=st.sampled_from(NODES), position=st.integers(0, 3))
    def health_changes(self, name: str, position: int) -> None:
        self.nodes[name].sick ^= {self._uuid(name, position)}
        self._tell_node(name)

    @rule(name=st.sampled_from(NODES), position=st.integers(0, 3), holder=st.sampled_from((*PODS, "x", None)))
    def agent_reports(self, name: str, position: int, holder: str | None) -> None:
        self.nodes[name].held.pop(self._uuid(name, position), None)
        if holder:
            self.nodes[name].held[self._uuid(name, position)] = holder
        self._tell_node(name)

    @rule(name=st.sampled_from(NODES), number=st.integers(0, 10_000))
    def old_news_arrives(self, name: str, number: int) -> None:
        self.state.nodes.learn(self.old[number % len(self.old)])

    @rule(name=st.sampled_from(PODS))
    def pod_appears(self, name: str) -> None:
        if name not in self.pods:
            self.pods[name] = PodFacts()
            self.state.pods.changed(self._pod(name))

    @rule(name=st.sampled_from(PODS), where=st.sampled_from(NODES), positions=POSITIONS)
    def pod_is_bound(self, name: str, where: str, positions: set[int]) -> None:
        facts = self.pods.get(name)
        if facts and facts.exists and not facts.on and facts.phase == "Pending" and not facts.deleting:
            facts.on, facts.phase = where, "Running"
            facts.placed = tuple(self._uuid(where, position) for position in sorted(positions))
            self.state.pods.changed(self._pod(name))

    @rule(name=st.sampled_from(PODS), what=st.sampled_from(["ends", "terminates", "is being deleted"]))
    def pod_goes_on(self, name: str, what: str) -> None:
        facts = self.pods.get(name)
        if facts and facts.exists:
            facts.phase = "Failed" if what == "ends" else facts.phase
            facts.terminated = facts.terminated or what == "terminates"
            facts.deleting = facts.deleting or what == "is being deleted"
            self.state.pods.changed(self._pod(name))

    @rule(name=st.sampled_from(PODS))
    def pod_is_deleted(self, name: str) -> None:
        facts = self.pods.get(name)
        if facts and facts.exists:
            facts.exists, facts.last_word_heard = False, True
            self.state.pods.deleted(self._pod(name))

    @precondition(lambda self: self.pods)
    @rule(missing=st.sets(st.sampled_from(PODS)))
    def pods_are_listed_anew(self, missing: set[str]) -> None:
        for name in missing.intersection(self.pods):
            self.pods[name].exists = False
        self.state.pods.replaced([self._pod(name) for name, facts in self.pods.items() if facts.exists])

    @invariant()
    def free_masks_are_what_the_facts_say(self) -> None:
        for name in NODES:
            assert free(self.state, name) == self._naively_free(name), name

    def _naively_free(self, name: str) -> tuple[int, ...]:
        facts = self.nodes[name]
        live = {
            pod_name: pod_facts
            for pod_name, pod_facts in self.pods.items()
            if pod_facts.exists and pod_facts.on == name and not self._stopped(pod_facts)
            if pod_facts.phase != "Failed" or pod_name in facts.claims.values()
        }
        taken = set(facts.sick)
        for pod_facts in live.values():
            taken.update(pod_facts.placed)
        taken.update(gpu for gpu, owner in facts.claims.items() if not self._dead(owner, name))
        taken.update(gpu for gpu, holder in facts.held.items() if not self._stale(holder, name))
        return tuple(position for position in range(4) if self._uuid(name, position) not in taken)

    @staticmethod
    def _stopped(facts: PodFacts) -> bool:
        return facts.on is not None and facts.phase == "Failed" and facts.terminated

    def _dead(self, owner: str, name: str) -> bool:
        facts = self.pods.get(owner)
        if facts is None:
            return False
        if facts.on is not None:
            return facts.on != name or self._stopped(facts)
        return facts.last_word_heard or (facts.exists and facts.phase == "Failed")

    def _stale(self, holder: str, name: str) -> bool:
        facts = self.pods.get(holder)
        return facts is not None and facts.on == name and self._stopped(facts)


Views.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestViews = pytest.mark.slow(Views.TestCase)
