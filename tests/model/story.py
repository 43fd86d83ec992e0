"""Tell a way through the model in words."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.explorer import Found
from tests.model.library import GPUS, NOBODY, PODS, Actor, Event, Move, Setup, State, Waits

_WORDS = {
    Event.CREATE: "{pod} is created",
    Event.TOUCH: "a stranger writes to {pod}",
    Event.DELETE: "{pod} is deleted",
    Event.END: "{pod} ends, unbound",
    Event.DOUBT: "{pod} is called ended, but not by its kubelet",
    Event.FORCE_DELETE: "{pod} is deleted by force",
    Event.STOP: "the containers of {pod} stop",
    Event.REPORT: "the agent reports that nobody holds the GPUs of {pod}",
    Event.RENEW_NODE: "the first node is made anew on another machine",
    Event.WIPE: "the ledger of the first node is lost",
    Event.LATE_SWAP: "a ledger swap arrives late",
    Event.LATE_BINDING: "the Binding of {pod} arrives late",
    Event.LATE_FENCE: "the fence of {pod} arrives late",
    Event.BEGIN: "begins",
    Event.ANSWER: "is answered",
    Event.CONFLICT: "is told of a conflict",
    Event.REFUSAL: "is refused by a policy",
    Event.LOST: "loses the request",
    Event.ANSWER_LOST: "loses the answer",
    Event.DUPLICATED: "loses the answer, and the request will arrive once more",
    Event.HELD_UP: "waits in vain, the request is still on its way",
    Event.KILLED: "is killed",
    Event.KILLED_HELD_UP: "is killed, the request is still on its way",
}


def story(setup: Setup, found: Found[State, Move]) -> Iterator[str]:
    """Yield one line for each move of the way to the violation."""
    for number, (before, move) in enumerate(found.trace, start=1):
        yield f"{number:3} {_tell(setup, before, move)}; the ledger {_present(setup, move.after)}"


def _tell(setup: Setup, before: State, move: Move) -> str:
    pod, event = _pod(move.pod), Event(move.event)
    if move.actor == NOBODY:
        return _WORDS[event].format(pod=pod)
    is_binder = move.actor < setup.binders
    who = f"binder {move.actor + 1}" if is_binder else f"reconciler {move.actor - setup.binders + 1}"
    was, becomes = before.actors[move.actor], move.after.actors[move.actor]
    what = f"begins with {pod}" if is_binder and event is Event.BEGIN else f"{_WORDS[event]}"
    asked = f" ({_request(setup, was)})" if was.step else ""
    sends = f", goes on to {_request(setup, becomes)}" if becomes.step else ""
    return f"{who}{asked} {what}{sends}"


def _request(setup: Setup, actor: Actor) -> str:
    pod = _pod(actor.pod)
    match Waits(actor.step):
        case Waits.LOOK | Waits.SEEN | Waits.CHECK:
            return f"look at {pod}"
        case Waits.LIST_UNBOUND:
            return "list who is unbound"
        case Waits.STOCK:
            return "list who is bound"
        case Waits.FENCE | Waits.FENCE_REFUSED | Waits.REBUILD:
            return f"fence {pod}"
        case Waits.DROP:
            return f"drop the claims of {_pod(actor.pod)} on the other node"
        case Waits.SWAP | Waits.WITHDRAW:
            return f"write the ledger {_ledger(setup, actor.owners)}"
    share = f"{setup.shares[actor.pod]}/{setup.units} of " if setup.shares[actor.pod] else ""
    return f"bind {pod} with {' and '.join(f'{share}GPU {gpu + 1}' for gpu in range(GPUS) if actor.gpus >> gpu & 1)}"


def _pod(number: int) -> str:
    return f"pod {number + 1}"


def _present(setup: Setup, state: State) -> str:
    return "is missing" if state.missing else f"is {_ledger(setup, state.owners)}"


def _ledger(setup: Setup, owners: int) -> str:
    """Name the owner of each GPU."""
    named = ([_pod(pod) for pod in range(PODS) if owners >> PODS * gpu + pod & 1] for gpu in range(setup.gpus))
    return f"[{', '.join(' + '.join(pods) or '-' for pods in named)}]"
