"""An API server that knows tokens and rights, and counts what it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request

EVERYWHERE = ""
"""The namespace of a right that counts in all of them."""


@dataclass
class Reviewing:
    """Answers TokenReviews, SubjectAccessReviews and lists of events."""

    users: Mapping[str, str]
    """Token → user."""
    may: Mapping[str, Collection[str]]
    """User → namespaces whose pods and events that user may list."""
    audiences: tuple[str, ...] = ()
    """Of all tokens."""
    is_gone: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    """Token reviews, and namespaces of access reviews."""
    at_once: int = 0
    most_at_once: int = 0

    async def send(self, request: Request) -> tuple[int, bytes]:
        """Answer a request."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.is_gone:
            raise Unavailable("nobody there")
        if request.method == "GET":
            return 200, msgspec.json.encode({"items": [{"type": "Warning", "reason": "Seen", "message": request.path}]})
        review = msgspec.json.decode(request.body or b"{}")
        answer = self._who if review["kind"] == "TokenReview" else self._may
        return 201, msgspec.json.encode({"status": answer(review["spec"])})

    def _who(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.asked["token"] += 1
        user = self.users.get(spec["token"])
        if user is None:
            return {"error": "unknown"}
        audiences = [audience for audience in self.audiences if audience in spec.get("audiences", ())]
        of_token = {"authentication.kubernetes.io/credential-id": [f"JTI={spec['token']}"]}
        described = {"username": user, "groups": ["people"], "extra": of_token}
        return {"authenticated": True, "user": described, "audiences": audiences}

    def _may(self, spec: dict[str, Any]) -> dict[str, Any]:
        attributes = spec["resourceAttributes"]
        self.asked[attributes["namespace"] or "*"] += 1
        assert (attributes["verb"], attributes["resource"] in ("pods", "events")) == ("list", True)
        return {"allowed": attributes["namespace"] in self.may.get(spec["user"], ())}
