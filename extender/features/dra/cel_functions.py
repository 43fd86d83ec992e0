"""Functions of Kubernetes' CEL environment that device selectors use: quantities, semantic versions, strings and patterns.

The library converts values to Python's, and knows no types of others. So a quantity is a mapping of one key with a fraction
as text, and a version one with its text. Both are canonical, so that equal values are equal mappings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, Final

from extender.cluster.objects import quantities
from extender.features.dra.cel_patterns import MAX_PATTERN_COST, pattern_cost

Value = dict[str, str]
"""A quantity or a version."""

RENAMED: Final[Mapping[str, str]] = {"matches": "matchesPattern", "size": "sizeOf"}
"""What functions are called here of which the library's own cannot be replaced: one is not bounded, one counts bytes."""
MAX_CALLS: Final = 64
"""In one evaluation."""
_QUANTITY, _SEMVER = "quantity", "semver"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?"
)


def quantity(text: str) -> Value:
    """Read a quantity; raises `ValueError`.

    >>> quantity("1Ki") == quantity("1024")
    True
    """
    sign, number = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    return _of_fraction(sign * quantities.quantity(number))


def semver(text: str, normalize: bool = False) -> Value:
    """Read a semantic version, which does not count what is after `+`; raises `ValueError`.

    >>> semver("v1.02", True), semver("1.2.3+build")
    ({'semver': '1.2.0'}, {'semver': '1.2.3'})
    """
    match = _VERSION.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        raise ValueError("not a semantic version")
    major, minor, patch, before = match.groups()
    return {_SEMVER: f"{major}.{minor}.{patch}" + (f"-{before}" if before else "")}


class Calls:
    """The functions for one evaluation, which end it when there are too many calls, or one fails.

    The library logs what a function raises. So none raises: the first failure is kept, and what is evaluated does not count.
    """

    def __init__(self) -> None:
        self.failure: str | None = None
        self._calls = self._cost = 0

    def functions(self, names: Container[str]) -> dict[str, Callable[..., Any]]:
        """Return the functions with these names, by name. One that is called on a value takes it as the first argument."""
        named = {**_FUNCTIONS, RENAMED["matches"]: self._matches}
        return {name: self._guarded(name, function) for name, function in named.items() if name in names}

    def _matches(self, text: str, pattern: str) -> bool:
        """Whether a text contains what a pattern describes."""
        self._cost += pattern_cost(pattern)
        if self._cost > MAX_PATTERN_COST:
            raise ValueError("the patterns are too expensive to compile")
        return bool(_pattern_program().execute({"text": text, "pattern": pattern}))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._calls += 1
            if self.failure is None and self._calls > MAX_CALLS:
                self.failure = f"more than {MAX_CALLS} calls of functions"
            if self.failure is not None:
                return False
            try:
                return function(*arguments)
            except Exception as error:
                self.failure = f"{name}: {error}"
                return False

        return call


def _normalized(text: str) -> str:
    """Return a short version with all three numbers and without leading zeros, as Kubernetes does."""
    parts = text.removeprefix("v").split(".", 2)
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise ValueError("a short version has no suffix")
    stripped = [re.sub(r"^0+(?=[0-9])", "", part) for part in parts]
    return ".".join([*stripped, "0", "0"][:3])


def _of_fraction(number: Fraction) -> Value:
    return {_QUANTITY: f"{number.numerator}/{number.denominator}"}


def _fraction(value: object) -> Fraction:
    if isinstance(value, Mapping) and _QUANTITY in value:
        return Fraction(value[_QUANTITY])
    raise TypeError("not a quantity")


def _amount(value: object) -> Fraction:
    return Fraction(value) if isinstance(value, int) else _fraction(value)


def _numbers(value: object) -> tuple[int, int, int]:
    if isinstance(value, Mapping) and _SEMVER in value:
        major, minor, patch = value[_SEMVER].partition("-")[0].split(".")
        return int(major), int(minor), int(patch)
    raise TypeError("not a version")


def _order(value: Mapping[str, str]) -> tuple[object, ...]:
    """Return what versions are sorted by: one before a release comes before it."""
    before = value[_SEMVER].partition("-")[2]
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".")] if before else []
    return _numbers(value), not before, parts


def _compare(left: Any, right: Any) -> int:
    if isinstance(left, Mapping) and _SEMVER in left:
        _numbers(right)
        first, second = _order(left), _order(right)
        return (first > second) - (first < second)
    one, other = _fraction(left), _fraction(right)
    return (one > other) - (one < other)


def _as_integer(value: Any) -> int:
    number = _fraction(value)
    if number.denominator != 1:
        raise ValueError("not an integer")
    return int(number)


@cache
def _pattern_program() -> Any:
    import cel  # see `selectors.load_library`

    return cel.compile("text.matches(pattern)")


def _of_library(name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        from cel import stdlib

        return getattr(stdlib, name)(*arguments)

    return call


def _is(read: Callable[..., Value]) -> Callable[..., bool]:
    def readable(*arguments: Any) -> bool:
        try:
            read(*arguments)
        except ValueError:
            return False
        return True

    return readable


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "quantity": quantity,
    "isQuantity": _is(quantity),
    "semver": semver,
    "isSemver": _is(semver),
    "compareTo": _compare,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "sign": lambda value: (_fraction(value) > 0) - (_fraction(value) < 0),
    "asInteger": _as_integer,
    "isInteger": lambda value: _fraction(value).denominator == 1,
    "asApproximateFloat": lambda value: float(_fraction(value)),
    "add": lambda left, right: _of_fraction(_fraction(left) + _amount(right)),
    "sub": lambda left, right: _of_fraction(_fraction(left) - _amount(right)),
    "major": lambda value: _numbers(value)[0],
    "minor": lambda value: _numbers(value)[1],
    "patch": lambda value: _numbers(value)[2],
    RENAMED["size"]: len,
    "lowerAscii": _of_library("lower_ascii"),
    "upperAscii": _of_library("upper_ascii"),
    "trim": _of_library("trim"),
    "substring": _of_library("substring"),
}
NAMES: Final = frozenset({*_FUNCTIONS, *RENAMED.values()})
