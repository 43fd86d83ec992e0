"""What a container gets: the promised GPUs, or others that are nobody's, or nothing; and always what the kubelet accounts for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.plugin.choice.best import Scorer
from agent.plugin.choice.choose import AllocationRefusal, Ask, Basis, Grant, accept, choose
from agent.plugin.pods.identify import Identity, Planned, Unknown, Unplanned
from agent.plugin.pods.listed_pods import PodPlan
from tests.agent.plans import FirstCome, by_key, planned
from topology.effort import finish
from topology.formats.catalog import machine
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

LETTERS = "abcdefgh"
ANY = FirstCome()
NONE = frozenset[str]()


def ask(available: str, size: int, must: str = "") -> Ask:
    """Return a question about GPUs of one letter each."""
    return Ask(frozenset(available + must), frozenset(must), size)


@dataclass(frozen=True)
class Case:
    """One question of the kubelet, in any shape that it can have."""

    ask: Ask
    held: frozenset[str]
    who: Identity
    plans: tuple[PodPlan, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a question with other pods' promises, with or without a plan for the pod that asks."""
    order = draw(st.permutations(LETTERS))
    shares = draw(st.lists(st.integers(0, 8), min_size=2, max_size=4))
    cuts = [sum(shares[:place]) for place in range(len(shares) + 1)]
    parts = ["".join(order[start:end]) for start, end in pairwise(cuts)]
    exact = draw(st.booleans())
    own = planned("me", exact=exact, **{f"c{place}": part for place, part in enumerate(parts[:2]) if part})
    others = [planned(f"other-{place}", main=part) for place, part in enumerate(parts[2:]) if part]
    available = draw(st.sets(st.sampled_from(LETTERS), min_size=1))
    must = draw(st.sets(st.sampled_from(sorted(available)), max_size=3))
    size = draw(st.integers(max(1, len(must)), len(available)))
    container = draw(st.sampled_from([None, *own.containers]))
    who = draw(
        st.sampled_from([Planned(own, container) if own.containers else Unplanned(), Unplanned(), Unknown("?", (own,))])
    )
    plans = (own, *others) if isinstance(who, Planned) else tuple(others)
    held = draw(st.sets(st.sampled_from(LETTERS))) - must
    return Case(Ask(frozenset(available), frozenset(must), size), frozenset(held), who, plans)


@pytest.mark.slow
@given(cases())
def test_answer_is_as_many_free_gpus_as_asked_for_or_a_refusal(case: Case) -> None:
    """Invariant I4, over every shape of the question: distinct, available, nobody's, and with those that the pod has already."""
    answer = choose(case.ask, case.held, case.who, by_key(*case.plans), ANY)
    if isinstance(answer, Grant):
        assert len(set(answer.gpus)) == len(answer.gpus) == case.ask.size
        assert case.ask.must_include <= set(answer.gpus) <= case.ask.available - case.held


@pytest.mark.slow
@given(cases())
def test_nobody_gets_what_is_promised_to_another_pod(case: Case) -> None:
    """Half of invariant I3; what an init container left to its pod was judged before."""
    answer = choose(case.ask, case.held, case.who, by_key(*case.plans), ANY)
    me = case.who.plan.key if isinstance(case.who, Planned) else None
    theirs = {gpu for plan in case.plans if plan.key != me for gpu in plan.gpus}
    if isinstance(answer, Grant):
        assert not (set(answer.gpus) - case.ask.must_include) & theirs


@pytest.mark.slow
@given(cases())
def test_what_was_chosen_is_accepted_unless_it_holds_a_foreign_promise(case: Case) -> None:
    """The kubelet takes what we name, so naming and judging must agree."""
    plans = by_key(*case.plans)
    answer = choose(case.ask, case.held, case.who, plans, ANY)
    if isinstance(answer, Grant):
        judged = accept(frozenset(answer.gpus), case.held, case.who, plans, ANY)
        inherited = any(plan.gpus & case.ask.must_include for plan in case.plans)
        assert inherited or (isinstance(judged, Grant) and set(judged.gpus) == set(answer.gpus))


@pytest.mark.slow
@given(cases())
def test_exact_pod_gets_its_own_gpus_or_none(case: Case) -> None:
    """Half of invariant I1."""
    answer = choose(case.ask, case.held, case.who, by_key(*case.plans), ANY)
    if isinstance(case.who, Planned) and case.who.plan.exact and isinstance(answer, Grant):
        assert set(answer.gpus) <= case.who.plan.gpus


@pytest.mark.slow
@given(st.sets(st.sampled_from(LETTERS), min_size=1), cases())
def test_accepted_are_exactly_the_gpus_that_the_kubelet_took(gpus: set[str], case: Case) -> None:
    """Invariant I2."""
    answer = accept(frozenset(gpus), case.held, case.who, by_key(*case.plans), ANY)
    if isinstance(answer, Grant):
        assert len(answer.gpus) == len(gpus)
        assert set(answer.gpus) == gpus - case.held


def test_the_promised_gpus_are_taken_though_others_come_first() -> None:
    """The ledger decides."""
    plan = planned("a", main="fh")
    assert choose(ask(LETTERS, 2), NONE, Planned(plan, "main"), by_key(plan), ANY) == Grant(("f", "h"), Basis.PLANNED)


