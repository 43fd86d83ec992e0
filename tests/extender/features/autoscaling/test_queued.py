"""Placeholders for pods in the queue: who gets one and in which turn, also where another replica plans for a while."""

from __future__ import annotations

import asyncio

from extender.features.autoscaling.feature import LOOK_SECONDS, QUEUED
from tests.extender.builders import PAIRS, gpus, node, running
from tests.extender.features.autoscaling.life import AFTER, Life, bound_to, full_with
from tests.extender.features.queue.queued import OTHER_GATE, queued
from tests.extender.scattered import counted
from tests.extender.virtual_time import in_virtual_time
from topology.annotations import keys


@in_virtual_time
async def test_a_pod_without_room_in_the_queue_gets_one_placeholder() -> None:
    """After the same time as a pod that filter refuses; kube-scheduler has said nothing of it but that it has a gate."""
    life = Life(full_with(queued("q", 4)))
    life.api.reason = "SchedulingGated"
    life.plan("q")
    await life.rounds(AFTER - 2 * LOOK_SECONDS)
    assert life.api.created == []
    await life.rounds(AFTER)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_a_pod_behind_another_gate_too_gets_none() -> None:
    """It could not run on the new node, which would go again."""
    life = Life(full_with(queued("q", 4, gates=(keys.PLAN_GATE, OTHER_GATE))), after="1s")
    life.plan("q")
    await life.rounds(30)
    assert life.api.created == []


@in_virtual_time
async def test_pods_that_no_node_helps_do_not_stop_those_behind_them() -> None:
    """They are looked at again after the others."""
    hopeless = [f"h{number}" for number in range(2 * QUEUED)]
    pods = (queued(name, 4, wants={keys.GPU_MODEL: "*B300*"}) for name in hopeless)
    life = Life(full_with(*pods, queued("q", 4)), after="1s")
    life.plan(*hopeless, "q")
    await life.rounds(4 * LOOK_SECONDS)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_a_pod_with_a_placeholder_keeps_its_turn() -> None:
    """No node helps it while another is empty; should that change, a pod like it asks for none: it sees that one is asked for."""
    hopeless = [f"h{number}" for number in range(2 * QUEUED - 3)]
    pods = (queued(name, 4, wants={keys.GPU_MODEL: "*B300*"}) for name in hopeless)
    life = Life(full_with(queued("q", 4), queued("r", 4), *pods), after="1s")
    life.plan("q", "r", *hopeless)
    await life.rounds(LOOK_SECONDS + 1)
    life.state.nodes.changed(counted(node("b", PAIRS)))
    await life.rounds(2 * LOOK_SECONDS)
    life.state.pods.changed(running("one-more", "b", *gpus("b", *range(8), machine_name=PAIRS)))
    await life.rounds(4 * LOOK_SECONDS)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_a_pause_lasts_while_the_pod_is_in_the_queue() -> None:
    """Also where another replica plans for a moment."""
    life = Life(full_with(queued("q", 4)), after="1s", pause="100s")
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    life.api.end("q")
    await life.rounds(LOOK_SECONDS)
    assert len(life.api.told("GPUNodeDidNotCome")) == 1
    life.autoscaling.queue.is_here = lambda: False
    await life.rounds(LOOK_SECONDS + 1)
    life.plan("q")
    await life.rounds(60)
    assert life.api.created == ["q"]
    await life.rounds(60)
    assert life.api.created == ["q", "q"]


@in_virtual_time
async def test_a_pause_lasts_though_many_other_pods_are_looked_at() -> None:
    """Its pod has come to the back of the line meanwhile."""
    hopeless = [f"h{number}" for number in range(QUEUED)]
    pods = (queued(name, 4, wants={keys.GPU_MODEL: "*B300*"}) for name in hopeless)
    life = Life(full_with(queued("q", 4), *pods), after="1s", pause="100s")
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    life.api.end("q")
    life.plan(*hopeless)
    await life.rounds(2 * LOOK_SECONDS)
    life.plan(*hopeless, "q")
    await life.rounds(60)
    assert life.api.created == ["q"]
    await life.rounds(60)
    assert life.api.created == ["q", "q"]


@in_virtual_time
async def test_a_lapse_of_the_lease_begins_no_wait_again() -> None:
    """The pod has been without room all the time."""
    life = Life(full_with(queued("q", 4)), after="30s")
    life.plan("q")
    await life.rounds(20)
    life.autoscaling.queue.is_here = lambda: False
    await life.rounds(LOOK_SECONDS + 1)
    assert life.api.created == []
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_only_the_replica_that_plans_asks_for_pods_in_the_queue() -> None:
    """Another one may have planned them before, and does not know what has become of them."""
    life = Life(full_with(queued("q", 4)), after="1s")
    life.plan("q")
    life.autoscaling.queue.is_here = lambda: False
    await life.rounds(30)
    assert life.api.created == []


@in_virtual_time
async def test_only_the_replica_that_plans_tells_that_no_node_came() -> None:
    """The one before it knows the pod, too, but not what has become of it."""
    state = full_with(queued("q", 4))
    before = Life(state, after="1s")
    before.plan("q")
    await before.rounds(2 * LOOK_SECONDS)
    before.autoscaling.queue.is_here = lambda: False
    now = Life(state, before.api, after="1s")
    now.plan("q")
    rounds = asyncio.gather(before.rounds(20), now.rounds(20))
    await asyncio.sleep(10)
    before.api.end("q")
    await rounds
    assert len(before.api.told("GPUNodeDidNotCome")) == 1


@in_virtual_time
async def test_a_placeholder_that_kube_scheduler_has_bound_is_deleted_and_pauses() -> None:
    """Where no extender is asked it does so as soon as the new node is there, whose GPUs are the pod's."""
    life = Life(full_with(queued("q", 4)), after="1s")
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    life.state.pods.changed(bound_to("a", life.api.jobs["q"]))
    await life.rounds(2 * LOOK_SECONDS)
    assert life.api.deleted == ["gputopo-q"]
    await life.rounds(10 * LOOK_SECONDS)
    assert life.api.created == ["q"], "the next one comes after a pause"
    assert life.api.told("GPUNodeDidNotCome") == []
