"""Random values: extreme numbers, long and strange texts, quantities, times, and documents that are wrong in a few places.

All of them are values that the API server takes. What they mean to the extender is not known here.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from datetime import UTC, datetime
from math import exp, log
from random import Random
from typing import Any

Draw = Callable[[Random], str]
"""Makes one value of a field."""

EXTREMES = (0, 1, -1, 2**15, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**18, 10**30, 10**300)
NO_NUMBERS = ("", "-0", "1.5", "1e9", "1E400", "nan", "inf", "0x1f", "٣", " 1", "1_000", "9" * 300)
SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
LETTERS = string.ascii_lowercase + string.digits
STRANGE = 'aZ0*?[]!{}<>&"\\/,.:;=- \t\n\x00\x1b\x7f\u202e\u200b\u0660é中😀'
LONGEST_NAME = 253
LONGEST_LABEL = 63
LONGEST_TEXT = 4096
DEEPEST = 2000


def log_uniform(random: Random, least: int, most: int) -> int:
    """Return a whole number of any magnitude: as many below 100 as between 100 and 10,000."""
    return min(most, int(exp(random.uniform(log(least), log(most + 1)))))


def number(random: Random) -> int:
    """Return a small number, one of any magnitude, or an extreme one, or one next to it."""
    match random.randrange(4):
        case 0:
            return random.randrange(-2, 100)
        case 1:
            return log_uniform(random, 1, 10**18)
        case _:
            return random.choice(EXTREMES) + random.choice((-1, 0, 0, 1))


def count(random: Random) -> str:
    """Return what mostly is a number above 0."""
    return str(log_uniform(random, 1, 10**12)) if random.random() < 0.9 else odd(random)


def few(random: Random) -> str:
    """Return what mostly is a number that a machine has of something."""
    match random.randrange(10):
        case 0:
            return odd(random)
        case 1 | 2 | 3:
            return "1"
        case _:
            return str(log_uniform(random, 1, 100))


def quantity(random: Random) -> str:
    """Return an amount as Kubernetes writes it."""
    return f"{log_uniform(random, 1, 10**6)}{random.choice(SUFFIXES)}" if random.random() < 0.9 else odd(random)


def odd(random: Random) -> str:
    """Return what may be no number at all."""
    return random.choice(NO_NUMBERS) if random.random() < 0.5 else str(number(random))


def label(random: Random, most: int = LONGEST_LABEL) -> str:
    """Return a name of lower-case letters and digits, often as long as may be."""
    length = most if random.random() < 0.3 else log_uniform(random, 1, most)
    return "".join(random.choices(LETTERS, k=length))


def text(random: Random) -> str:
    """Return any text that JSON can hold, perhaps nested deeply."""
    match random.randrange(4):
        case 0:
            return random.choice(('{"a":', "[", "(", "*", "<a>")) * log_uniform(random, 1, DEEPEST)
        case 1:
            return label(random)
        case _:
            return "".join(random.choices(STRANGE, k=log_uniform(random, 1, LONGEST_TEXT)))


def globs(random: Random) -> str:
    """Return a list of patterns, often as long as may be."""
    letters = random.choice((LETTERS, LETTERS + "*?", "a*?[]-", STRANGE.replace(",", "")))
    most = LONGEST_NAME if random.random() < 0.5 else log_uniform(random, 1, LONGEST_NAME)
    parts = ("".join(random.choices(letters, k=log_uniform(random, 1, 8))) for _ in range(most // 2))
    return ",".join(f"{part}{random.choice('*?a')}" for part in parts)[:most].strip(", ") or "*"


def one_of(*words: str) -> Draw:
    """Return a draw of what mostly is one of these words."""
    return lambda random: random.choice(words) if random.random() < 0.9 else text(random)


def moment(random: Random) -> str:
    """Return a time as the API writes it, from the first year to the last."""
    seconds = random.choice((0, 1, 1.8e9, 4e9, 2.5e11, random.uniform(-6e10, 2.5e11)))
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def next_to(value: str, step: int) -> str:
    """Return a value that differs by a little: its first number is `step` higher, or it ends otherwise and is as long."""
    digits = len(value) - len(value.lstrip(string.digits))
    if 0 < digits < LONGEST_LABEL:
        return f"{int(value[:digits]) + step}{value[digits:]}"
    return f"{value[: -len(str(step))]}{step}"


def damaged(random: Random, document: str, others: tuple[str, ...]) -> str:
    """Return a JSON document that differs in some places: another value, one of another document, or nothing."""
    parsed, donors = json.loads(document), [leaf for donor in others for _, _, leaf in leaves(json.loads(donor))]
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if not (places := list(leaves(parsed))):
            break
        holder, key, value = random.choice(places)
        if random.random() < 0.1:
            del holder[key]
        else:
            holder[key] = _another(random, value, donors)
    return json.dumps(parsed)


def _another(random: Random, value: object, donors: list[Any]) -> object:
    """Return a value in the place of another one, more often than not of its type."""
    kind = type(value) if random.random() < 0.8 else random.choice((int, str, bool, list, dict))
    if kind is int:
        return number(random)
    if kind is str:
        alike = [donor for donor in donors if isinstance(donor, str)]
        return random.choice(alike) if alike and random.random() < 0.5 else text(random)
    if kind is bool:
        return not value
    nested: object = random.choice((None, [], {}, number(random)))
    for _ in range(log_uniform(random, 1, 100)):
        nested = [nested] if kind is list else {"a": nested}
    return nested


def leaves(document: Any) -> Iterator[tuple[MutableMapping[Any, Any] | MutableSequence[Any], Any, Any]]:
    """Yield each value that is no list and no object, and the empty ones, with what holds it."""
    keys = document.keys() if isinstance(document, dict) else range(len(document))
    for key in list(keys):
        value = document[key]
        if isinstance(value, dict | list) and value:
            yield from leaves(value)
        else:
            yield document, key, value
