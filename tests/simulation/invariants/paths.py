"""Which ways through the protocol a bind went, told from what it asked and heard: nobody shall say that they were not tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from extender.binding.intents import (
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetPod,
    Intent,
    NoAnswer,
    Refused,
    Reply,
    SwapLedger,
)
from extender.binding.outcome import Bound, Failure, Outcome
from topology.annotations.records import decode_ledger
from topology.errors import PayloadError


class BindPath(StrEnum):
    """The ways, by step."""

    FROM_CACHE = "B1 takes the pod from the cache"
    LIVE = "B1 reads the pod live"
    ALREADY = "B1 finds the pod bound already"
    KEEPS = "B2 keeps the GPUs of an earlier attempt"
    FENCES = "B2 fences the pod before it takes other GPUs"
    MOVES = "B2 drops the claims on another node"
    STAYS = "B2 ends where claims on another node cannot be dropped"
    CLAIMS = "B3 claims"
    RACED = "B3 loses the race for the ledger"
    BINDS = "B4 binds"
    LATE = "B4 comes too late for the pod's version"
    REFUSED = "B4 is refused"
    UNANSWERED = "B4 is not answered"
    FOUND = "B5 finds the pod bound after all"
    AGAIN = "B5 begins again with the pod's new version"
    KEPT = "B5 keeps the claim of a Binding in doubt"
    DROPPED = "B5 fences the pod and drops its claim"
    WITHDRAWN = "B5 drops the claim of a pod that needs none"


Exchange = tuple[Intent, Reply]


def bind_paths(uid: str, node: str, exchanges: Sequence[Exchange], outcome: Outcome) -> Iterator[BindPath]:
    """Yield the ways that one bind to a node went."""
    if exchanges:
        yield BindPath.LIVE if isinstance(exchanges[0][0], GetPod) else BindPath.FROM_CACHE
    for at, (intent, reply) in enumerate(exchanges):
        match intent:
            case SwapLedger() if intent.node != node:
                yield from (BindPath.MOVES,) if isinstance(reply, Done) else ()
            case SwapLedger():
                fenced = at > 0 and isinstance(exchanges[at - 1][0], FencePod)
                yield from _swap_paths(uid, intent, reply, fenced=fenced)
            case BindPod() if type(reply) in _POSTED:
                yield _POSTED[type(reply)]
    yield from _end_paths(exchanges, outcome)


def _end_paths(exchanges: Sequence[Exchange], outcome: Outcome) -> Iterator[BindPath]:
    posted = [reply for intent, reply in exchanges if isinstance(intent, BindPod)]
    if len(posted) > 1:
        yield BindPath.AGAIN
    if isinstance(outcome, Bound):
        if not posted:
            yield BindPath.ALREADY
        elif not isinstance(posted[-1], Done):
            yield BindPath.FOUND
    elif outcome.failure is Failure.CLAIMS_ELSEWHERE:
        yield BindPath.STAYS
    elif posted and outcome.failure is Failure.NO_ANSWER and isinstance(exchanges[-1][1], Done):
        yield BindPath.KEPT


_POSTED: Mapping[type[Reply], BindPath] = {
    Done: BindPath.BINDS,
    Conflict: BindPath.LATE,
    Refused: BindPath.REFUSED,
    NoAnswer: BindPath.UNANSWERED,
}


def _swap_paths(uid: str, swap: SwapLedger, reply: Reply, *, fenced: bool) -> Iterator[BindPath]:
    before, after = _gpus(uid, swap.expected), _gpus(uid, swap.ledger)
    match reply:
        case Done() if not after:
            yield BindPath.DROPPED if fenced else BindPath.WITHDRAWN
        case Done():
            yield BindPath.CLAIMS
            if fenced:
                yield BindPath.FENCES
            elif before == after:
                yield BindPath.KEEPS
        case Conflict() if after:
            yield BindPath.RACED


def _gpus(uid: str, ledger: str | None) -> set[str]:
    try:
        return {claim.gpu for claim in decode_ledger(ledger or "").claims if claim.uid == uid}
    except PayloadError:
        return set()
