"""A pod that was refused and fits now is not left to kube-scheduler's five minutes; nobody is woken for long in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest
from msgspec.structs import replace

from extender.binding.driver import Driver
from extender.binding.intents import AskForLook, Conflict, Done, Intent, Reply
from extender.cluster.objects.kinds import Node, OwnerReference, Pod
from extender.cluster.state import ClusterState
from extender.features.waking.feature import (
    AT_ONCE,
    FORGOTTEN_SECONDS,
    LONGEST_PAUSE_SECONDS,
    QUIET_SECONDS,
    WAITING,
    Waking,
)
from extender.kit.clock import Instant
from extender.verbs.filter_prioritize import filter_nodes
from extender.verbs.wire import ExtenderFilterResult
from tests.dra import allocated, gpu, read_claim, read_slice, resource_slice
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod, running
from tests.extender.rounds import at_work
from tests.extender.virtual_time import in_virtual_time
from topology.annotations import keys

NVLINK: Final = {keys.REQUIRED_AFFINITY: "nvlink"}
EVEN: Final = gpus("n1", 0, 2, 4, 6, machine_name=PAIRS)
MINUTES: Final = 60.0
ROUND: Final = 1.0


def half_used(version: int = 1) -> Node:
    """Build a node of NVLink pairs, of each of which one GPU is used."""
    return node("n1", PAIRS, claims=tuple(claim(uuid, "u") for uuid in EVEN), version=version)


class Life:
    """One extender that wakes, on the loop's own clock, which begins when the pods are created."""

    def __init__(self, *things: Node | Pod) -> None:
        self.state: ClusterState = cluster(*things, running("u", "n1", *EVEN))
        self.written: list[tuple[float, str]] = []
        """When which node was written to."""
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.reply: Reply | None = None
        self.closed: str | None = None
        driver = Driver(self._execute, self._clock, 5.0)
        self.waking = Waking(self.state, driver, self._clock, lambda: self.closed, ROUND)

    async def _execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, AskForLook)
        self.written.append((self.now(), intent.node))
        return self.reply or Done(half_used(version=int(intent.node_version) + 1))

    def _clock(self) -> Instant:
        return at(self.now())

    def ask(self, asked: Pod) -> Sequence[str]:
        """Ask as kube-scheduler does, about the node with pairs."""
        call = args(asked, "n1")
        answer = filter_nodes(self.state, call, self._clock())
        self.waking.after_filter(call, answer)
        return answer.node_names or []

    async def for_seconds(self, seconds: float) -> list[tuple[float, str]]:
        """Let time pass; returns what was written meanwhile."""
        self.written.clear()
        async with at_work(self.waking):
            await asyncio.sleep(seconds)
        return [*self.written]


def patient(name: str = "p", relax_after: str = "5s") -> Pod:
    """Build a pod that wants NVLink, and after a while takes what it gets."""
    return pod(name, 2, wants={**NVLINK, keys.RELAX_AFTER: relax_after})


def owned(owner: str, name: str) -> Pod:
    """Build a pod that is never content, of such an owner."""
    built = pod(name, 8, wants=NVLINK)
    metadata = replace(built.metadata, owner_references=[OwnerReference(uid=owner, controller=True)])
    return replace(built, metadata=metadata)


@in_virtual_time
async def test_the_time_after_which_less_will_do_wakes_for_its_pod() -> None:
    """No object changes when it is over."""
    asked = patient(relax_after="30s")
    life = Life(half_used(), asked)
    assert life.ask(asked) == []
    assert await life.for_seconds(29.0) == []
    ((when, where),) = await life.for_seconds(10.0)
    assert (where, 30.0 <= when <= 30.0 + ROUND) == ("n1", True)
    assert life.ask(asked) == ["n1"]


@in_virtual_time
async def test_a_device_that_a_slice_names_wakes() -> None:
    """kube-scheduler does not look at ResourceSlices for a pod that we have refused."""
    asked = pod("p")
    devices = [gpu(minor, uuid) for minor, uuid in enumerate(gpus("n1", *range(8), machine_name=PAIRS))]
    life = Life(half_used(), asked)
    life.state.claims.changed(read_claim(allocated("job", "n1", "gpu-1")))
    life.state.claims.hear(True)
    assert life.ask(asked) == []
    assert await life.for_seconds(60.0) == []
    life.state.claims.slices.changed(read_slice(resource_slice("n1", devices)))
    assert await life.for_seconds(2 * ROUND) == [(60.0, "n1")]


