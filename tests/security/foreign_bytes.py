"""Bytes as nobody honest writes them: random, mutilated, nested too deep, in no encoding, with numbers beyond any bound."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

DEEP = 30_000
NUMBERS = (0, -1, 1.5, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 1e308, -1e308, 253_402_300_800)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(NUMBERS),
    st.sampled_from(["", "\x1b[31m", "\u202e", "\ud800", "9" * 5000, "٣", "2001-99-99", "0001-01-01T00:00:00+23:59"]),
    st.text(max_size=20),
)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ALWAYS = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b"\xff",
    b"\x00",
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b"9" * 5000,
    b'{"message":"\xff"}',
    b'{"\xff":1}',
    b'{"message":"\\ud800"}',
    b'{"a":1e999}',
    b"NaN",
    b"<html>\xff",
    b"2001-99-99",
    b"!!timestamp x",
    b"!!bool x",
    b"!!int ''",
)
"""Each of these has brought some reader down, here or elsewhere."""


@st.composite
def mutilated(draw: st.DrawFn, honest: bytes) -> bytes:
    """Return an honest text with some bytes exchanged, cut out or put in."""
    text = bytearray(honest)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 30)))
        text[start:end] = draw(
            st.sampled_from([b"", b"\xff", b"[" * DEEP, b"9" * 5000, b"1e999"]) | st.binary(max_size=4)
        )
    return bytes(text)


@st.composite
def disfigured(draw: st.DrawFn, honest: Any) -> Any:
    """Return an honest document with one value exchanged, anywhere in it."""
    if isinstance(honest, dict) and honest and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(honest)))
        return {**honest, key: draw(disfigured(honest[key]))}
    if isinstance(honest, list) and honest and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(honest) - 1))
        return [*honest[:at], draw(disfigured(honest[at])), *honest[at + 1 :]]
    return draw(DOCUMENTS)


def hostile(*honest: bytes) -> st.SearchStrategy[bytes]:
    """Return all of this, made from what an honest sender writes."""
    either = [st.sampled_from(ALWAYS), st.binary(max_size=200), DOCUMENTS.map(_text)]
    for text in honest:
        either.append(mutilated(text))
        try:
            either.append(disfigured(json.loads(text)).map(_text))
        except ValueError:  # it is another language
            continue
    return st.one_of(either)


def _text(document: Any) -> bytes:
    return json.dumps(document).encode()
