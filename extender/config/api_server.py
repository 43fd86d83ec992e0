"""How the extender reaches the API server, and how it watches objects."""

from __future__ import annotations

from pathlib import Path

from pydantic import ByteSize, Field, model_validator

from extender.kit.settings import Bytes, Duration, Section


class KubernetesSettings(Section):
    """How to reach the API server."""

    kubeconfig: Path | None = None
    """Not set: the pod's service account."""
    context: str | None = None
    """Of the kubeconfig; not set: its current one."""
    request_timeout: Duration = 10.0
    """For list pages, events and releases; a bind has its own deadline."""
    connections: int = Field(default=32, ge=1)
    """Connections to the API server: at most so many for lists and watches, and as many again for single requests."""


class WatchSettings(Section):
    """How the caches are kept. The API server sends a bookmark two seconds before it ends a watch."""

    page_size: int = Field(default=500, ge=1)
    """Objects that a list is asked for at once."""
    stream: Duration = 50.0
    """After this long the server ends a watch, and we go on from where it was."""
    silence: Duration = 55.0
    """A stream without a byte for this long is dead, whatever TCP says."""
    max_line: Bytes = ByteSize(12 << 20)
    """Bytes of one object that was changed. A larger one is passed over; etcd holds none, unless told to take requests of more
    than 1.5 MiB."""
    max_page: Bytes = ByteSize(16 << 20)
    """Bytes of one page of a list. What is larger is asked for in smaller pages; one object that is larger is passed over."""
    backoff: Duration = 0.1
    """After a failure, until the next try; doubled each time."""
    max_backoff: Duration = 5.0
    """The longest pause between two tries."""

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
