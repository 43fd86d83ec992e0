"""Tell a way through the queue's model in words."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import Found
from tests.model.queue.library import (
    NOBODY,
    NOWHERE,
    RECONCILER,
    PlannerState,
    PodPhase,
    QueueEvent,
    QueueMove,
    QueueSetup,
    QueueState,
    ReconcilerState,
    Request,
)

_WORDS = {
    QueueEvent.TOUCH: "a stranger writes to pod {pod}",
    QueueEvent.DELETE: "pod {pod} is deleted",
    QueueEvent.END: "pod {pod} ends",
    QueueEvent.BIND: "pod {pod} is bound where it was sent",
    QueueEvent.BIND_ELSEWHERE: "pod {pod} is bound elsewhere",
    QueueEvent.LATE_CLAIM: "a claim for pod {pod} on GPU {place} arrives late",
    QueueEvent.LATE_DROP: "a swap without the claim on GPU {place} arrives late",
    QueueEvent.LATE_OPENING: "the opening of pod {pod} for GPU {place} arrives late",
    QueueEvent.LATE_FENCE: "the fence of pod {pod} arrives late",
    QueueEvent.HEAR: "hears",
    QueueEvent.PLAN: "plans {plan}",
    QueueEvent.CARRY_ON: "carries on {plan}",
    QueueEvent.KEEP: "keeps GPUs for a gang",
    QueueEvent.GIVE_UP: "gives a plan up",
    QueueEvent.SEND: "goes on to {request}",
    QueueEvent.ANSWER: "is answered",
    QueueEvent.CONFLICT: "gets a conflict",
    QueueEvent.ANSWER_LOST: "loses the answer",
    QueueEvent.HELD_UP: "waits in vain, the request is still on its way",
    QueueEvent.KILLED: "is killed",
}
_REQUESTS = {
    Request.FENCE_UNIT: "fence pod {pod}",
    Request.FENCE: "fence pod {pod}",
    Request.DROP: "drop the claim of pod {pod} on GPU {place}",
    Request.CLAIM: "claim GPU {place} for pod {pod}",
    Request.OPEN_GATE: "open pod {pod} for GPU {place}",
}


def queue_story(setup: QueueSetup, exploration: Found[QueueState, QueueMove]) -> Iterator[str]:
    """Yield one line for each move of the way to the violation."""
    for number, (before, move) in enumerate(exploration.trace, start=1):
        yield f"{number:3} {_tell(setup, before, move)}; {_present(setup, move.after)}"


def _tell(setup: QueueSetup, before: QueueState, move: QueueMove) -> str:
    words = _WORDS[QueueEvent(move.event)]
    if move.actor == NOBODY:
        return words.format(pod=move.pod + 1, place=move.place + 1)
    was, becomes = _actor(before, move.actor), _actor(move.after, move.actor)
    who = "the reconciler" if move.actor == RECONCILER else f"planner {move.actor + 1}"
    plan = _plan(setup, becomes) if isinstance(becomes, PlannerState) else ""
    request = f" ({_request(was)})" if was.step else ""
    return who + request + " " + words.format(plan=plan, request=_request(becomes))


def _actor(state: QueueState, number: int) -> PlannerState | ReconcilerState:
    actor: PlannerState | ReconcilerState = state.reconciler if number == RECONCILER else state.planners[number]
    return actor


def _request(actor: PlannerState | ReconcilerState) -> str:
    words = _REQUESTS.get(Request(actor.step), "")
    return words.format(pod=actor.pod + 1, place=actor.place + 1)


def _plan(setup: QueueSetup, planner: PlannerState) -> str:
    planned = (pod for pod in range(setup.pods) if planner.plan[pod] != NOWHERE)
    return ", ".join(f"pod {pod + 1} on GPU {planner.plan[pod] + 1}" for pod in planned)


def _present(setup: QueueSetup, state: QueueState) -> str:
    owners = (state.ledgers[place].owner for place in range(setup.places))
    ledgers = ", ".join(f"pod {owner}" if owner else "-" for owner in owners)
    phases = ", ".join(PodPhase(state.pods[pod].phase).name.lower() for pod in range(setup.pods))
    return f"the pods are [{phases}], the claims [{ledgers}]"
