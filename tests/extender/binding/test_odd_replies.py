"""No reply to any intent makes the protocol fall over, or give up the claim of a pod that may run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import (
    AskForLook,
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetNode,
    GetPod,
    GetPodVersion,
    Gone,
    Intent,
    ListPods,
    NoAnswer,
    Refused,
    Reply,
    SwapLedger,
    WritePlacement,
)
from extender.binding.outcome import NotBound
from extender.binding.release import release
from extender.binding.repair import repair
from tests.extender.binds import ready, uuid
from tests.extender.builders import PAIRS
from tests.extender.four_gpus import damage, observe, world_of
from tests.extender.releases import bound, due, orphaned
from tests.extender.world import Replica, World, answer_once, drive, lose_request
from topology.annotations import keys

REPLIES = [Done(None), Conflict("moved"), Gone(), Refused(403, "no"), NoAnswer("down")]
Steps = Generator[Intent, Reply, Any]


def rebinding() -> tuple[World, Steps]:
    """Bind anew where the GPUs of a first attempt have fallen sick: a look, a fence, a claim and a Binding."""
    world, replica = ready("p", machine_name=PAIRS)
    drive(replica.start_bind("p"), lose_request(world, BindPod))
    world.report("n1", 2, uuid(0, PAIRS))
    replica.catch_up()
    return world, replica.start_bind("p")


def moving_on() -> tuple[World, Steps]:
    """Bind to another node than the one with the claims of a first attempt: a look, a fence, two ledgers and a Binding."""
    world = World("n1", "n2")
    world.add_pod("p")
    replica = Replica(world)
    drive(replica.start_bind("p"), lose_request(world, BindPod))
    return world, replica.start_bind("p", "n2")


def releasing_an_orphan() -> tuple[World, Steps]:
    """Fence an unbound pod, and drop its claims."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    return world, release(replica.state, task)


def looking_for_one_that_is_gone() -> tuple[World, Steps]:
    """Have the agent look for a pod that was deleted by force."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    (task,) = due(replica)
    return world, release(replica.state, task)


def looking_up_an_unseen_one() -> tuple[World, Steps]:
    """Read live a pod that is not in the cache."""
    world, replica = bound("p")
    replica.state.pods.replaced([])
    due(replica)
    replica.seconds = 5.0
    (task,) = due(replica)
    return world, release(replica.state, task)


def rebuilding() -> tuple[World, Steps]:
    """List, fence, list and write, where a ledger was lost."""
    world = world_of("p", gpus=1)
    world.add_pod("q", 1)
    with world.unchecked():
        damage(world, "wiped")
    return world, repair(Replica(world).state, "n1")


def correcting() -> tuple[World, Steps]:
    """Look, fence, write the ledger and the record, where a pod has the GPUs that another one was promised."""
    world = world_of()
    replica = Replica(world)
    for name in ("p", "q"):
        world.add_pod(name, 2)
        replica.catch_up()
    assert not isinstance(replica.bind("p"), NotBound)
    drive(replica.start_bind("q"), lose_request(world, BindPod))
    observe(world, p=(2, 3))
    replica.catch_up()
    return world, repair(replica.state, "n1")


CASES: list[tuple[Callable[[], tuple[World, Steps]], list[type[Intent]]]] = [
    (rebinding, [GetPod, FencePod, SwapLedger, BindPod]),
    (moving_on, [GetPod, FencePod, SwapLedger, BindPod]),
    (releasing_an_orphan, [FencePod, SwapLedger]),
    (looking_for_one_that_is_gone, [GetNode, AskForLook]),
    (looking_up_an_unseen_one, [GetPodVersion]),
    (rebuilding, [ListPods, FencePod, SwapLedger]),
    (correcting, [GetPod, FencePod, SwapLedger, WritePlacement]),
]


@pytest.mark.parametrize(("case", "kind"), [(case, kind) for case, kinds in CASES for kind in kinds])
@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_any_reply_to_any_intent_has_an_answer(
    case: Callable[[], tuple[World, Steps]], kind: type[Intent], reply: Reply
) -> None:
    """It may be lost or odd, the claims of pods that may run stay, and the ledger can still be read."""
    world, steps = case()
    with world.unchecked():
        meddle, asked = answer_once(world, kind, reply), []

        def execute(intent: Intent) -> Reply:
            asked.append(type(intent))
            return meddle(intent)

        drive(steps, execute)
        assert kind in asked
        annotations = world.store.get(NODES, "", "n1")["metadata"]["annotations"]
        running = {known.uid for known in Replica(world).state.pods if known.node == "n1"}
        assert keys.LEDGER not in annotations or running <= set(world.claims().values())
