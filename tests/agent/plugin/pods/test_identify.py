"""Which pod is asking: told exactly by what the kubelet lists and the ledger promises, or not told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.plugin.pods.arrivals import PodArrivals
from agent.plugin.pods.identify import Planned, Unknown, Unplanned, identify
from agent.plugin.pods.listed_pods import ListedPod, plans_of, promised_to_others
from tests.agent.plans import by_key, listed, planned
from topology.annotations.records import Claim, Ledger


def asks(size: int, *pods: ListedPod, plans: object = (), before: Sequence[Sequence[ListedPod]] = ()) -> object:
    """Return who asks, when `pods` are listed now, and these were `before`, in order."""
    arrivals = PodArrivals()
    for looked in (*before, pods):
        arrivals.saw(looked)
    return identify(pods, arrivals.newest, by_key(*plans), size)  # type: ignore[misc]


def test_the_pod_without_devices_is_the_one_under_admission() -> None:
    """Others of the same size hold theirs already."""
    plan = planned("b", main="cd")
    pods = listed("a", main="ab"), listed("b", main="")
    assert asks(2, *pods, plans=(planned("a", main="ab"), plan)) == Planned(plan, "main")


def test_containers_ask_in_the_order_in_which_they_are_listed() -> None:
    """Each for its own GPUs."""
    plan = planned("a", one="ab", two="cd")
    assert asks(2, listed("a", one="", two=""), plans=[plan]) == Planned(plan, "one")
    assert asks(2, listed("a", one="ab", two=""), plans=[plan]) == Planned(plan, "two")


def test_init_container_is_known_by_its_pod() -> None:
    """It is not listed, and asks before those that are."""
    plan = planned("a", main="abcd", helper="e")
    assert asks(5, listed("a", main="", helper=""), plans=[plan]) == Planned(plan, None)
    only_init = planned("b", setup="ab")
    assert asks(2, listed("b", main=""), plans=[only_init]) == Planned(only_init, None)


def test_pod_without_claims_is_nobody_we_know() -> None:
    """It came around the extender; that another pod is promised GPUs does not make it that one."""
    assert asks(2, listed("stray", main="")) == Unplanned()
    assert asks(2, listed("stray", main=""), plans=[planned("absent", main="ab")]) == Unplanned()


def test_pod_that_got_nothing_when_it_was_admitted_is_not_taken_for_a_newer_one() -> None:
    """It was listed before the one that asks now, so its own admission is over."""
    old, new = planned("old", main="ab"), planned("new", main="cd")
    pods = listed("old", main=""), listed("new", main="")
    assert asks(2, *pods, plans=(old, new), before=[pods[:1]]) == Planned(new, "main")


def test_stray_is_not_taken_for_a_pod_that_waits_since_long() -> None:
    """The only pod with a promise of that size is listed since before."""
    old = listed("old", main="")
    plan = planned("old", main="ab")
    found = asks(2, old, listed("stray", main=""), plans=[plan], before=[[old]])
    assert found == Unknown("the pod that waits was listed long ago", (plan,))
    assert asks(3, listed("old", main=""), plans=[plan]) == Unplanned()


def test_two_that_arrived_together_are_not_told_apart() -> None:
    """Rather nobody than the wrong one."""
    plans = planned("a", main="ab"), planned("b", main="cd")
    found = asks(2, listed("a", main=""), listed("b", main=""), plans=plans)
    assert found == Unknown("several pods wait for as many GPUs", plans)


def test_namesake_that_comes_back_is_new() -> None:
    """GPUs are freed with their pod only, so an empty pod of that name is another one."""
    first, second = listed("web-0", main="ab"), listed("web-1", main="cd")
    plan = planned("web-0", main="ef")
    found = asks(2, listed("web-0", main=""), second, plans=[plan], before=[[first], [first, second]])
    assert found == Planned(plan, "main")


@pytest.mark.parametrize(("older", "younger"), [("99", "100"), ("7", "8"), ("", "1")])
def test_of_namesakes_in_the_ledger_the_younger_one_counts(older: str, younger: str) -> None:
    """The claims of a pod that is gone stay until that is proven."""
    claims = (
        Claim("GPU-a", "uid-1", "ml", "web-0", "main", younger),
        Claim("GPU-b", "uid-2", "ml", "web-0", "main", older),
    )
    for ordered in (claims, claims[::-1]):
        (plan,) = plans_of(Ledger(1, ordered)).values()
        assert plan.gpus == {"GPU-a"}
        assert plan.former == {"GPU-b"}


def test_claims_of_every_namesake_that_is_gone_stay_promised() -> None:
    """To nobody: neither a stranger nor the youngest namesake may have them, as their containers may still run."""
    claims = (Claim(f"GPU-{uid}", uid, "ml", "web-0", "main", str(age)) for age, uid in enumerate("abc"))
    plans = plans_of(Ledger(1, tuple(claims)))
    assert promised_to_others(plans.values(), None) == {"GPU-a", "GPU-b", "GPU-c"}
    assert promised_to_others(plans.values(), ("ml", "web-0")) == {"GPU-a", "GPU-b"}
