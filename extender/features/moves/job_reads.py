"""Reads Jobs whose pods may move, one after the other and each once."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from extender.features.moves.jobs import TO_READ, JobName, Jobs, KubernetesJob
from extender.kit.clock import Instant
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import UNREADABLE, Request, Send

READ_AT_ONCE: Final = 8
"""After one search."""

_decode = msgspec.json.Decoder(KubernetesJob).decode


async def read_jobs(send: Send, jobs: Jobs, now: Instant, most: int = TO_READ) -> int:
    """Read at most so many of the Jobs that are to be read; returns how many were."""
    names = jobs.to_read(most)
    for name in names:
        jobs.learn(name, await _read(send, name), now.monotonic)
    return len(names)


async def _read(send: Send, name: JobName) -> KubernetesJob | None:
    namespace, job = quote(name.namespace, safe=""), quote(name.name, safe="")
    try:
        status, body = await send(Request("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{job}"))
        return _decode(body) if status == 200 else None
    except (Unavailable, *UNREADABLE):
        return None
