"""Before each start of a container: the GPUs are those that its pod was given, or it waits."""

from __future__ import annotations

import pytest

from agent.plugin.hold_back import Served, may_start
from agent.plugin.journal import MAX_ENTRIES, decode, encode
from agent.plugin.pods.listed_pods import Key, PodPlan
from tests.agent.plans import WHOLE, by_key, listed, planned

GIVEN = Served("ml", "a", "uid-a", frozenset("ab"))
NOBODY = Served("", "", "", frozenset("ab"))


def test_container_starts_with_what_its_pod_was_given() -> None:
    """Also after a restart, and for one container's part of it."""
    assert may_start(frozenset("ab"), [listed("a", main="ab")], [GIVEN], {}, WHOLE) is None
    assert may_start(frozenset("b"), [listed("a", one="a", two="b")], [GIVEN], {}, WHOLE) is None


def test_container_of_another_pod_waits() -> None:
    """We took it for the one that is promised these GPUs, and the kubelet says that it is not."""
    reason = may_start(frozenset("ab"), [listed("x", main="ab")], [GIVEN], by_key(planned("a", main="ab")), WHOLE)
    assert reason == "its GPUs are promised to another pod"


def test_wait_ends_when_the_promise_does() -> None:
    """The claims of the other pod were released."""
    assert may_start(frozenset("ab"), [listed("x", main="ab")], [GIVEN], {}, WHOLE) is None


def test_pod_that_could_not_be_told_starts_with_what_is_its_own() -> None:
    """The kubelet's list tells now what could not be told before."""
    plans = by_key(planned("a", exact=True, main="ab"))
    assert may_start(frozenset("ab"), [listed("a", main="ab")], [NOBODY], plans, WHOLE) is None


def test_exact_pod_waits_with_foreign_gpus() -> None:
    """Even if they are nobody's."""
    plans = by_key(planned("a", exact=True, main="cd"))
    reason = may_start(frozenset("ab"), [listed("a", main="ab")], [NOBODY], plans, WHOLE)
    assert reason == "its GPUs are not those promised to the pod"


def test_no_container_of_an_exact_pod_starts_beside_one_with_foreign_gpus() -> None:
    """Its own are as planned; but once it ran, the ledger would follow the pod, and the other one could start."""
    plans = by_key(planned("a", exact=True, one="a", two="b"))
    pods, served = [listed("a", one="a", two="c")], [Served("ml", "a", "uid-a", frozenset("a")), NOBODY]
    assert may_start(frozenset("a"), pods, served, plans, WHOLE) == "its GPUs are not those promised to the pod"


NOT_GIVEN = "no pod that the kubelet lists was given these GPUs"


@pytest.mark.parametrize(("served", "reason"), [([GIVEN], None), ([NOBODY], None), ([], NOT_GIVEN)])
def test_init_container_starts_with_what_was_given(served: list[Served], reason: str | None) -> None:
    """The kubelet lists its pod and not the container, so our own memory has to do."""
    assert may_start(frozenset("a"), [listed("a", main="")], served, {}, WHOLE) == reason


@pytest.mark.parametrize(("served", "plans"), [([GIVEN], {}), ([], by_key(planned("a", main="ab")))])
def test_container_of_a_pod_that_is_gone_waits(served: list[Served], plans: dict[Key, PodPlan]) -> None:
    """With its pod the kubelet has forgotten its GPUs, and would start it without any: with all, if its image says so."""
    assert may_start(frozenset("ab"), [listed("other", main="")], served, plans, WHOLE) == NOT_GIVEN


def test_gpus_of_two_pods_start_nobody() -> None:
    """Whatever went wrong."""
    pods = [listed("a", main="a"), listed("b", main="b")]
    assert may_start(frozenset("ab"), pods, [GIVEN], {}, WHOLE) == "the kubelet lists its GPUs with several pods"


def test_journal_survives_and_stays_small() -> None:
    """The newest entries are kept."""
    many = tuple(Served("ml", f"pod-{number}", "uid", frozenset(["GPU-1"])) for number in range(300))
    assert decode(encode(many)) == many[-MAX_ENTRIES:]
    assert len(encode(many)) < 32 * 1024


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v":2,"served":[]}', '{"v":1}', '{"v":1,"served":[{"name":"a"}]}'])
def test_broken_journal_says_so(text: str) -> None:
    """A disk that was full, another version, somebody's editor."""
    with pytest.raises(ValueError, match=r".+"):
        decode(text)
