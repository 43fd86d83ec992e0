"""Whether the model allows what the product does: a shadow follows the product, step by step, through the model.

The shadow is the set of all states of the model that look like the product: pods, ledger, requests under way, and for every
actor what it waits for and whether that can still succeed. After each step of the product at least one state must be left that
looks like it and that the model reaches by moves of the same actor. What cannot succeed any more looks the same on both sides,
whatever it is: the model takes no such detours.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from extender.binding.intents import BindPod, FencePod, GetPod, Intent, SwapLedger
from tests.model.library import GPUS, NOBODY, PODS, Event, Model, Move, Setup, State, Waits
from tests.model.product import Part, Product, Step, mask_of
from topology.annotations import keys
from topology.annotations.records import decode_ledger, decode_placement

MOVES_PER_STEP = 3
"""A look, what follows from it, and the write that follows from that."""
_LOOKS = (Waits.IDLE, Waits.LOOK, Waits.SEEN, Waits.CHECK)
_COMMITS = (Event.ANSWER, Event.ANSWER_LOST, Event.DUPLICATED)
Look = tuple[object, ...]


class Shadow:
    """Every state in which the model can be, given what the product has done so far."""

    def __init__(self, model: Model, setup: Setup) -> None:
        self._model = model
        self._setup = setup
        self._states = {bytes(model.first_state(setup))}
        self._ledgers = tuple(sorted(_ledgers(setup), key=lambda owners: model.ledger_bit(setup, owners)))

    def follow(self, product: Product, step: Step) -> bool:
        """Let the product take a step; whether the model can take it, too."""
        strays = [product.stray(part) for part in product.parts if part.number == step.actor]
        before = product.writes
        step.take()
        commits = product.writes - before
        if step.actor != NOBODY:
            began = self._touched(strays[0]) if strays[0] is not None and commits else self._states
            commits -= strays[0] is not None and commits
            reached = {after for state in began for after in self._moves_by(state, step.actor, commits)}
        else:
            reached = self._world_moves(step) if step.event is not None else self._states
        wanted = look_of_product(product)
        self._states = {
            state for state in reached if look_of_state(state, self._setup.binders, self._ledgers) == wanted
        }
        return bool(self._states)

    def _world_moves(self, step: Step) -> set[bytes]:
        return {
            bytes(move.after)
            for state in self._states
            for move in self._moves(state, NOBODY)
            if move.event == step.event and (move.pod == step.pod or move.event == Event.LATE_SWAP)
        }

    def _touched(self, pod: int) -> set[bytes]:
        return {
            bytes(move.after)
            for state in self._states
            for move in self._moves(state, NOBODY)
            if (move.event, move.pod) == (Event.TOUCH, pod)
        }

    def _moves_by(self, state: bytes, actor: int, commits: int) -> set[bytes]:
        """Return what a few moves of one actor lead to, of which so many commit a write."""
        reached = newest = {(state, 0)}
        for _ in range(MOVES_PER_STEP):
            newest = {
                (bytes(move.after), done + self._is_commit(before, move))
                for before, done in newest
                for move in self._moves(before, actor)
                if done + self._is_commit(before, move) <= commits
            } - reached
            reached = reached | newest
        return {after for after, done in reached if done == commits}

    def _is_commit(self, before: bytes, move: Move) -> bool:
        waits = State.from_buffer_copy(before).actors[move.actor].step
        return waits not in _LOOKS and move.event in _COMMITS

    def _moves(self, state: bytes, actor: int) -> Iterator[Move]:
        return self._model.moves(self._setup, State.from_buffer_copy(state), actor)


def look_of_product(product: Product) -> Look:
    """Return what the product looks like, in the model's words."""
    ledger = product.ledger
    pods = tuple((int(phase), gpus) for phase, gpus in zip(product.phases, product.gpus, strict=True))
    late = frozenset(
        _write(product, intent) for intent, is_stray in product.late if not is_stray and product.can_commit(intent)
    )
    return (pods, product.owners(ledger), late, *(_part(product, part) for part in product.parts))


def _write(product: Product, intent: Intent) -> Look:
    match intent:
        case SwapLedger():
            return ("swap", product.owners(intent.ledger))
        case BindPod():
            record = decode_placement(intent.annotations[keys.PLACEMENT])
            gpus = mask_of(gpu for gpus in record.containers.values() for gpu in gpus)
            return ("bind", product.uids.index(intent.uid), gpus)
        case FencePod():
            return ("fence", product.uids.index(intent.uid))
    raise AssertionError(f"{intent} is no write")


def _part(product: Product, part: Part) -> Look:
    is_binder, intent = part.number < product.binders, part.intent
    looks = ("look", part.pod) if is_binder else ("idle",)
    match intent:
        case None:
            return ("idle",)
        case GetPod() if part.seen is not None:
            found = product.world.find(product.names[part.pod])
            version = found["metadata"]["resourceVersion"] if found else None
            return ("seen", part.pod, part.seen.metadata.resource_version == version)
        case BindPod():
            return (*_write(product, intent), product.can_commit(intent))
        case SwapLedger() if not product.can_commit(intent):
            is_withdrawal = all(claim.uid != product.uids[part.pod] for claim in decode_ledger(intent.ledger).claims)
            return ("idle",) if is_withdrawal else looks
        case FencePod() if product.stray(part) is not None or not product.can_commit(intent):
            return ("idle",) if part.was_refused else looks
        case SwapLedger() | FencePod():
            return _write(product, intent)
    return looks


def _ledgers(setup: Setup) -> Iterator[int]:
    """Yield every ledger that there can be."""
    claims = sum(((1 << setup.pods) - 1) << PODS * gpu for gpu in range(setup.gpus))
    return (owners for owners in range(claims + 1) if not owners & ~claims)


@cache
def look_of_state(raw: bytes, binders: int, ledgers: tuple[int, ...]) -> Look:
    """Return what a state of the model looks like; `ledgers` are those that there can be, by their bit in `State.ledgers`."""
    state = State.from_buffer_copy(raw)
    pods = tuple((pod.phase, pod.gpus) for pod in state.pods if pod.phase)
    late: list[Look] = [("swap", owners) for bit, owners in enumerate(ledgers) if state.ledgers >> bit & 1]
    late += [("fence", pod) for pod in range(len(pods)) if state.fences >> pod & 1]
    bindings = [(pod, gpus) for pod in range(len(pods)) for gpus in range(1, 1 << GPUS)]
    late += [("bind", pod, gpus) for pod, gpus in bindings if state.bindings >> (3 * pod + gpus - 1) & 1]
    return (pods, state.owners, frozenset(late), *(_actor(state, number, binders) for number in range(binders + 1)))


def _actor(state: State, number: int, binders: int) -> Look:
    actor = state.actors[number]
    looks = ("look", actor.pod) if number < binders else ("idle",)
    match actor.step:
        case Waits.LOOK | Waits.CHECK:
            return ("look", actor.pod)
        case Waits.SEEN:
            return ("seen", actor.pod, bool(actor.version_holds))
        case Waits.SWAP:
            return ("swap", actor.owners) if actor.ledger_holds else looks
        case Waits.WITHDRAW:
            return ("swap", actor.owners) if actor.ledger_holds else ("idle",)
        case Waits.FENCE:
            return ("fence", actor.pod) if actor.ledger_holds and actor.version_holds else looks
        case Waits.FENCE_REFUSED:
            return ("fence", actor.pod) if actor.ledger_holds and actor.version_holds else ("idle",)
        case Waits.BIND:
            return ("bind", actor.pod, actor.gpus, bool(actor.version_holds))
    return ("idle",)
