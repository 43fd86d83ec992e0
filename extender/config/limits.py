"""What a caller may cost."""

from __future__ import annotations

from pydantic import ByteSize, Field

from extender.kit.settings import Bytes, Duration, Section


class LimitsSettings(Section):
    """What a caller may cost."""

    filter_body: Bytes = ByteSize(4 << 20)
    """Bytes of the body of a filter or prioritize; 5,000 names are about 0.3 MB."""
    bind_body: Bytes = ByteSize(64 << 10)
    """Bytes of the body of a bind, which names one pod."""
    receive: Duration = 10.0
    """Time for a whole request to come, from its first byte, or from connecting."""
    bodies: Bytes = ByteSize(64 << 20)
    """Bytes of all requests that are being received or wait; beyond that calls are refused with 429."""
    waiting: int = Field(default=64, ge=0)
    """Calls that may stand in line for filter, and as many for prioritize, behind the one that is worked on."""
    binds: int = Field(default=1024, ge=1)
    """Binds at once: kube-scheduler binds while it goes on scheduling, and a slow API server makes them many."""
