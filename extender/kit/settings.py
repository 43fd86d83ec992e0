"""Types of settings. Each of them can also be read from text, as the environment and the command line give it."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.alias_generators import to_camel

from extender.kit.yaml_text import read_yaml_texts

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", re.ASCII)
Item = TypeVar("Item")
Key = TypeVar("Key")


def _seconds(value: object) -> object:
    if isinstance(value, float):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise ValueError("not a duration such as 500ms, 5s or 1m30s")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _duration(seconds: float) -> str:
    exact = Decimal(repr(seconds))
    milliseconds = exact * 1000
    is_short = 0 < exact < 1 and milliseconds == int(milliseconds)
    return f"{int(milliseconds)}ms" if is_short else f"{exact.normalize():f}s"


def _list(value: object) -> object:
    if not isinstance(value, str):
        return value
    return (
        read_yaml_texts(value) if value.lstrip().startswith("[") else [*filter(None, map(str.strip, value.split(",")))]
    )


def read_mapping(value: object) -> object:
    """Read YAML such as `{a: 1}`; return everything but text as it is."""
    return read_yaml_texts(value) if isinstance(value, str) else value


Seconds = Annotated[
    float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False), PlainSerializer(_duration, return_type=str)
]
"""Seconds, or none; written `500ms`, `5s`, `1m30s`."""
Duration = Annotated[Seconds, Field(gt=0)]
"""Seconds; written `500ms`, `5s`, `1m30s`."""
Bytes = Annotated[ByteSize, Field(gt=0), PlainSerializer(int, return_type=int)]
"""Bytes; written `65536` or `64KiB`."""
Items = Annotated[tuple[Item, ...], BeforeValidator(_list)]
"""A list; as text `a,b` or `[a, b]`."""
Names = Items[Annotated[str, Field(min_length=1)]]
"""A list of texts that are not empty."""
Table = Annotated[dict[Key, Item], BeforeValidator(read_mapping)]
"""A mapping; as text YAML, for example `{a: 1, b: 2}`."""


class Section(BaseModel):
    """Some settings that belong together; a value."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return read_mapping(value)
