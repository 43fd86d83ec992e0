"""What all sections of the extender's configuration are made of: durations, sizes, and names as people write them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


def _seconds(value: object) -> object:
    if isinstance(value, float):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise ValueError("not a duration such as 500ms, 5s or 1m30s")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _duration(seconds: float) -> str:
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0), PlainSerializer(_duration, return_type=str)]
"""Seconds; written `500ms`, `5s`, `1m30s`."""
Bytes = Annotated[ByteSize, Field(gt=0), PlainSerializer(int, return_type=int)]
"""Bytes; written `65536` or `64KiB`."""


class Section(BaseModel):
    """Some settings that belong together; a value."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)
