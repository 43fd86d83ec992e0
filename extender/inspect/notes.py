"""What features say of a pod, as a value with a JSON form."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class PodNote(BaseModel):
    """A sentence of one feature about one pod; a value."""

    model_config = ConfigDict(frozen=True)

    feature: str
    line: str
    is_problem: bool = False
    """The pod waits in vain until somebody changes something."""
