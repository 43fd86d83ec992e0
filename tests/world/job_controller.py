"""Kubernetes' Job controller, as far as Jobs of one pod go: a Job gets its pod, and takes it along when it is deleted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import aiohttp

from benchmarks.processes.client import ApiClient, Json, RequestRefused

JOB_NAME: Final = "batch.kubernetes.io/job-name"
_LOOK_SECONDS: Final = 0.05


class JobController:
    """At work for as long as the context is open; against the double, or a real API server without a controller manager."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with suppress(RequestRefused, aiohttp.ClientError):  # the next look sees what is so then
                await self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        pods = [pod for pod in await self._list("/api/v1/pods") if JOB_NAME in (pod["metadata"].get("labels") or {})]
        jobs = {job["metadata"]["uid"]: job for job in await self._list("/apis/batch/v1/jobs")}
        owned = {reference["uid"]: pod for pod in pods for reference in pod["metadata"]["ownerReferences"]}
        for uid in jobs.keys() - owned.keys():
            job = jobs[uid]
            (await self._client.call("POST", _pods_beside(job), _pod_of(job))).ok()
        for uid in owned.keys() - jobs.keys():
            pod = owned[uid]
            await self._client.call("DELETE", f"{_pods_beside(pod)}/{pod['metadata']['name']}")

    async def _list(self, path: str) -> list[Json]:
        items: list[Json] = (await self._client.call("GET", path)).ok()["items"]
        return items


def _pods_beside(thing: Json) -> str:
    return f"/api/v1/namespaces/{thing['metadata']['namespace']}/pods"


def _pod_of(job: Json) -> Json:
    metadata, template = job["metadata"], job["spec"]["template"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{metadata['uid'][:5]}",
            "labels": {**template["metadata"].get("labels", {}), JOB_NAME: metadata["name"]},
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
