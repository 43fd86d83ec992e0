"""All pods that may have a Binding under way are fenced, or nobody says so; and no bound pod is unheard of."""

from __future__ import annotations

import msgspec
import pytest

from extender.binding.intents import (
    Conflict,
    Done,
    FencePod,
    GetPodVersion,
    Gone,
    Intent,
    ListPods,
    NoAnswer,
    Refused,
    Reply,
    in_words,
)
from extender.binding.unbound_pods import fence_all_unbound, hear_of_bound
from extender.cluster.objects.kinds import Pod, PodClaim
from extender.cluster.state import ClusterState
from tests.extender.builders import cluster, node, pod, running
from tests.extender.world import drive


class Answers:
    """An API server with these pods."""

    def __init__(self, *listed: Pod, fence: Reply | None = None, get: Reply | None = None) -> None:
        self.asked: list[Intent] = []
        self._listed, self._fence, self._get = listed, fence, get

    def __call__(self, intent: Intent) -> Reply:
        self.asked.append(intent)
        match intent:
            case ListPods(name):
                return Done(tuple(each for each in self._listed if (each.spec.node_name or "") == name))
            case FencePod(_, name):
                return self._fence or Done(pod(name, version=9))
            case GetPodVersion(_, name):
                return self._get or Gone()
        raise AssertionError(intent)

    @property
    def fenced(self) -> list[str]:
        return [intent.name for intent in self.asked if isinstance(intent, FencePod)]


def lost(*pods: Pod) -> ClusterState:
    """Return a state with a node that has no ledger."""
    state = cluster(node(claims=None), *pods)
    assert state.views["n1"].is_broken
    return state


def lost_with_claims() -> ClusterState:
    """Return the same where a feature allocates ResourceClaims; it has heard of none."""
    state = lost()
    state.claimed.reader = lambda pod: None
    return state


def claiming(name: str, *, on: str | None = None, gated: bool = False) -> Pod:
    """Return a pod whose GPUs, if it has any, are those of a ResourceClaim."""
    plain = pod(name, 0, on=on)
    gates = [{"name": "gputopo.dev/plan"}] if gated else None
    claims = [PodClaim("gpus", resource_claim_template_name="gpus-4")]
    spec = msgspec.structs.replace(plain.spec, resource_claims=claims, scheduling_gates=gates)
    return msgspec.structs.replace(plain, spec=spec)


def test_every_pod_that_may_be_bound_is_fenced() -> None:
    """Not those that have ended, are gated, ask for no GPU, or have no place for what we write."""
    full, gated = pod("full", wants={"x": "y" * (256 * 1024 - 2_000)}), pod("gated")
    gated = msgspec.structs.replace(
        gated, spec=msgspec.structs.replace(gated.spec, scheduling_gates=[{"name": "quota"}])
    )
    others = [pod("ended", phase="Failed"), pod("none", 0), full, gated, running("bound", "n1", "GPU-0")]
    state, answers = lost(), Answers(pod("p"), *others, pod("q"))
    assert drive(fence_all_unbound(state, "n1"), answers) is True
    assert answers.fenced == ["p", "q"]
    assert not state.fences.is_needed("n1")


def test_a_list_that_has_no_answer_fences_nobody() -> None:
    """And the bound pods are not known either."""
    state = lost()
    assert drive(fence_all_unbound(state, "n1"), lambda _: NoAnswer("down")) is False
    assert drive(hear_of_bound(state, "n1"), lambda _: NoAnswer("down")) is False
    assert state.fences.is_needed("n1")


@pytest.mark.parametrize(
    ("seen", "is_fenced"),
    [
        (Gone(), True),
        (Done(pod("p", version=2)), True),
        (Done(pod("p", uid="another")), True),
        (Done(pod("p")), False),
        (NoAnswer("down"), False),
        (Done(None), False),
    ],
)
@pytest.mark.parametrize("reply", [Refused(403, "no"), NoAnswer("lost"), Gone()])
def test_a_fence_that_fails_is_as_good_as_one_if_the_pod_has_left_its_version(
    reply: Reply, seen: Reply, *, is_fenced: bool
) -> None:
    """Only a live read shows that; who refuses is remembered until then."""
    state = lost()
    answers = Answers(pod("p"), fence=reply, get=seen)
    assert drive(fence_all_unbound(state, "n1"), answers) is is_fenced
    assert state.fences.is_needed("n1") is not is_fenced
    told = [(obstacle.name, obstacle.reason) for obstacle in state.fences.take_obstacles()]
    assert told == ([] if is_fenced else [("ml/p", in_words(reply))])


