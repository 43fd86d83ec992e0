"""Ends a pod by way of the Eviction API, which respects disruption budgets; what it may answer, as a word."""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from urllib.parse import quote

import msgspec

from extender.kubernetes.documents import message_of
from extender.kubernetes.events import PodName
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send

_BUDGET: Final = 429


class EvictionOutcome(StrEnum):
    """What became of one request."""

    EVICTED = "evicted"
    GONE = "gone"
    """There is no such pod, or a namesake, or another version of it."""
    BUDGET = "budget"
    """A budget allows it no eviction now, or the server is busy."""
    REFUSED = "refused"
    """For good: we have not the right to, or a policy says no."""
    FAILED = "failed"
    """Nobody knows; the same may be asked again."""


async def evict(send: Send, pod: PodName, version: str = "", *, dry_run: bool = False) -> tuple[EvictionOutcome, str]:
    """Ask once that a pod be evicted, in a version of it or in any; returns the answer, and what the server says of it.

    A dry run asks what the answer would be.
    """
    try:
        status, body = await send(to_request(pod, version, dry_run=dry_run))
    except Unavailable as error:
        return EvictionOutcome.FAILED, str(error)
    if status < 300:
        return EvictionOutcome.EVICTED, ""
    if status in {404, 409}:
        return EvictionOutcome.GONE, message_of(body)
    if status == _BUDGET:
        return EvictionOutcome.BUDGET, message_of(body)
    return (EvictionOutcome.REFUSED if status < 500 else EvictionOutcome.FAILED), message_of(body)


def to_request(pod: PodName, version: str = "", *, dry_run: bool = False) -> Request:
    """Put it into the API's words; a pod of the same name that came later stays."""
    preconditions = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {"preconditions": preconditions},
    }
    path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/eviction"
    path += "?dryRun=All" if dry_run else ""
    return Request("POST", path, msgspec.json.encode(body), may_be_too_many=True)
