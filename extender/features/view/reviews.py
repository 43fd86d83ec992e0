"""Asks the API server who a reader is and which pods that reader may see, and remembers each answer for a minute.

Strangers choose the tokens, so everything is bounded: the length of a token, the answers that are kept, the questions at once and
per second. What has not been answered is hidden. No answer to one reader pushes out those to another.
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
TOKENS_PER_SECOND: Final = 10.0
RIGHTS_PER_SECOND: Final = 100.0
RIGHTS_A_REQUEST: Final = 64
"""Namespaces that are asked about for one page; the next page asks about others."""
ANSWER_SECONDS: Final = 5.0
"""For which one question may wait for its turn and its answer."""

Count = Callable[[str, str], None]
"""Hears of each question: its kind and what came of it."""
log = structlog.get_logger(__name__)


class Unauthenticated(Exception):
    """A token is missing, or nobody's."""


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
    """The same for the same user, whichever token it was."""

    @classmethod
    def of(cls, user: _User) -> Viewer:
        """Return a reader; raises `Unauthenticated` for one without a name, or with more groups than can be handled."""
        described = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        encoded = msgspec.json.encode(described)
        if not user.username or len(encoded) > MAX_VIEWER_BYTES:
            raise Unauthenticated("the token's user has no name, or too many groups")
        return cls(described, sha256(encoded).hexdigest())


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
    _locks: KeyedLocks = field(default_factory=KeyedLocks)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _tokens_rate: Rate = field(default_factory=lambda: Rate(TOKENS_PER_SECOND, int(2 * TOKENS_PER_SECOND)))
    _rights_rate: Rate = field(default_factory=lambda: Rate(RIGHTS_PER_SECOND, int(2 * RIGHTS_PER_SECOND)))

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
        names = sorted({*namespaces, *filter(None, [first])}, key=lambda name: (name != first, name))
        known = {name: self._known(viewer, name, "pods") for name in names}
        asked = [name for name in names if known[name] is None][:RIGHTS_A_REQUEST]
        answers = await asyncio.gather(*(self._may_perhaps(viewer, name) for name in asked))
        known |= dict(zip(asked, answers, strict=True))
        unasked = sum(right is None for right in known.values())
        return Sight(frozenset(name for name, right in known.items() if right), unasked)

    async def may_list(self, viewer: Viewer, namespace: str, resource: str) -> bool:
        """Whether a reader may list objects of a namespace; empty: of all. Raises `TooManyReviews` and `ReviewsUnavailable`."""
        async with self._locks.plain(f"{viewer.key}/{namespace}/{resource}"):
            known = self._known(viewer, namespace, resource)
            return await self._ask_right(viewer, namespace, resource) if known is None else known

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
        status = (await self._review("token", "authentication.k8s.io", "TokenReview", spec, _TokenReview)).status
        is_for_us = not self.audiences or not {*self.audiences}.isdisjoint(status.audiences)
        try:
            if not (status.authenticated and is_for_us):
                raise Unauthenticated("the token is not valid")
            viewer = Viewer.of(status.user)
        except Unauthenticated:
            self.count("token", "no")
            self._strangers.put(digest, self.now())
            raise
        self.count("token", "yes")
        self._viewers.put(digest, viewer.key, (self.now(), viewer))
        return viewer

    async def _ask_right(self, viewer: Viewer, namespace: str, resource: str) -> bool:
        attributes = {"namespace": namespace, "verb": "list", "resource": resource}
        spec = {**viewer.user, "resourceAttributes": attributes}
        review = await self._review("access", "authorization.k8s.io", "SubjectAccessReview", spec, _AccessReview)
        may: bool = review.status.allowed
        self.count("access", "yes" if may else "no")
        self._rights.put((viewer.key, namespace, resource), viewer.key, (self.now(), may))
        return may

    async def _review(self, kind: str, group: str, name: str, spec: dict[str, Any], answer: type[Any]) -> Any:
        rate = self._tokens_rate if kind == "token" else self._rights_rate
        if not rate.take(self.now()):
            self.count(kind, "throttled")
            raise TooManyReviews("too many readers are new: try again in a moment")
        body = msgspec.json.encode({"apiVersion": f"{group}/v1", "kind": name, "spec": spec})
        request = Request("POST", f"/apis/{group}/v1/{name.lower()}s", body)
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._slots:
                status, text = await self.send(request)
            if status == 201:
                return msgspec.json.decode(text, type=answer)
            why = words_of(status, text)
        except (Unavailable, TimeoutError, msgspec.MsgspecError) as error:
            why = str(error) or type(error).__name__
        self.count(kind, "failed")
        log.warning("no review", kind=name, why=why)
        raise ReviewsUnavailable(f"the API server does not answer a {name}: {why}")
