"""Asks the API server who a reader is and which pods that reader may see, and remembers each answer for a minute.

Strangers choose the tokens, so everything is bounded: the length of a token, the answers that are kept, the questions at once and
per second. What has not been answered is hidden. No answer to one reader pushes out those to another. New tokens have questions
of their own, so a crowd of them keeps no reader waiting whose token was valid before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import msgspec

from extender.inspect.sight import EVERYTHING, Sight
from extender.kit.bounded import Bounded
from extender.kit.fair_table import FairTable
from extender.kit.keyed_locks import KeyedLocks
from extender.kit.plain_structlog import structlog
from extender.kit.rate import Rate
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send, words_of

REMEMBERED_SECONDS: Final = 60.0
"""For which an answer counts; so a right that is withdrawn counts for as long, at most."""
MAX_TOKEN_CHARACTERS: Final = 16 << 10
MAX_VIEWER_BYTES: Final = 64 << 10
"""Of who a reader is, with all groups."""
TOKENS: Final = 2_000
"""Answers that are kept about tokens that are valid, and as many about others."""
RIGHTS: Final = 20_000
"""Answers that are kept about rights."""
AT_ONCE: Final = 4
"""Questions under way. Binds have the other connections to the API server."""
NEW_AT_ONCE: Final = 1
"""Of them, questions about new tokens."""
TOKENS_PER_SECOND: Final = 10.0
"""For new tokens, and as many for those that were valid before."""
RIGHTS_PER_SECOND: Final = 100.0
RIGHTS_A_REQUEST: Final = 64
"""Namespaces that are asked about for one page; the next page asks about others."""
ANSWER_SECONDS: Final = 5.0
"""For which one question may wait for its turn and its answer."""
SIGHTS: Final = 32
"""Readers whose sight is kept whole. A set of 3,000 namespaces takes some 200 KiB."""
NAMESPACES_A_STEP: Final = 500
"""Whose rights are looked up in one turn of the event loop: half a millisecond."""

Count = Callable[[str, str], None]
"""Hears of each question: its kind and what came of it."""
log = structlog.get_logger(__name__)


class Unauthenticated(Exception):
    """A token is missing, or nobody's."""


_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
"""Attribute in which the API server names the token of a service account. Rights do not depend on it."""


class TooManyReviews(Exception):
    """More is asked than may be asked of the API server; the reader may come again."""


