"""A small synchronous Kubernetes client: paths and JSON in, JSON out, nothing hidden.

Tests say exactly which request they mean, and see exactly what the server answered. It shares no code with
the product's own client, so that neither can hide a fault of the other.
"""

import http.client
import json
import select
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]
PatchKind = Literal["json", "merge", "strategic", "apply"]

_PATCH_TYPES: dict[PatchKind, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_IDLE_SECONDS = 30.0
"""The API server closes a connection that was idle for 90, which can meet the next request on its way."""


class ApiError(Exception):
    """The server refused a request; `code` is the HTTP status, `reason` the word for it in the Status."""

    def __init__(self, request: str, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(f"{request}: {code} {status.get('reason', '')}: {status.get('message', '')}")
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.status = status


class Api:
    """A client of one user at one API server, for any number of threads: it has as many connections as calls at one time."""

    def __init__(self, url: str, token: str, ca_file: Path, timeout_seconds: float = 30.0) -> None:
        self._address = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._timeout_seconds = timeout_seconds
        self._idle: list[tuple[http.client.HTTPSConnection, float]] = []
        """Connections that no call uses, each with when it was used last."""

    def get(self, path: str, **query: str) -> Json:
        """Return the object or list at `path`."""
        return self._call("GET", path, query)

    def list(self, path: str, **query: str) -> list[Json]:
        """Return the items of the whole collection at `path`."""
        items: list[Json] = self.get(path, **query)["items"]
        return items

    def post(self, path: str, body: Json, **query: str) -> Json:
        """Create `body` in the collection (or subresource) at `path`."""
        return self._call("POST", path, query, body)

    def put(self, path: str, body: Json, **query: str) -> Json:
        """Replace the object at `path`."""
        return self._call("PUT", path, query, body)

    def patch(self, path: str, body: Json | Sequence[Json], kind: PatchKind = "merge", **query: str) -> Json:
        """Patch the object at `path`; `json` takes a list of operations, `apply` wants a `fieldManager`."""
        return self._call("PATCH", path, query, body, _PATCH_TYPES[kind])

    def delete(self, path: str, body: Json | None = None, **query: str) -> Json:
        """Delete the object or the whole collection at `path`."""
        return self._call("DELETE", path, query, body)

    def watch(self, path: str, within_seconds: int = 30, **query: str) -> Iterator[Json]:
        """Yield watch events as they come, until the server ends the stream after `within_seconds`."""
        query = {"watch": "true", "timeoutSeconds": str(within_seconds), **query}
        with closing(self._connect(within_seconds + self._timeout_seconds)) as connection:
            connection.request("GET", _with_query(path, query), headers=self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ApiError(f"WATCH {path}", response.status, json.loads(response.read()))
            for line in response:
                yield json.loads(line)

    def close(self) -> None:
        """Close the connections that no call uses; a later call opens its own again."""
        while self._idle:
            self._idle.pop()[0].close()

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | Sequence[Json] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        connection = self._idle_connection()
        content = None if body is None else json.dumps(body)
        headers = {**self._headers, "Content-Type": content_type}
        try:
            connection.request(method, _with_query(path, query), content, headers)
            response = connection.getresponse()
            answer: Json = json.loads(response.read())
        except BaseException:
            # Never sent again: after a lost answer only the test can know whether that is right.
            connection.close()
            raise
        self._idle.append((connection, time.monotonic()))
        if response.status >= 400:
            raise ApiError(f"{method} {path}", response.status, answer)
        return answer

    def _idle_connection(self) -> http.client.HTTPSConnection:
        """Return a connection for one call: that which was used last, or a new one."""
        try:
            connection, used = self._idle.pop()
        except IndexError:
            return self._connect(self._timeout_seconds)
        if time.monotonic() - used > _IDLE_SECONDS or _was_closed_by_server(connection):
            connection.close()  # the next request opens it again
        return connection

    def _connect(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, timeout=timeout_seconds, context=self._tls)


def _was_closed_by_server(connection: http.client.HTTPSConnection) -> bool:
    """Whether there is something to read, though nothing was asked: that is the end of the connection."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
