"""How the extender reaches the API server, and how it watches objects."""

from __future__ import annotations

from pathlib import Path

from pydantic import ByteSize, Field, model_validator

from extender.kit.settings import Bytes, Duration, Section


class KubernetesSettings(Section):
    """Connection to the API server."""

    kubeconfig: Path | None = None
    """Default: the pod's service account."""
    context: str | None = None
    """Context of the kubeconfig. Default: its current one."""
    request_timeout: Duration = 10.0
    """Deadline of list pages and events. A bind has its own."""
    connections: int = Field(default=32, ge=1)
    """Maximum connections for lists and watches, and again for single requests."""


class WatchSettings(Section):
    """Lists and watches of the API server."""

    page_size: int = Field(default=500, ge=1)
    """Objects in one page of a list."""
    stream: Duration = 50.0
    """Time after which the API server ends a watch. The extender then resumes it."""
    silence: Duration = 55.0
    """A watch without a byte for this time is restarted. Must be longer than `stream`."""
    max_line: Bytes = ByteSize(12 << 20)
    """Maximum size of one object in a watch. Larger objects are skipped and counted. etcd's default limit is 1.5 MiB."""
    max_page: Bytes = ByteSize(16 << 20)
    """Maximum size of one page of a list. Must be larger than `maxLine`."""
    backoff: Duration = 0.1
    """Pause after a failure, doubled each time."""
    max_backoff: Duration = 5.0
    """Longest pause."""

    @model_validator(mode="after")
    def _lists_what_it_watches(self) -> WatchSettings:
        if self.max_page <= self.max_line:
            raise ValueError("maxPage must be larger than maxLine, or what the watch tells cannot be listed")
        return self

    @model_validator(mode="after")
    def _hears_the_bookmark(self) -> WatchSettings:
        if self.silence <= self.stream:
            raise ValueError("silence must be longer than stream, or quiet clusters look dead")
        return self
