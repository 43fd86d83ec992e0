"""What a container's start is judged by: what was handed out, what is promised now, and what the kubelet lists."""

from __future__ import annotations

import pytest

from agent.plugin.choice.forms import Shared
from agent.plugin.choice.shares import Shareable
from agent.plugin.hold_back import Served, is_as_served, is_by_plan, may_start
from tests.agent.plans import WHOLE, FirstCome, by_key, listed, planned
from tests.agent.plugin.choice.test_shares import holding, part, shares

GIVEN = Served("ml", "a", "uid-a", frozenset("ab"))
STRAY = Served("ml", "a", "", frozenset("ab"))
OTHERS = "its GPUs are promised to another pod"
NOT_ITS_OWN = "its GPUs are not those promised to the pod"
NOT_GIVEN = "no pod that the kubelet lists was given these GPUs"


@pytest.mark.parametrize(
    ("gpus", "pods", "is_as"),
    [
        ("ab", [listed("a", main="ab")], True),
        ("a", [listed("a", one="a", two="b")], True),
        ("ab", [listed("a", main="abc")], False),
        ("ab", [listed("x", main="ab")], False),
        ("ab", [listed("a", main="")], False),
        ("ab", [listed("a", main="a"), listed("x", main="b")], False),
        ("abc", [listed("a", main="ab")], False),
    ],
)
def test_a_pod_is_as_served_with_all_that_it_holds(gpus: str, pods: list[object], *, is_as: bool) -> None:
    """And alone with it."""
    assert is_as_served(frozenset(gpus), pods, [GIVEN]) is is_as  # type: ignore[arg-type]


def test_what_was_handed_out_in_parts_is_served_as_a_whole() -> None:
    """Each container has an Allocate of its own."""
    parts = [Served("ml", "a", "uid-a", frozenset(gpu)) for gpu in "ab"]
    assert is_as_served(frozenset("ab"), [listed("a", main="ab")], parts)
    assert not is_as_served(frozenset("ab"), [listed("a", main="ab")], parts[:1])
    assert is_as_served(frozenset("ab"), [listed("a", main="ab"), listed("x", main="c")], parts)


@pytest.mark.parametrize(
    ("gpus", "served", "plans", "is_by"),
    [
        ("a", [GIVEN], {}, True),
        ("ab", [GIVEN], {}, True),
        ("a", [STRAY], {}, False),
        ("a", [], by_key(planned("x", main="ab")), True),
        ("ac", [GIVEN], by_key(planned("x", main="cd")), False),
        ("a", [], {}, False),
    ],
)
def test_gpus_are_by_plan_if_some_plan_has_them_together(
    gpus: str, served: list[Served], plans: dict[tuple[str, str], object], *, is_by: bool
) -> None:
    """One of now, or of when they were handed out; what a stray was given is nobody's plan."""
    assert is_by_plan(frozenset(gpus), served, plans) is is_by  # type: ignore[arg-type]


def test_a_container_that_is_not_listed_starts_with_what_its_pod_is_promised() -> None:
    """An init container; the pod has to be there, and all of its GPUs have to be of one promise."""
    plans = by_key(planned("a", main="ab"), planned("x", main="cd"))
    there = [listed("a", main="")]
    assert may_start(frozenset("ab"), there, [], plans, WHOLE) is None
    assert may_start(frozenset("b"), there, [], plans, WHOLE) is None
    assert may_start(frozenset("cd"), there, [], plans, WHOLE) == NOT_GIVEN
    assert may_start(frozenset("bc"), [*there, listed("x", main="")], [], plans, WHOLE) == NOT_GIVEN


def test_a_container_that_is_not_listed_waits_for_what_a_pod_that_is_gone_was_given() -> None:
    """Only what was handed out to nobody who could be told counts whoever is listed."""
    assert may_start(frozenset("ab"), [listed("x", main="")], [GIVEN], {}, WHOLE) == NOT_GIVEN
    assert may_start(frozenset("ab"), [listed("x", main="")], [Served("", "", "", frozenset("ab"))], {}, WHOLE) is None


@pytest.mark.parametrize(
    ("own", "exact", "holds", "reason"),
    [
        ("ab", False, "ab", None),
        ("ab", True, "ab", None),
        ("ab", False, "ac", OTHERS),
        ("ab", False, "ae", None),
        ("ab", False, "abc", OTHERS),
        ("ab", True, "abe", NOT_ITS_OWN),
        ("ab", True, "ae", NOT_ITS_OWN),
        ("", False, "ef", None),
        ("", False, "ec", OTHERS),
    ],
)
def test_what_nobody_remembers_handing_out_is_judged_by_the_promises(
    own: str, exact: bool, holds: str, reason: str | None
) -> None:
    """After a restart without a journal: a pod may start with its own or with what nobody else was promised."""
    mine = [planned("a", exact=exact, main=own)] if own else []
    plans = by_key(*mine, planned("x", main="cd"))
    assert may_start(frozenset(holds), [listed("a", main=holds)], [], plans, WHOLE) == reason


def test_a_share_that_the_plan_has_starts_whatever_has_changed_since() -> None:
    """A stray, of whose class nobody knows, is on its GPU by now. With a plan for another GPU the pod would have to wait."""
    mine, form = part("a", 0, 2), Shared(FirstCome, lambda: Shareable({"a": 4, "b": 4}, 2))
    pods = [holding("p", mine), holding("stray", part("a", 2, 2))]
    here, elsewhere = (shares("p", main=(gpu, 2), sharing_class="prod") for gpu in "ab")
    assert may_start(mine, pods, [], by_key(here), form) is None
    reason = may_start(mine, pods, [], by_key(elsewhere), form)
    assert reason == "its share of a GPU cannot stay: it is shared by pods of another class"


def test_what_was_handed_out_to_a_pod_is_its_own_though_it_is_promised_to_another_now() -> None:
    """A container that starts again is not held for a promise that came later."""
    plans = by_key(planned("x", main="ab"))
    assert may_start(frozenset("ab"), [listed("a", main="ab")], [GIVEN], plans, WHOLE) is None
    assert may_start(frozenset("ab"), [listed("a", main="ab")], [], plans, WHOLE) == OTHERS
