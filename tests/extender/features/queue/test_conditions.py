"""A pod that waits has a condition that says why, written seldom; once it is bound the condition says so."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from extender.cluster.objects.kinds import Pod, PodCondition
from extender.cluster.state import ClusterState
from extender.features.queue.conditions import FIRST, QUIET_SECONDS, PlanCondition, PlanConditions, to_request
from extender.features.queue.listing import QueueStanding
from extender.features.queue.waiting import UNANNOUNCED_SECONDS, NotPlanned, WaitReason
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.builders import PAIRS, at, claim, cluster, gpus, node
from tests.extender.features.queue.queued import bound, queued
from topology.annotations import keys

NO_ROOM = NotPlanned(WaitReason.NO_ROOM, "there is no room for it now")
Waiting = list[tuple[QueueStanding, int | None]]


def waiting(state: ClusterState, reason: NotPlanned = NO_ROOM) -> Waiting:
    """Return all pods of the queue, each with its place."""
    pods = state.indexes.gates.queued.values()
    return [(QueueStanding.not_planned(pod, reason), place) for place, pod in enumerate(pods, 1)]


def saying(item: Pod, reason: str, status: str = "False") -> Pod:
    """Return the next version of a pod, with a condition."""
    condition = PodCondition(keys.PLANNED_CONDITION, status, reason)
    version = str(int(item.metadata.resource_version) + 1)
    metadata = replace(item.metadata, resource_version=version)
    return replace(item, metadata=metadata, status=replace(item.status, conditions=[condition]))


class Written:
    """Conditions of a queue, and what was sent."""

    def __init__(self, state: ClusterState, status: int | None = 200) -> None:
        self.sent = list[Request]()
        self.seconds = 0.0
        self.conditions = PlanConditions(state, self._send, lambda: at(UNANNOUNCED_SECONDS + self.seconds))
        self._status = status

    async def next(self, pods: Waiting, seconds: float = 0.0) -> str:
        """Write the next condition; returns whose, empty if there is none."""
        self.seconds, before = seconds, len(self.sent)
        await self.conditions.write_next(lambda: pods)
        return self.sent[-1].path.split("/")[6] if len(self.sent) > before else ""

    async def _send(self, request: Request) -> tuple[int, bytes]:
        self.sent.append(request)
        if self._status is None:
            raise Unavailable("busy")
        return self._status, b"{}"


def test_the_condition_names_reason_and_place() -> None:
    """For this version of the pod; other conditions stay, as they are merged by type."""
    state = cluster(node("n1", PAIRS), queued("p", version=7))
    ((standing, place),) = waiting(state)
    request = to_request(standing.pod, PlanCondition.of(standing, place), at(0.0))
    body = msgspec.json.decode(request.body or b"")
    assert body["metadata"] == {"uid": "p", "resourceVersion": "7"}
    (written,) = body["status"]["conditions"]
    assert (written["type"], written["status"], written["reason"]) == ("gputopo.dev/Planned", "False", "NoRoom")
    assert written["message"] == "place 1 in gputopo's queue: there is no room for it now"
    assert request.path.startswith("/api/v1/namespaces/ml/pods/p/status?")


async def test_it_is_written_again_when_the_reason_changes_and_not_too_soon() -> None:
    """A pod that says so already is left alone, also by the next planner."""
    state = cluster(node("n1", PAIRS), queued("p"))
    written = Written(state)
    assert await written.next(waiting(state)) == "p"
    state.pods.changed(saying(queued("p"), "NoRoom"))
    assert [await planner.next(waiting(state), 1.0) for planner in (written, Written(state))] == ["", ""]
    kept = NotPlanned(WaitReason.RESERVED, "kept")
    assert await written.next(waiting(state, kept), QUIET_SECONDS - 1) == ""
    assert await written.next(waiting(state, kept), QUIET_SECONDS) == "p"


async def test_a_pod_that_has_just_come_has_none() -> None:
    """It may be planned before anybody reads it, and each condition is a write."""
    state = cluster(node("n1", PAIRS), queued("p"))
    written = Written(state)
    assert [await written.next(waiting(state), seconds) for seconds in (-1.0, 0.0)] == ["", "p"]


async def test_only_the_first_pods_of_a_long_queue_have_it() -> None:
    """Whatever a tenant creates, the writes are few."""
    state = cluster(node("n1", PAIRS), *(queued(f"p{number}") for number in range(FIRST + 5)))
    written, pods = Written(state), waiting(state)
    while await written.next(pods):
        pass
    assert len(written.sent) == FIRST


async def test_a_pod_with_claims_is_left_alone() -> None:
    """Its gate is opened in the version that these name."""
    taken = claim(gpus("n1", 0)[0], "p")
    state = cluster(node("n1", PAIRS, claims=(taken,)), queued("p"))
    assert await Written(state).next(waiting(state)) == ""


async def test_a_bound_pod_says_so_if_it_has_waited() -> None:
    """One that has never had the condition does not get it."""
    state = cluster(node("n1", PAIRS), saying(bound(queued("p"), "n1"), "NoRoom"), bound(queued("q"), "n1"))
    written = Written(state)
    for uid in "pq":
        written.conditions.bound(uid, "n1")
    assert [await written.next([]), await written.next([])] == ["p", ""]
    (said,) = msgspec.json.decode(written.sent[0].body or b"")["status"]["conditions"]
    assert (said["status"], said["reason"], said["message"]) == ("True", "Planned", "bound to n1")


@pytest.mark.parametrize(("status", "is_tried_again"), [(409, True), (503, True), (None, True), (422, False)])
async def test_a_bound_pod_does_not_go_on_saying_that_it_waits(status: int | None, is_tried_again: bool) -> None:
    """The kubelet writes its status at the same time, so that our write often comes in vain."""
    item = node("n1", PAIRS, claims=(claim(gpus("n1", 0)[0], "p"),))
    state = cluster(item, saying(bound(queued("p"), "n1"), "NoRoom"))
    written = Written(state, status)
    written.conditions.bound("p", "n1")
    sent = [await written.next([], seconds) for seconds in (0.0, QUIET_SECONDS - 1, QUIET_SECONDS)]
    assert sent == ["p", "", "p" if is_tried_again else ""]


@pytest.mark.parametrize(("status", "may_write"), [(403, False), (409, True), (500, True), (None, True)])
async def test_without_the_right_nothing_more_is_written(status: int | None, may_write: bool) -> None:
    """All other failures concern one pod, or pass."""
    state = cluster(node("n1", PAIRS), queued("p"), queued("q"))
    written = Written(state, status)
    await written.next(waiting(state))
    await written.next(waiting(state))
    assert (written.conditions.may_write, len(written.sent)) == (may_write, 1 + may_write)
