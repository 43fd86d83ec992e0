"""A choice where all that is asked for is inherited, promised or held, and the words of a refusal."""

from __future__ import annotations

from agent.plugin.choice.choose import AllocationRefusal, Ask, Basis, Grant, accept, choose
from agent.plugin.hold_back import Served, is_as_served, is_by_plan
from agent.plugin.pods.identify import Planned, Unplanned
from agent.plugin.pods.listed_pods import listed_gpus, plans_of
from tests.agent.plans import FirstCome, by_key, listed, planned

ANY = FirstCome()
NONE = frozenset[str]()


def ask(available: str, size: int, must: str = "") -> Ask:
    return Ask(frozenset(available), frozenset(must), size)


def test_what_the_pod_has_already_stays_in_its_set_though_it_is_promised_to_another() -> None:
    """It was judged before; two others that are free do not make up for it."""
    answer = choose(ask("abc", 2, must="a"), NONE, Unplanned(), by_key(planned("x", main="a")), ANY)
    assert answer == Grant(("a", "b"), Basis.UNPLANNED)


def test_a_container_that_inherits_all_of_its_gpus_is_as_planned() -> None:
    """There is nothing left to choose."""
    plan = planned("a", main="ab")
    assert choose(ask("abcd", 2, must="ab"), NONE, Planned(plan, "main"), by_key(plan), ANY) == Grant(
        ("a", "b"), Basis.PLANNED
    )


def test_what_is_inherited_may_be_listed_with_its_pod() -> None:
    """That is no reason to say that it cannot be had."""
    plan = planned("a", exact=True, main="ab")
    answer = choose(ask("ac", 2, must="a"), frozenset("a"), Planned(plan, "main"), by_key(plan), ANY)
    assert answer == AllocationRefusal("GPU b promised to the pod cannot be had")


def test_several_missing_gpus_are_counted_and_one_is_named() -> None:
    """A message is for people."""
    plan = planned("a", exact=True, main="abc")
    answer = choose(ask("abd", 3), NONE, Planned(plan, "main"), by_key(plan), ANY)
    assert answer == AllocationRefusal("GPU c promised to the pod cannot be had")
    answer = choose(ask("ade", 3), NONE, Planned(plan, "main"), by_key(plan), ANY)
    assert answer == AllocationRefusal("2 of the GPUs promised to the pod cannot be had")


def test_gpus_are_named_in_order() -> None:
    """Whatever order a set has."""
    letters = "hgfedcba"
    answer = accept(frozenset(letters), frozenset(letters), Unplanned(), {}, ANY)
    assert answer == AllocationRefusal("the kubelet took a, b, c, d, e, f, g, h, which it lists with another container")


def test_pods_with_other_gpus_do_not_matter_to_a_start() -> None:
    """Only who holds these does."""
    given = Served("ml", "a", "uid-a", frozenset("ab"))
    assert is_as_served(frozenset("ab"), [listed("x", main="c"), listed("a", main="ab")], [given])


def test_all_gpus_of_a_plan_are_by_plan() -> None:
    """As well as a part of them."""
    assert is_by_plan(frozenset("ab"), [], by_key(planned("a", main="ab")))
    assert is_by_plan(frozenset("a"), [], by_key(planned("a", main="ab")))
    assert not is_by_plan(frozenset("abc"), [], by_key(planned("a", main="ab")))


def test_without_a_ledger_or_a_list_nothing_is_planned_or_held() -> None:
    """Neither could be had."""
    assert plans_of(None) == {}
    assert listed_gpus(None) == frozenset()
