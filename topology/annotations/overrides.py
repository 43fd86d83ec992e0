"""What people say of a node's GPUs, whatever the machine makes of them: cordoned, or well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from topology.annotations.payload import Moment, Schema, Text, Uuid, read, write


class Word(StrEnum):
    """What people can say of a GPU."""

    CORDONED = "cordoned"
    """It takes no new pods until somebody takes the word back; what runs on it goes on."""
    HEALTHY = "healthy"
    """It is well: what was told of it before counts no more. Said once; what is told later counts."""


@dataclass(frozen=True, slots=True)
class Override:
    """One word about one GPU."""

    word: Word
    why: str = ""
    by: str = ""
    until: int | None = None
    """Seconds since the epoch, from which on it counts as not said; `None`: until it is taken back."""
    at: int | None = None
    """When it was said, in the same seconds: the same word said later is another one."""

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"{self.word}{why}{f' ({self.by})' if self.by else ''}"


class _Override(Schema):
    word: Annotated[Word, Field(strict=False, alias="is")]
    why: Text | None = None
    by: Text | None = None
    until: Moment | None = None
    at: Moment | None = None


class _Overrides(Schema):
    gpus: Annotated[dict[Uuid, _Override], Field(max_length=128)]


def decode_overrides(text: str) -> dict[str, Override]:
    """Return UUID → what is said of that GPU; raises `PayloadError`."""
    found = read(_Overrides, text).gpus
    return {
        uuid: Override(each.word, each.why or "", each.by or "", each.until, each.at) for uuid, each in found.items()
    }


def encode_overrides(overrides: Mapping[str, Override]) -> str:
    """Return the payload; raises `PayloadError` where it could not be read again."""
    return write(_Overrides, {"gpus": {uuid: _said(overrides[uuid]) for uuid in sorted(overrides)}})


def _said(override: Override) -> dict[str, str | int]:
    parts = {
        "is": override.word.value,
        "why": override.why,
        "by": override.by,
        "until": override.until,
        "at": override.at,
    }
    return {key: value for key, value in parts.items() if value not in {"", None}}
