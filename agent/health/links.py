"""An NVLink that was down is used again only when it has stayed up for a while."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from agent.health.policy import Policy


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """What is remembered of one link; times in seconds."""

    is_down: bool = False
    up_since: float = -math.inf

    def told(self, is_down: bool, now: float) -> LinkRecord:
        """Return the record after one more look."""
        up_since = now if self.is_down and not is_down else self.up_since
        return replace(self, is_down=is_down, up_since=up_since)

    def is_usable(self, policy: Policy, now: float) -> bool:
        """Whether rings may use it."""
        return not self.is_down and now >= self.usable_at(policy)

    def usable_at(self, policy: Policy) -> float:
        """Return when it is used again, if it stays up; infinite while it is down."""
        return math.inf if self.is_down else self.up_since + policy.link_up
