"""Limits for callers."""

from __future__ import annotations

from pydantic import ByteSize, Field

from extender.kit.settings import Bytes, Duration, Section


class LimitsSettings(Section):
    """Limits for callers."""

    filter_body: Bytes = ByteSize(4 << 20)
    """Maximum body of filter and prioritize. 5,000 names are about 0.3 MB."""
    bind_body: Bytes = ByteSize(64 << 10)
    """Maximum body of bind."""
    receive: Duration = 10.0
    """Deadline for receiving a request."""
    bodies: Bytes = ByteSize(64 << 20)
    """Maximum size of all pending requests. Beyond it, calls get 429."""
    waiting: int = Field(default=64, ge=0)
    """Maximum number of calls that wait for filter, and for prioritize."""
    binds: int = Field(default=1024, ge=1)
    """Maximum number of concurrent binds. A slow API server makes them many."""