@in_virtual_time
async def test_who_was_asked_about_just_now_is_left_to_kube_scheduler() -> None:
    """It is about to try the pod again by itself, or has a reason not to."""
    asked = patient()
    life = Life(half_used(), asked)
    life.ask(asked)
    assert await life.for_seconds(QUIET_SECONDS) == []
    assert len(await life.for_seconds(2 * ROUND)) == 1


@in_virtual_time
async def test_who_is_asked_about_meanwhile_is_left_alone_again() -> None:
    """The line of those to look at may be long."""
    queue = [*(pod(f"huge{number}", 8, wants=NVLINK) for number in range(WAITING - 1)), patient(relax_after="30s")]
    life = Life(half_used(), *queue)
    for asked in queue:
        life.ask(asked)
    assert await life.for_seconds(29.5) == []
    life.ask(queue[-1])
    assert await life.for_seconds(QUIET_SECONDS) == []
    assert len(await life.for_seconds(5 * ROUND)) == 1


@in_virtual_time
async def test_one_tenant_with_many_owners_is_not_woken_for_before_all_others() -> None:
    """Namespaces have their turns, also where one of them always has somebody new to wake for."""
    theirs = [in_namespace("evil", patient(f"evil{number}")) for number in range(2 * WAITING)]
    others = [in_namespace(f"good{number}", patient(f"good{number}")) for number in range(AT_ONCE - 1)]
    life = Life(half_used(), *theirs, *others)
    for asked in (*others, *theirs):
        life.ask(asked)
    woken = list[str]()
    for _ in range(3 * AT_ONCE):
        if await life.for_seconds(QUIET_SECONDS + ROUND):
            attempts = life.waking._attempts
            woken += [key for key in life.waking._refused if attempts.failures(key) and key not in woken]
    assert {each.metadata.uid for each in others} <= {*woken[: 2 * AT_ONCE]}


def in_namespace(namespace: str, item: Pod) -> Pod:
    return replace(item, metadata=replace(item.metadata, namespace=namespace))


@in_virtual_time
async def test_who_has_been_offered_a_node_is_left_to_go_there() -> None:
    """What keeps it from being bound at once is no business of ours."""
    asked = patient()
    life = Life(half_used(), asked)
    life.ask(asked)
    assert await life.for_seconds(10.0) == []
    assert life.ask(asked) == ["n1"]
    assert await life.for_seconds(4.0) == []


@in_virtual_time
async def test_one_write_wakes_all() -> None:
    """Each pod of a queue would ask for its own."""
    queue = [patient(f"p{number}") for number in range(40)]
    life = Life(half_used(), *queue)
    for asked in queue:
        life.ask(asked)
    assert len(await life.for_seconds(2 * QUIET_SECONDS)) == 1


@in_virtual_time
async def test_whoever_cannot_be_helped_hides_nobody() -> None:
    """A round looks at a few, and the next round at others."""
    queue = [*(pod(f"huge{number}", 8, wants=NVLINK) for number in range(WAITING - 1)), patient()]
    life = Life(half_used(), *queue)
    for asked in queue:
        life.ask(asked)
    assert len(await life.for_seconds(2 * QUIET_SECONDS)) == 1


@in_virtual_time
async def test_a_namespace_with_many_refused_pods_does_not_make_those_of_others_forgotten() -> None:
    """However many owners it makes up."""
    theirs = pod("theirs", 2, wants={**NVLINK, keys.RELAX_AFTER: "5s"})
    theirs = replace(theirs, metadata=replace(theirs.metadata, namespace="other"))
    queue = [theirs, *(pod(f"huge{number}", 8, wants=NVLINK) for number in range(3 * WAITING))]
    life = Life(half_used(), *queue)
    for asked in queue:
        life.ask(asked)
    assert len(await life.for_seconds(2 * QUIET_SECONDS)) == 1