def test_pods_with_claims_are_fenced_though_the_watch_has_shown_neither_them_nor_their_claims() -> None:
    """Another planner may be about to allocate, also for a pod behind a gate. Without such a feature they are no concern."""
    pods = claiming("open"), claiming("gated", gated=True)
    answers = Answers(*pods)
    assert drive(fence_all_unbound(lost_with_claims(), "n1"), answers) is True
    assert answers.fenced == ["open", "gated"]
    answers = Answers(*pods)
    assert drive(fence_all_unbound(lost(), "n1"), answers) is True
    assert answers.fenced == []


@pytest.mark.parametrize(
    ("reply", "is_fenced"),
    [
        (Conflict("changed"), True),
        (Gone(), True),
        (NoAnswer("its claims hold devices"), False),
        (Refused(403, "no"), False),
    ],
)
def test_a_pod_with_claims_is_fenced_only_by_a_reply_after_which_these_are_taken_back(
    reply: Reply, *, is_fenced: bool
) -> None:
    """That it has left its version says nothing of an allocation that is under way."""
    state = lost_with_claims()
    assert drive(fence_all_unbound(state, "n1"), Answers(claiming("p"), fence=reply, get=Gone())) is is_fenced
    assert state.fences.is_needed("n1") is not is_fenced


def test_a_list_that_was_asked_for_before_is_fenced_to_its_end() -> None:
    """No second list is asked for."""
    state = lost()
    first = Answers(pod("p"), pod("q"), fence=NoAnswer("lost"), get=NoAnswer("lost"))
    assert drive(fence_all_unbound(state, "n1"), first) is False
    second = Answers()
    assert drive(fence_all_unbound(state, "n1"), second) is True
    assert [type(intent) for intent in second.asked][:2] == [FencePod, FencePod]


@pytest.mark.parametrize(
    ("known", "listed", "is_heard"),
    [
        ([], [], True),
        ([running("p", "n1", "GPU-0")], [running("p", "n1", "GPU-0")], True),
        ([], [running("p", "n1", "GPU-0")], False),
        ([running("p", "n1", "GPU-0")], [], False),
        ([], [pod("none", 0, on="n1")], True),
        ([pod("p", version=1)], [running("p", "n1", "GPU-0", version=2)], True),
    ],
    ids=["nobody", "the same", "not heard of yet", "not there any more", "without GPUs", "heard of unbound"],
)
def test_the_bound_pods_have_to_be_those_that_are_known(known: list[Pod], listed: list[Pod], *, is_heard: bool) -> None:
    """What a list shows of a known pod is known from then on; an unknown one is the watch's to tell."""
    state = lost(*known)
    assert drive(hear_of_bound(state, "n1"), Answers(*listed)) is is_heard


def test_a_bound_pod_with_claims_has_to_be_heard_of_whatever_these_are_for() -> None:
    """Its GPUs are not known before. Of most such pods the claims are for other devices."""
    state, bound = lost_with_claims(), claiming("p", on="n1")
    assert drive(hear_of_bound(state, "n1"), Answers(bound)) is False
    state.pods.changed(claiming("p"))
    assert drive(hear_of_bound(state, "n1"), Answers(bound)) is False
    state.pods.changed(bound)
    assert drive(hear_of_bound(state, "n1"), Answers(bound)) is True


def test_a_pod_that_was_deleted_since_it_was_listed_is_heard_of() -> None:
    """The watch has told its end before we were told that it is there."""
    state = lost()
    gone = running("p", "n1", "GPU-0")
    state.pods.changed(gone)
    state.pods.deleted(gone)
    assert drive(hear_of_bound(state, "n1"), Answers(gone)) is True
    state.pods.changed(running("q", "n1", "GPU-1"))
    state.pods.replaced([])
    assert drive(hear_of_bound(state, "n1"), Answers(running("q", "n1", "GPU-1"))) is False


def test_a_ledger_that_is_lost_after_a_roll_needs_another_one() -> None:
    """A pod may have been created, and claimed for, since the roll was called; a node that never had one needs none."""
    state = cluster(node(claims=None), node("n2"))
    assert state.views and state.fences.is_needed("n1")
    assert drive(fence_all_unbound(state, "n1"), Answers(pod("p"))) is True
    state.nodes.changed(node("n2", claims=None, version=2))
    state.nodes.changed(node("n3", claims=None))
    assert state.views["n2"].is_broken and state.views["n3"].is_broken
    assert [state.fences.is_needed(name) for name in ("n1", "n2", "n3")] == [False, True, False]
