"""The few requests to the Kubernetes API that measuring takes: Jobs, their pods, logs, and one ConfigMap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from extender.kubernetes.documents import message_of
from extender.kubernetes.rest import Request

Json = dict[str, Any]
KEY = "measured.json"
"""Of the ConfigMap."""
_TEXT = "application/json, */*"
"""A log is neither; a refusal is the first."""
_FIELD_MANAGER = "fieldManager=gputopo-measure"


class Api(Protocol):
    """What sends a request; `KubeApi` does, and raises `Unavailable` where nobody answers."""

    async def send(self, request: Request) -> tuple[int, bytes]:
        """Return status and body."""


class ApiRefused(Exception):
    """The API server said no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class JobNamespace:
    """One namespace of one cluster."""

    api: Api
    namespace: str

    async def create_job(self, job: Json) -> None:
        """Create a Job; raises `ApiRefused`, with 409 where there is one of that name."""
        await self._json("POST", f"{self._jobs}?{_FIELD_MANAGER}", job)

    async def delete_job(self, name: str, label: tuple[str, str]) -> None:
        """Delete a Job, with its pods, if it has this label; one that is gone, or another one, is no failure."""
        path = f"{self._jobs}/{quote(name, safe='')}"
        try:
            metadata = (await self._json("GET", path))["metadata"]
            if label in (metadata.get("labels") or {}).items():
                options = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
                await self._json("DELETE", path, options)
        except ApiRefused as error:
            if error.code not in (404, 409):
                raise

    async def pod_of(self, job: str, label: tuple[str, str]) -> Json | None:
        """Return the pod of a Job that has this label, `None` while there is none.

        A pod outlives its Job for a moment, so one of an earlier Job of the same name may still be there.
        """
        selector = quote(f"batch.kubernetes.io/job-name={job},{'='.join(label)}", safe="")
        found = await self._json("GET", f"{self._pods}?labelSelector={selector}")
        items: list[Json] = found["items"]
        return items[0] if items else None

    async def log(self, pod: str, container: str) -> str:
        """Return what a container has printed."""
        path = f"{self._pods}/{quote(pod, safe='')}/log?container={quote(container, safe='')}"
        return (await self._send(Request("GET", path, accept=_TEXT))).decode(errors="replace")

    async def read_config_map(self, name: str) -> tuple[str | None, str | None]:
        """Return the measured document and the version of the ConfigMap; `None` for what is not there."""
        try:
            found = await self._json("GET", f"{self._config_maps}/{quote(name, safe='')}")
        except ApiRefused as error:
            if error.code == 404:
                return None, None
            raise
        return (found.get("data") or {}).get(KEY), found["metadata"]["resourceVersion"]

    async def write_config_map(self, name: str, text: str, version: str | None) -> None:
        """Write the document; raises `ApiRefused`, with 409 where somebody else has written since that version."""
        if version is None:
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {KEY: text}}
            await self._json("POST", f"{self._config_maps}?{_FIELD_MANAGER}", document)
            return
        patch = {"metadata": {"resourceVersion": version}, "data": {KEY: text}}
        path = f"{self._config_maps}/{quote(name, safe='')}?{_FIELD_MANAGER}"
        await self._send(Request("PATCH", path, msgspec.json.encode(patch), "application/merge-patch+json"))

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{quote(self.namespace, safe='')}/jobs"

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"

    @property
    def _config_maps(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/configmaps"

    async def _json(self, method: str, path: str, body: Json | None = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(await self._send(Request(method, path, content)))

    async def _send(self, request: Request) -> bytes:
        status, answer = await self.api.send(request)
        if status >= 300:
            raise ApiRefused(status, message_of(answer))
        return answer
