"""Says that a Job's `activeDeadlineSeconds` is about to end a pod that waits in the queue: it passes while the pod is gated.

Only the Job knows it. Where the pod or the Job cannot be read, nothing is said.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from extender.inspect.notes import PodNote
from extender.inspect.outlook import written
from extender.inspect.why import Why
from extender.kubectl.reading import StateSource
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request

NEAR_SECONDS: Final = 3600.0

Kind = TypeVar("Kind")


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    active_deadline_seconds: int | None = None


class _JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    start_time: datetime | None = None


class _Job(msgspec.Struct, frozen=True):
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


def with_deadline(source: StateSource, answer: Why) -> Why:
    """Add a note to an answer about a pod in the queue whose Job ends soon."""
    if source.snapshot_file is not None or not any(note.feature == "queue" for note in answer.notes):
        return answer
    try:
        config = Kubeconfig.find(source.file, source.context, os.environ)
        ends = asyncio.run(_end_of_job(config, answer.pod.namespace, answer.pod.name))
    except Unavailable:
        return answer
    if ends is None or ends - source.now.wall > NEAR_SECONDS:
        return answer
    verb = "ended" if ends < source.now.wall else "ends"
    line = (
        f"its Job {verb} at {written(datetime.fromtimestamp(ends, UTC))}: activeDeadlineSeconds passes while pods wait"
    )
    return answer.model_copy(update={"notes": (*answer.notes, PodNote(feature="queue", line=line))})


async def _end_of_job(config: Kubeconfig, namespace: str, name: str) -> float | None:
    """Return when the deadline of a pod's Job passes, in seconds since the epoch; `None` where there is none, or no right."""
    within = f"namespaces/{quote(namespace, safe='')}"
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        pod = await _read(api, f"/api/v1/{within}/pods/{quote(name, safe='')}", _Pod)
        owner = pod.metadata.controller if pod else None
        if owner is None or owner.kind != "Job":
            return None
        job = await _read(api, f"/apis/batch/v1/{within}/jobs/{quote(owner.name, safe='')}", _Job)
    if job is None or job.spec.active_deadline_seconds is None or job.status.start_time is None:
        return None
    return job.status.start_time.timestamp() + job.spec.active_deadline_seconds


async def _read(api: KubeApi, path: str, kind: type[Kind]) -> Kind | None:
    status, body = await api.send(Request("GET", path))
    try:
        return msgspec.json.decode(body, type=kind) if status == 200 else None
    except msgspec.DecodeError:
        return None
