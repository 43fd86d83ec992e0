"""Query strings of pages: what is not understood is refused with its name and the reason, and all of it is bounded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from starlette.datastructures import QueryParams

MAX_CHARACTERS: Final = 253
"""Of a value: no name in Kubernetes is longer."""
MAX_QUERY_CHARACTERS: Final = 2048
MAX_DIGITS: Final = 15
"""Of a number."""


class BadQuery(ValueError):
    """A query that cannot be answered; names the parameter and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


def fields_of(query: QueryParams, known: Collection[str]) -> dict[str, str]:
    """Return the parameters that are not empty; raises `BadQuery` for another name, a repeated one, or a long value."""
    fields = dict[str, str]()
    for name, value in query.multi_items():
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise BadQuery(name[:MAX_CHARACTERS], f"is no parameter of this page; expected: {expected}")
        if name in fields:
            raise BadQuery(name, "is given twice")
        if len(value) > MAX_CHARACTERS:
            raise BadQuery(name, f"has more than {MAX_CHARACTERS} characters")
        fields[name] = value
    return {name: value for name, value in fields.items() if value}


def number(fields: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """Return a whole number, `None` where it is not given; raises `BadQuery`."""
    text = fields.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS) or not least <= int(text) <= most:
        raise BadQuery(name, f"expected a whole number from {least} to {most}")
    return int(text)


def choice(fields: Mapping[str, str], name: str, choices: Collection[str], default: str) -> str:
    """Return one of the words that a parameter may have; raises `BadQuery`."""
    word = fields.get(name, default)
    if word != default and word not in choices:
        raise BadQuery(name, f"expected one of {', '.join(choices)}")
    return word


def position(fields: Mapping[str, str], name: str = "after") -> tuple[int, str] | None:
    """Return where a page of a list begins, as `written` wrote it; raises `BadQuery`."""
    text = fields.get(name)
    if text is None:
        return None
    figure, colon, key = text.partition(":")
    digits = figure.removeprefix("-")
    if not colon or not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise BadQuery(name, "expected NUMBER:NAME, as the link to the next page has it")
    return int(figure), key


def written(place: tuple[int, str]) -> str:
    """Return a place in a list as a parameter.

    >>> position({"after": written((-4, "n1"))})
    (-4, 'n1')
    """
    return f"{place[0]}:{place[1]}"
