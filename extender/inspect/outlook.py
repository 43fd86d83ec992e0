"""What becomes of GPUs that are not healthy, as their agents say."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from extender.cluster.node_view import NodeView


class OutlookInfo(BaseModel):
    """Since when a GPU is not healthy, what comes next, and what a person can do; a value."""

    model_config = ConfigDict(frozen=True)

    since: datetime | None
    """`None` where it is not sick through itself: a person has taken it out, or it is suspect only."""
    next: str
    """What happens if nobody does anything."""
    until: datetime | None
    """When that is, where time alone brings it."""
    remedy: str
    """What a person can do; empty: nothing."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        since = f"since {written(self.since)}" if self.since else ""
        next_ = f"{self.next} at {written(self.until)}" if self.until else self.next
        return "; ".join(filter(None, (since, next_, f"to do: {self.remedy}" if self.remedy else "")))


def outlooks_of(view: NodeView) -> dict[str, OutlookInfo]:
    """Return GPU UUID → outlook, of those whose agent tells one."""
    status = view.payloads.status.value
    return {
        gpu.uuid: OutlookInfo(
            since=moment(gpu.sick_since),
            next=gpu.outlook.next,
            until=moment(gpu.outlook.until),
            remedy=gpu.outlook.remedy,
        )
        for gpu in (status.gpus if status else ())
        if gpu.outlook
    }


def written(moment: datetime | None) -> str:
    """Return a time as kubectl writes it; nothing for none.

    >>> written(datetime(2026, 11, 23, 9, 12, tzinfo=UTC))
    '2026-11-23T09:12:00Z'
    """
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def moment(seconds: int | None) -> datetime | None:
    """Return a time that an agent tells in seconds since the epoch."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