class ReviewsUnavailable(Exception):
    """The API server cannot be asked, or does not answer us."""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] = []


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who a reader is, as the API server says."""

    user: dict[str, Any]
    """As a SubjectAccessReview takes it."""
    key: str
    """The same for the same user, groups and attributes, whichever token it was."""
    user_key: str
    """The same for all tokens of a user, who shares what is remembered with other users."""

    @classmethod
    def of(cls, user: _User) -> Viewer:
        """Return a reader; raises `Unauthenticated` for one without a name, or with more groups than can be handled."""
        described = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        extra = {name: values for name, values in user.extra.items() if name != _CREDENTIAL_ID}
        encoded = msgspec.json.encode(described | {"extra": extra})
        if not user.username or len(encoded) > MAX_VIEWER_BYTES:
            raise Unauthenticated("the token's user has no name, or too many groups")
        identity = msgspec.json.encode([user.username, user.uid])
        return cls(described, sha256(encoded).hexdigest(), sha256(identity).hexdigest())


@dataclass(frozen=True, slots=True)
class _KeptSight:
    """What a reader sees of a set of namespaces, all of which have been asked about."""

    names: frozenset[str]
    sight: Sight
    counts_until: float
    """Monotonic seconds, when the first of its rights has to be asked about again."""


@dataclass(slots=True)
class Reviews:
    """What one extender has asked."""

    send: Send
    now: Callable[[], float]
    """Returns monotonic seconds."""
    audiences: Sequence[str] = ()
    count: Count = lambda kind, answer: None
    _viewers: FairTable[bytes, tuple[float, Viewer]] = field(default_factory=lambda: FairTable(TOKENS))
    _strangers: Bounded[bytes, float] = field(default_factory=lambda: Bounded(TOKENS))
    _rights: FairTable[tuple[str, str, str], tuple[float, bool]] = field(default_factory=lambda: FairTable(RIGHTS))
    _names: frozenset[str] = frozenset()
    """The namespaces of the last page: one object as long as they stay the same."""
    _sights: Bounded[str, _KeptSight] = field(default_factory=lambda: Bounded(SIGHTS))
    _locks: KeyedLocks = field(default_factory=KeyedLocks)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE - NEW_AT_ONCE))
    _new_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(NEW_AT_ONCE))
    _tokens_rate: Rate = field(default_factory=lambda: Rate(TOKENS_PER_SECOND, int(2 * TOKENS_PER_SECOND)))
    _renewals_rate: Rate = field(default_factory=lambda: Rate(TOKENS_PER_SECOND, int(2 * TOKENS_PER_SECOND)))
    _rights_rate: Rate = field(default_factory=lambda: Rate(RIGHTS_PER_SECOND, int(2 * RIGHTS_PER_SECOND)))

    def user_of(self, token: str) -> str | None:
        """Return whose token this was when it was last asked about, however long ago (`user_key`); `None`: nobody's."""
        kept = self._viewers.get(sha256(token.encode()).digest())
        return kept[1].user_key if kept else None

    async def viewer(self, token: str) -> Viewer:
        """Return whose token this is; raises `Unauthenticated`, `TooManyReviews` and `ReviewsUnavailable`."""
        if not 0 < len(token) <= MAX_TOKEN_CHARACTERS or not (token.isascii() and token.isprintable()):
            raise Unauthenticated("the token is none that can be one")
        digest = sha256(token.encode()).digest()
        async with self._locks.plain(digest.hex()):
            answered_at, viewer = self._viewers.get(digest) or (0.0, None)
            if viewer is not None and self._counts(answered_at):
                return viewer
            refused_at = self._strangers.get(digest)
            if refused_at is not None and self._counts(refused_at):
                raise Unauthenticated("the token is not valid")
            return await self._ask_who(token, digest)

    async def sight(self, viewer: Viewer, namespaces: Iterable[str], first: str = "") -> Sight:
        """Return which of these namespaces a reader sees; that of the page itself is asked about `first`.

        Raises `TooManyReviews` and `ReviewsUnavailable`.
        """
        if await self.may_list(viewer, "", "pods"):
            return EVERYTHING
        names = self._same({*namespaces})
        is_elsewhere = bool(first) and first not in names
        may = await self._may_perhaps(viewer, first) if is_elsewhere else False
        kept = self._sights.get(viewer.key)
        if kept is not None and kept.names is names and self.now() < kept.counts_until:
            sight = kept.sight
        else:
            sight = await self._looked_up(viewer, names, first)
        if not is_elsewhere:
            return sight
        seen = sight.namespaces or frozenset()
        return Sight(seen | {first} if may else seen, sight.unasked + (may is None))

    async def may_list(self, viewer: Viewer, namespace: str, resource: str) -> bool:
        """Whether a reader may list objects of a namespace; empty: of all. Raises `TooManyReviews` and `ReviewsUnavailable`."""
        async with self._locks.plain(f"{viewer.key}/{namespace}/{resource}"):
            known = self._known(viewer, namespace, resource)
            return await self._ask_right(viewer, namespace, resource) if known is None else known

    def _same(self, names: set[str]) -> frozenset[str]:
        """Return the set of the last page where it is the same, so that sets are compared by identity."""
        if self._names != names:
            self._names = frozenset(names)
        return self._names

    async def _looked_up(self, viewer: Viewer, names: frozenset[str], first: str) -> Sight:
        ordered = sorted(names)
        if first in names:
            ordered.insert(0, ordered.pop(ordered.index(first)))
        seen, unknown, oldest = set[str](), list[str](), self.now()
        for start in range(0, len(ordered), NAMESPACES_A_STEP):
            earliest = self.now() - REMEMBERED_SECONDS
            for name in ordered[start : start + NAMESPACES_A_STEP]:
                answered_at, right = self._rights.get((viewer.key, name, "pods")) or (earliest, False)
                if answered_at <= earliest:
                    unknown.append(name)
                    continue
                oldest = min(oldest, answered_at)
                if right:
                    seen.add(name)
            await asyncio.sleep(0)
        next_ones = unknown[:RIGHTS_A_REQUEST]
        answers = await asyncio.gather(*(self._may_perhaps(viewer, name) for name in next_ones))
        seen.update(name for name, right in zip(next_ones, answers, strict=True) if right)
        unasked = len(unknown) - len(next_ones) + answers.count(None)
        sight = Sight(frozenset(seen), unasked)
        if not unasked:
            self._sights.put(viewer.key, _KeptSight(names, sight, oldest + REMEMBERED_SECONDS))
        return sight

    def _counts(self, answered_at: float) -> bool:
        return self.now() - answered_at < REMEMBERED_SECONDS

    def _known(self, viewer: Viewer, namespace: str, resource: str) -> bool | None:
        answered_at, right = self._rights.get((viewer.key, namespace, resource)) or (0.0, None)
        return right if right is not None and self._counts(answered_at) else None

    async def _may_perhaps(self, viewer: Viewer, namespace: str) -> bool | None:
        try:
            return await self.may_list(viewer, namespace, "pods")
        except (TooManyReviews, ReviewsUnavailable):
            return None

    async def _ask_who(self, token: str, digest: bytes) -> Viewer:
        spec: dict[str, Any] = {"token": token} | ({"audiences": list(self.audiences)} if self.audiences else {})
        budget = (self._renewals_rate, self._slots) if digest in self._viewers else (self._tokens_rate, self._new_slots)
        status = (
            await self._review("token", "authentication.k8s.io", "TokenReview", spec, _TokenReview, *budget)
        ).status
        is_for_us = not self.audiences or not {*self.audiences}.isdisjoint(status.audiences)
        try:
            if not (status.authenticated and is_for_us):
                raise Unauthenticated("the token is not valid")
            viewer = Viewer.of(status.user)
        except Unauthenticated:
            self.count("token", "no")
            self._viewers.pop(digest)
            self._strangers.put(digest, self.now())
            raise
        self.count("token", "yes")
        self._viewers.put(digest, viewer.user_key, (self.now(), viewer))
        return viewer

    async def _ask_right(self, viewer: Viewer, namespace: str, resource: str) -> bool:
        attributes = {"namespace": namespace, "verb": "list", "resource": resource}
        spec = {**viewer.user, "resourceAttributes": attributes}
        budget = self._rights_rate, self._slots
        group, kind = "authorization.k8s.io", "SubjectAccessReview"
        review = await self._review("access", group, kind, spec, _AccessReview, *budget)
        may: bool = review.status.allowed
        self.count("access", "yes" if may else "no")
        self._rights.put((viewer.key, namespace, resource), viewer.user_key, (self.now(), may))
        return may

    async def _review(
        self,
        kind: str,
        group: str,
        name: str,
        spec: dict[str, Any],
        answer: type[Any],
        rate: Rate,
        slots: asyncio.Semaphore,
    ) -> Any:
        if not rate.take(self.now()):
            self.count(kind, "throttled")
            raise TooManyReviews("too many readers are new: try again in a moment")
        body = msgspec.json.encode({"apiVersion": f"{group}/v1", "kind": name, "spec": spec})
        request = Request("POST", f"/apis/{group}/v1/{name.lower()}s", body)
        try:
            async with asyncio.timeout(ANSWER_SECONDS), slots:
                status, text = await self.send(request)
            if status == 201:
                return msgspec.json.decode(text, type=answer)
            why = words_of(status, text)
        except (Unavailable, TimeoutError, msgspec.MsgspecError) as error:
            why = str(error) or type(error).__name__
        self.count(kind, "failed")
        log.warning("no review", kind=name, why=why)
        raise ReviewsUnavailable(f"the API server does not answer a {name}: {why}")