def test_gpus_inherited_from_an_init_container_are_kept() -> None:
    """Its container gets the rest of its own, or of its pod's."""
    plan = planned("a", one="ab", two="cd")
    both = by_key(plan)
    assert choose(ask("befg", 2, must="a"), NONE, Planned(plan, "one"), both, ANY) == Grant(("a", "b"), Basis.PLANNED)
    assert choose(ask("befg", 2, must="d"), NONE, Planned(plan, "one"), both, ANY) == Grant(("b", "d"), Basis.PLANNED)


@pytest.mark.parametrize(("exact", "expected"), [(False, Grant(("b", "c"), Basis.ADOPTED)), (True, None)])
def test_without_its_gpus_a_pod_takes_others_or_refuses(exact: bool, expected: Grant | None) -> None:
    """As it says itself; what another pod is promised is left alone."""
    plan, other = planned("a", exact=exact, main="ab"), planned("b", main="ef")
    answer = choose(ask("bcdef", 2), NONE, Planned(plan, "main"), by_key(plan, other), ANY)
    assert answer == (expected or AllocationRefusal("GPU a promised to the pod cannot be had"))


def test_stray_is_refused_when_only_promised_gpus_are_left() -> None:
    """A pod that came around the extender never takes what is another's."""
    answer = choose(ask("abc", 2), NONE, Unplanned(), by_key(planned("b", main="ab")), ANY)
    assert answer == AllocationRefusal("only 1 of 3 GPUs are promised to no other pod")


@pytest.mark.parametrize("exact", [False, True])
def test_pod_that_cannot_be_told_is_treated_by_the_strictest_that_it_may_be(exact: bool) -> None:
    """If one of them takes its own GPUs only, no guess will do."""
    who = Unknown("nobody knows", (planned("a", exact=exact, main="ab"), planned("b", main="cd")))
    answer = choose(ask("abcdef", 2), NONE, who, by_key(*who.plans), ANY)
    assert isinstance(answer, AllocationRefusal) if exact else answer == Grant(("e", "f"), Basis.UNPLANNED)


def test_last_resort_is_the_fastest_set() -> None:
    """The same search as the extender's: on a DGX-1 an NVLink quad, in the order of its ring."""
    node = machine("dgx-1v")
    names = [gpu.uuid for gpu in node.gpus]
    scorer = Scorer(node)
    assert set(scorer.best(names[1:], (), 4) or ()) == set(names[4:])
    assert set(scorer.best(names, names[6:7], 2) or ()) < set(names[4:])
    assert scorer.best(names[:2], (), 4) is None


@pytest.mark.parametrize("must", [(4, 7), (0,), (1, 6), (0, 3, 5)])
def test_gpus_that_have_to_be_among_them_cost_no_more_bandwidth_than_they_must(must: tuple[int, ...]) -> None:
    """All sets with these in them are looked at; grown from 4 and 7 along the fastest links, GPU 0 made 7.7 GB/s of 45.1."""
    node = machine("dgx-1v")
    names = [gpu.uuid for gpu in node.gpus]
    compiled, own = TopologyClass(node), sum(1 << position for position in must)
    for size in range(max(2, len(must)), len(node)):
        found = Scorer(node).best(names, [names[position] for position in must], size)
        assert found is not None
        chosen = sum(1 << names.index(name) for name in found)
        fastest = max(
            compiled.predict(mask)[0].point for mask in range(1 << 8) if mask.bit_count() == size and mask & own == own
        )
        assert chosen & own == own
        assert compiled.predict(chosen)[0].point == fastest


@pytest.mark.slow
def test_ties_are_broken_as_the_extender_breaks_them_once_values_are_computed() -> None:
    """On a DGX-1V the formula, which serves until then, takes other sets of equal bandwidth now and then."""
    node = machine("dgx-1v")
    scorer, extenders = Scorer(node), TopologyClass(node)
    finish(extenders.appraise(extenders.weights))

    def differing() -> int:
        count = 0
        for mask, size in product(range(1, 256, 3), (1, 2, 4)):
            free = [gpu.uuid for position, gpu in enumerate(node.gpus) if mask >> position & 1]
            decided = decide(Situation(extenders, mask), GpuRequest.plain(size))
            expected = {node.gpus[at].uuid for at in decided.gpus} if isinstance(decided, Placement) else None
            found = scorer.best(free, (), size)
            count += (set(found) if found else None) != expected
        return count

    assert differing() > 10
    for _ in scorer.appraise():
        pass
    assert differing() == 0


def test_gpus_are_told_in_ring_order() -> None:
    """Neighbours on the ring stand beside each other, whatever order the kubelet has; strangers come last."""
    node = machine("dgx-1v")
    names = [gpu.uuid for gpu in node.gpus]
    ring = Scorer(node).ring([*names[::-1], "GPU-unheard-of"])
    hops = [node.nvlinks(names.index(a), names.index(b)) for a, b in zip(ring[:8], (*ring[1:8], ring[0]), strict=True)]
    assert min(hops) > 0
    assert ring[8] == "GPU-unheard-of"


def test_a_container_gets_its_own_gpus_and_not_those_of_its_pod_that_come_first() -> None:
    """Those of another container of the pod serve only where its own are not to be had."""
    plan = planned("p", one="ab", two="cd")
    assert choose(ask("abcdef", 2), NONE, Planned(plan, "two"), by_key(plan), ANY) == Grant(("c", "d"), Basis.PLANNED)
    assert choose(ask("abcef", 2), NONE, Planned(plan, "two"), by_key(plan), ANY) == Grant(("a", "b"), Basis.PLANNED)
