"""Read JSON that nobody vouches for, and write JSON that everybody can read.

Size comes first, then form, then version, then schema. One value has one spelling: fixed key order, no blanks, ASCII. Every
refusal is a `PayloadError` with the JSON path of what is wrong. Keys that this version does not know are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from topology.errors import PayloadError, UnsupportedVersion

VERSION: Final = 1
MAX_BYTES: Final = 32 * 1024
"""Of one payload, as UTF-8; all annotations of a node share Kubernetes' 256 KiB."""


class Schema(BaseModel):
    """Base of every payload part: no coercion (`true` is no number, `1.0` no integer), unknown keys passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control, bidirectional or unassigned characters")
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=253), AfterValidator(_printable)]
"""A name or a reason; 253 is Kubernetes' longest name."""
Uuid = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,96}$")]
"""NVML's or Kubernetes': visible ASCII."""
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999, after which calendars have no dates."""
Moment = Annotated[int, Field(ge=0, le=LAST_SECOND)]
"""Seconds since the epoch."""

S = TypeVar("S", bound=Schema)


def read(schema: type[S], text: str | bytes, max_bytes: int = MAX_BYTES) -> S:
    """Return `text` as `schema`, or raise `PayloadError`; `UnsupportedVersion` when only its version is strange."""
    document = _parse(text, max_bytes)
    if not isinstance(document, dict):
        raise PayloadError("$", "not a JSON object")
    if "v" not in document:
        raise PayloadError("$.v", "no version")
    version = document["v"]
    if type(version) is not int:
        raise PayloadError("$.v", "the version is not an integer")
    if version != VERSION:
        raise UnsupportedVersion("$.v", f"only version {VERSION} is understood")
    return _validate(schema, document)


def read_part(schema: type[S], part: Any, path: str) -> S:
    """Return a part of what was read, which stands at `path`, as `schema`; raises `PayloadError`."""
    if not isinstance(part, dict):
        raise PayloadError(path, "not a JSON object")
    try:
        return _validate(schema, part)
    except PayloadError as error:
        raise PayloadError(path + error.path.removeprefix("$"), error.reason) from error


def write(schema: type[Schema], payload: dict[str, Any], max_bytes: int = MAX_BYTES) -> str:
    """Return the canonical text of `payload`; raises `PayloadError` for anything that `read` would refuse."""
    document = {"v": VERSION, **payload}
    _validate(schema, document)
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    check_size(text, max_bytes)
    return text


def known(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of it: absence says the same as `None`."""
    return {name: value for name, value in said.items() if value is not None}


def check_size(text: str | bytes, max_bytes: int = MAX_BYTES) -> None:
    """Raise `PayloadError` for what is too long to be looked into; a text has at least as many bytes as characters."""
    if len(text) > max_bytes:
        raise PayloadError("$", f"larger than {max_bytes} bytes")


def _parse(text: str | bytes, max_bytes: int) -> Any:
    check_size(text, max_bytes)  # the cheap test comes first
    try:
        raw = text.encode() if isinstance(text, str) else text
        check_size(raw, max_bytes)
        return _DECODER.decode(raw.decode())
    except UnicodeError as error:
        raise PayloadError("$", "not UTF-8") from error
    except json.JSONDecodeError as error:
        raise PayloadError("$", f"not JSON: {error.msg.lower()} at character {error.pos}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise PayloadError("$", "a number too long to read") from error
    except RecursionError as error:
        raise PayloadError("$", "nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise PayloadError("$", "the same key twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise PayloadError("$", f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _validate(schema: type[S], document: dict[str, Any]) -> S:
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        raise PayloadError(_path(first["loc"]), reason[:1].lower() + reason[1:]) from error


def _path(location: tuple[int | str, ...]) -> str:
    return "$" + "".join(map(_step, location))


def _step(part: int | str) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if part.isascii() and part.isidentifier() and len(part) <= 64:
        return f".{part}"
    return f"[{ascii(part)[:64]}]"