@in_virtual_time
async def test_who_is_woken_in_vain_is_left_alone_for_longer_each_time() -> None:
    """Rules that we do not read may keep the pod from the node; then kube-scheduler does not even ask us."""
    asked = patient()
    life = Life(half_used(), asked)
    life.ask(asked)
    times = [when for when, _ in await life.for_seconds(60 * MINUTES)]
    assert [after - before for before, after in pairwise(times)] == [20.0, 40.0, 80.0, 160.0]
    assert times[-1] < FORGOTTEN_SECONDS


@in_virtual_time
async def test_no_pause_is_longer_than_kube_schedulers_own() -> None:
    """Who fits, is woken and refused, again and again, loses nothing by us."""
    asked = patient()
    life = Life(half_used(), asked)
    life.ask(asked)
    for _ in range(12):
        life.waking.after_filter(args(asked, "n1"), ExtenderFilterResult([]))
        assert await life.for_seconds(QUIET_SECONDS + LONGEST_PAUSE_SECONDS + ROUND)


@in_virtual_time
async def test_only_the_nodes_that_refused_a_pod_are_looked_at() -> None:
    """kube-scheduler's own rules keep it from the others; when that changes, an object does."""
    asked = patient(relax_after="10m")
    life = Life(half_used(), node("n2"), asked)
    assert life.ask(asked) == []
    assert await life.for_seconds(5 * MINUTES) == []


@in_virtual_time
async def test_a_pod_that_nobody_asks_about_any_more_is_forgotten() -> None:
    """kube-scheduler tries each pod again by itself: if not here, then it asks another extender, which knows what it holds."""
    asked = patient(relax_after="15m")
    life = Life(half_used(), asked)
    life.ask(asked)
    assert await life.for_seconds(20 * MINUTES) == []


@in_virtual_time
async def test_nobody_is_woken_while_no_verb_is_answered() -> None:
    """Whoever comes would get an error."""
    asked = patient()
    life = Life(half_used(), asked)
    life.ask(asked)
    life.closed = "the cluster has not been listed yet"
    assert await life.for_seconds(5 * MINUTES) == []
    life.closed = None
    assert len(await life.for_seconds(2 * ROUND)) == 1


@in_virtual_time
async def test_one_pod_stands_for_all_of_its_owner() -> None:
    """Else those of one large Job would be all that is remembered."""
    job = [owned("job", f"p{number}") for number in range(2 * WAITING)]
    other = patient("other")
    life = Life(half_used(), *job, other)
    for asked in (other, *job):
        life.ask(asked)
    for asked in job:
        life.state.pods.deleted(asked)
    assert len(await life.for_seconds(2 * QUIET_SECONDS)) == 1


@in_virtual_time
async def test_nobody_is_woken_for_a_pod_that_is_bound_gone_or_unreadable() -> None:
    """They do not wait, or wait for something else."""
    bound, leaving, odd = patient("bound"), patient("leaving"), patient("odd")
    life = Life(half_used(), bound, leaving, odd)
    for asked in (bound, leaving, odd):
        life.ask(asked)
    life.state.pods.changed(pod("bound", 2, on="n1", version=2))
    life.state.pods.changed(pod("leaving", 2, deleting=True, version=2))
    life.state.pods.changed(pod("odd", 2, wants={keys.REQUIRED_AFFINITY: "nvlnk"}, version=2))
    assert await life.for_seconds(10 * MINUTES) == []


@pytest.mark.slow
@in_virtual_time
async def test_of_many_owners_the_last_ones_are_remembered() -> None:
    """Each takes the memory of a call's names."""
    queue = [patient(), *(pod(f"huge{number}", 8, wants=NVLINK) for number in range(WAITING))]
    life = Life(half_used(), *queue)
    for asked in queue:
        life.ask(asked)
    assert await life.for_seconds(5 * MINUTES) == []


@in_virtual_time
async def test_a_write_that_fails_is_tried_again() -> None:
    """After as long as after any other one; the pod has lost nothing."""
    asked = patient()
    life = Life(half_used(), asked)
    life.ask(asked)
    life.reply = Conflict("the node was made anew")
    assert len(await life.for_seconds(QUIET_SECONDS + 2 * ROUND)) == 1
    life.reply = None
    assert len(await life.for_seconds(2 * QUIET_SECONDS)) == 1
