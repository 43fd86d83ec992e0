"""A GPU of which anybody holds a part is nobody's as a whole, and what is on a shared GPU may be a neighbour's."""

from __future__ import annotations

from agent.plugin.choice.choose import AllocationRefusal, Ask, Basis, Grant
from agent.plugin.choice.forms import Shared, Whole
from agent.plugin.choice.shares import Shareable
from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.identify import Unplanned
from agent.plugin.pods.listed_pods import PodPlan
from tests.agent.plans import FirstCome, by_key, planned
from tests.agent.plugin.choice.test_shares import holding, part, shares

WHOLE = Whole(FirstCome, lambda: frozenset(share_devices("a", 4)) | {"MIG-1"})
SHARED = Shared(FirstCome, lambda: Shareable({"a": 4, "b": 4}, 2))
A_PART = [holding("s", part("a", 0, 1))]


def test_no_whole_gpu_is_given_of_which_anybody_holds_a_part() -> None:
    """The kubelet offers it as long as its device was not withdrawn."""
    ask = Ask(frozenset("ab"), frozenset(), 1)
    assert WHOLE.choose(ask, A_PART, Unplanned(), {}) == Grant(("b",), Basis.UNPLANNED)
    assert isinstance(WHOLE.accept(frozenset("a"), A_PART, Unplanned(), {}), AllocationRefusal)


def test_no_whole_gpu_is_given_of_which_anybody_is_promised_a_part() -> None:
    """Nor does a container start with one."""
    plans = by_key(shares("late", main=("a", 1)))
    ask = Ask(frozenset("ab"), frozenset(), 1)
    assert WHOLE.choose(ask, [], Unplanned(), plans) == Grant(("b",), Basis.UNPLANNED)
    assert WHOLE.robbed(frozenset("a"), [], ("ml", "stray"), plans) == "its GPUs are promised to another pod"


def test_each_form_is_asked_for_by_its_own_plans() -> None:
    """A pod asks for one kind of device."""
    share, whole, sliced = shares("s", main=("a", 1)), planned("w", main="b"), planned("m")
    assert (WHOLE.may_ask(share), WHOLE.may_ask(whole)) == (False, True)
    assert (SHARED.may_ask(share), SHARED.may_ask(whole)) == (True, False)
    assert not WHOLE.may_ask(sliced)
    assert not WHOLE.may_ask(PodPlan("ml", "m", "uid", {"main": WHOLE.elsewhere()}))
    assert (WHOLE.is_shared, SHARED.is_shared) == (False, True)


def test_share_that_was_handed_out_before_anybody_could_look_starts_if_it_robs_nobody() -> None:
    """By the promises of now, and not by those to itself."""
    mine = part("a", 0, 2)
    assert SHARED.robbed(mine, [holding("p", mine)], ("ml", "p"), {}) is None
    late = by_key(shares("late", main=("a", 3)))
    reason = SHARED.robbed(mine, [holding("p", mine)], ("ml", "p"), late)
    assert reason == "its share of a GPU cannot stay: it is promised to other pods"
    assert SHARED.robbed(mine, [holding("p", mine)], ("ml", "late"), late) is None


def test_a_share_is_chosen_and_judged_by_what_may_be_shared() -> None:
    """Neither more of a GPU, nor more GPUs."""
    ask = Ask(part("a", 0, 4) | part("b", 0, 4), frozenset(), 3)
    plans = by_key(shares("late", main=("a", 2)))
    assert SHARED.choose(ask, [], Unplanned(), plans) == Grant(share_devices("b", 3), Basis.UNPLANNED)
    assert isinstance(SHARED.accept(part("a", 0, 3), [], Unplanned(), plans), AllocationRefusal)
    none = Shared(FirstCome, lambda: Shareable({"a": 4, "b": 4}, 0))
    assert isinstance(none.choose(ask, [], Unplanned(), {}), AllocationRefusal)


def test_only_the_first_part_of_a_gpu_waits_until_nobody_computes_there() -> None:
    """Where the kubelet does not say who holds what, nobody waits."""
    mine = part("a", 0, 2)
    assert SHARED.to_be_vacant(mine, mine | part("b", 0, 1)) == {"a"}
    assert SHARED.to_be_vacant(mine, mine | part("a", 3, 1) | part("b", 0, 1)) == frozenset()
    assert SHARED.to_be_vacant(mine, None) == frozenset()
    assert WHOLE.to_be_vacant(frozenset("ab"), None) == {"a", "b"}
