"""What the kubelet took is judged, whatever it was told to take: another pod's promise is nobody else's."""

from __future__ import annotations

import pytest

from agent.plugin.choice.choose import AllocationRefusal, Basis, Grant, accept
from agent.plugin.pods.identify import Identity, Planned, Unknown, Unplanned
from tests.agent.plans import FirstCome, by_key, planned

ANY = FirstCome()
NONE = frozenset[str]()
ME, OTHER = planned("me", main="ab"), planned("other", main="cd")
EXACT = planned("me", exact=True, main="ab")
PLANS = by_key(ME, OTHER)


@pytest.mark.parametrize(
    "who", [Planned(ME, "main"), Unplanned(), Unknown("nobody knows", (ME,))], ids=["planned", "stray", "unknown"]
)
@pytest.mark.parametrize("taken", ["c", "de", "cd"])
def test_a_gpu_that_is_promised_to_another_pod_is_not_accepted(who: Identity, taken: str) -> None:
    """The kubelet need not take what it was told; half a promise is one, too."""
    theirs = ", ".join(sorted(OTHER.gpus.intersection(taken)))
    answer = accept(frozenset(taken), NONE, who, PLANS, ANY)
    assert answer == AllocationRefusal(f"the kubelet took {theirs}, promised to another pod")


@pytest.mark.parametrize(
    ("who", "taken", "basis"),
    [
        (Planned(ME, "main"), "ab", Basis.PLANNED),
        (Planned(ME, "main"), "b", Basis.PLANNED),
        (Planned(ME, "main"), "be", Basis.ADOPTED),
        (Unplanned(), "ef", Basis.UNPLANNED),
        (Unknown("nobody knows", (OTHER,)), "ef", Basis.UNPLANNED),
    ],
)
def test_what_nobody_else_was_promised_is_accepted(who: Identity, taken: str, basis: Basis) -> None:
    """With the words for what the answer rests on; a pod's own promise does not stand against it."""
    assert accept(frozenset(taken), NONE, who, PLANS, ANY) == Grant(tuple(sorted(taken)), basis)


def test_a_pod_that_takes_no_others_is_refused_what_is_free() -> None:
    """One GPU of its own does not make up for one that is not."""
    answer = accept(frozenset("bf"), NONE, Planned(EXACT, "main"), by_key(EXACT), ANY)
    assert answer == AllocationRefusal("the kubelet took b, f, promised are a, b")


def test_who_may_be_a_pod_that_takes_no_others_is_refused_what_is_free() -> None:
    """Nobody can say whether these are its own."""
    answer = accept(frozenset("ef"), NONE, Unknown("nobody knows", (OTHER, EXACT)), by_key(OTHER, EXACT), ANY)
    assert answer == AllocationRefusal("nobody knows, and one of them takes its own GPUs only")


def test_a_gpu_that_another_container_holds_is_not_accepted() -> None:
    """The kubelet's own list is against it, though it is the pod's own."""
    answer = accept(frozenset("ab"), frozenset("bx"), Planned(ME, "main"), PLANS, ANY)
    assert answer == AllocationRefusal("the kubelet took b, which it lists with another container")
