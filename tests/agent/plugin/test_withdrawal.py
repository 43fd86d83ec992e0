"""A GPU is whole or shared: the other form is withdrawn while it is held, and never from under a pod that was sent for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.listed_pods import ListedPod, PodPlan
from agent.plugin.withdrawal import PublishedDevices, withdrawn
from tests.agent.plans import planned
from tests.agent.plugin.choice.test_shares import holding, part, shares

GIB = {"a": 4, "b": 4}
NOTHING = PublishedDevices()
SHARED, WHOLE = holding("s", part("a", 0, 2)), holding("w", {"a"})
SHARES_OF_A, SHARES_OF_B = (frozenset(share_devices(gpu, 4)) for gpu in "ab")


def gone(*pods: ListedPod, told: PublishedDevices = NOTHING, plans: Sequence[PodPlan] = ()) -> frozenset[str]:
    """Return what is withdrawn beside these pods."""
    return withdrawn(GIB, pods, plans, told)


def test_free_gpu_is_offered_in_both_forms_whatever_is_claimed() -> None:
    """Either claim can be admitted at once."""
    assert gone() == frozenset()
    assert gone(plans=[shares("p", main=("a", 2))]) == frozenset()
    assert gone(told=PublishedDevices(frozenset("a"), frozenset("b"), 2)) == frozenset()


@pytest.mark.parametrize(
    ("pod", "said", "withdrawn"),
    [
        (SHARED, PublishedDevices(shared=frozenset("a")), frozenset("a")),
        (WHOLE, PublishedDevices(whole=frozenset("a")), SHARES_OF_A),
        (SHARED, PublishedDevices(), frozenset()),
        (WHOLE, PublishedDevices(), frozenset()),
        (SHARED, PublishedDevices(whole=frozenset("a")), frozenset()),
        (WHOLE, PublishedDevices(shared=frozenset("a")), frozenset()),
    ],
)
def test_what_is_held_in_one_form_is_not_offered_in_the_other_once_the_node_says_so(
    pod: ListedPod, said: PublishedDevices, withdrawn: frozenset[str]
) -> None:
    """Before, whoever places pods may still send one for it."""
    assert gone(pod, told=said) == withdrawn


def test_nothing_that_is_held_is_ever_withdrawn() -> None:
    """Where a GPU was given out in both forms, nobody who runs is disturbed."""
    both = PublishedDevices(frozenset("a"), frozenset("a"), 2)
    assert gone(SHARED, WHOLE, told=both) == SHARES_OF_A - SHARED.gpus


def test_with_as_many_shared_as_may_be_the_others_are_offered_whole_only() -> None:
    """But for one that is promised as a share already."""
    full = PublishedDevices(shared=frozenset("a"), max_gpus=1)
    assert gone(SHARED, told=full) == {"a"} | SHARES_OF_B
    assert gone(SHARED, told=full, plans=[shares("p", main=("b", 2))]) == {"a"}
    assert gone(SHARED, told=PublishedDevices(frozenset(), frozenset(), 1)) == frozenset()


def test_a_whole_gpu_is_none_of_those_that_are_shared() -> None:
    """Be it held or promised, with as many shared as may be its shares are not offered."""
    full = PublishedDevices(shared=frozenset("a"), max_gpus=1)
    assert gone(SHARED, told=full, plans=[planned("w", main="b")]) == {"a"} | SHARES_OF_B
    held = holding("w", {"b"})
    assert gone(SHARED, held, told=full) == {"a"} | SHARES_OF_B
    assert gone(SHARED, held, told=full, plans=[shares("p", main=("b", 2))]) == {"a"} | SHARES_OF_B


@pytest.mark.parametrize(("before", "after", "most"), [(1, 2, 2), (2, 1, 2), (None, 1, None), (1, None, None)])
def test_more_gpus_may_be_shared_as_long_as_one_of_two_writes_says_so(
    before: int | None, after: int | None, most: int | None
) -> None:
    """Either may stand by now; while nothing is said, nothing is withdrawn."""
    assert PublishedDevices(max_gpus=before).both(PublishedDevices(max_gpus=after)).max_gpus == most


def test_where_no_gpu_may_be_shared_just_now_no_share_is_offered() -> None:
    """Once the node says so."""
    assert gone(told=PublishedDevices(max_gpus=0)) == SHARES_OF_A | SHARES_OF_B
    assert gone(told=PublishedDevices(max_gpus=None)) == frozenset()


GPUS = st.frozensets(st.sampled_from("ab"))
TOLD = st.builds(PublishedDevices, GPUS, GPUS, st.one_of(st.none(), st.integers(0, 3)))


@pytest.mark.slow
@given(before=TOLD, after=TOLD, shared=st.booleans(), whole=st.booleans())
def test_while_a_write_is_under_way_no_more_is_withdrawn_than_under_either_of_what_may_stand(
    before: PublishedDevices, after: PublishedDevices, *, shared: bool, whole: bool
) -> None:
    """A write whose answer is not here yet may have been made or not."""
    pods = [SHARED] * shared + [holding("w", {"b"})] * whole
    both = gone(*pods, told=before.both(after))
    assert both <= gone(*pods, told=before)
    assert both <= gone(*pods, told=after)
