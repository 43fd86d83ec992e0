"""What a CEL selector may cost at most, by its text. The library evaluates without a limit, and copies lists and maps.

So loops and values that grow are bounded by the text, and maps of a device, which are large, go nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.features.dra.cel_functions import NAMES, RENAMED
from extender.features.dra.cel_patterns import UNKNOWN_PATTERN, literal_pattern, pattern_cost

MAX_COST: Final = 12_000
"""Of all selectors of a pod for one device, in units of about a tenth of a microsecond."""
_EXPRESSION_COST: Final = 300
"""Of any expression, whatever it says."""
_CALL_COST: Final = 150
"""Of a function that is not the library's own, and of `cel.bind`; texts are converted for it."""
_PATTERN_COST: Final = 50
"""Of each unit of a pattern's cost."""
_ITERATED: Final = 32
"""Elements that a list or map of a device has at most, as Kubernetes limits attributes."""
_ACCUMULATING: Final = frozenset({"filter", "map"})
"""They copy what they have for each element."""
_OURS: Final = NAMES | RENAMED.keys()
LOOPS: Final = frozenset({"all", "exists", "exists_one", "existsOne"}) | _ACCUMULATING
BIND: Final = ("cel", ".", "bind", "(")
_VALUE: Final = 3
"""Fields from a device to a value: kind, domain and name."""
_SCALARS: Final = frozenset({"driver", "allowMultipleAllocations"})


def cost_of(parts: Sequence[str]) -> int:
    """Return a bound on the cost of an evaluation for one device; raises `ValueError` for a pattern that is not supported.

    Each `cel.bind` and each list that is made multiplies what it is made of, at most by its pluses and commas.
    """
    loops = [at for at, part in enumerate(parts) if part in LOOPS and _is_called(parts, at)]
    made = sum(parts[at] in _ACCUMULATING for at in loops)
    binds = sum(tuple(parts[at : at + 4]) == BIND for at in range(len(parts)))
    lists, commas, literals = _lists(parts)
    growth: int = (parts.count("+") + commas + 1) ** (binds + made)
    elements = commas + lists
    if not all(at - 2 in literals for at in loops):
        elements = (elements + _ITERATED) * growth
    passes: int = max(1, elements) ** (len(loops) + made)
    longest = max((len(part) for part in parts if part[-1] in "\"'"), default=0)
    weight = sum(_weight(parts, at, longest) for at in range(len(parts)))
    weight += binds * _CALL_COST + parts.count("+") * (lists + commas)
    return _EXPRESSION_COST + weight * growth * passes


def uses_maps(parts: Sequence[str]) -> bool:
    """Whether a device or a map of it is used as a value: copying and converting it takes long.

    It may have its fields read, be looped over or searched by `in`, and be named by `cel.bind`.
    """
    passed = {"device": 0}
    for at, part in enumerate(parts):
        if part not in passed or parts[at - 1 : at] == ["."] or tuple(parts[max(0, at - 4) : at]) == BIND:
            continue
        end, depth = _path(parts, at + 1, passed[part])
        before, after = [*parts[max(0, at - 2) : at]], [*parts[end : end + 2]]
        is_bound = tuple(parts[max(0, at - 6) : max(0, at - 2)]) == BIND and before[-1:] == [","] and after[:1] == [","]
        is_searched = before[-1:] == ["in"] or before == ["has", "("]
        is_looped = after[:1] == ["."] and after[1:] and after[1] in LOOPS
        if depth >= _VALUE or is_searched or is_looped:
            continue
        if not is_bound:
            return True
        passed[before[0]] = depth
    return False


def _lists(parts: Sequence[str]) -> tuple[int, int, set[int]]:
    """Return how many lists and maps are written, how many commas these have, and where the lists end."""
    lists, commas, ends = 0, 0, set[int]()
    opened = list[bool]()  # brackets, each whether it is of a list or a map
    for at, part in enumerate(parts):
        if part in ("(", "[", "{"):
            opened.append(part == "{" or (part == "[" and not _is_indexed(parts, at)))
            lists += opened[-1]
        elif part in (")", "]", "}") and opened:
            if opened.pop() and part == "]":
                ends.add(at)
        elif part == ",":
            commas += opened[-1:] == [True]
    return lists, commas, ends


def _is_indexed(parts: Sequence[str], at: int) -> bool:
    """Whether a value is before a bracket."""
    before = parts[at - 1] if at else ""
    return before != "in" and (before[-1:].isalnum() or before[-1:] in tuple("_)]}\"'"))


def _weight(parts: Sequence[str], at: int, longest: int) -> int:
    part = parts[at]
    if not (part in _OURS and _is_called(parts, at)):
        return len(part)
    weight = len(part) + _CALL_COST + longest
    if part not in ("matches", RENAMED["matches"]):
        return weight
    pattern = literal_pattern(parts[at + 2]) if [*parts[at + 3 : at + 4]] == [")"] else None
    return weight + _PATTERN_COST * (UNKNOWN_PATTERN if pattern is None else pattern_cost(pattern))


def _is_called(parts: Sequence[str], at: int) -> bool:
    return [*parts[at + 1 : at + 2]] == ["("]


def _path(parts: Sequence[str], at: int, depth: int) -> tuple[int, int]:
    """Follow the fields that are read after a name; return where they end, and how many there are from the device on."""
    while True:
        if [*parts[at : at + 1]] == ["["]:
            opened, at = 1, at + 1
            while at < len(parts) and opened:
                opened += (parts[at] == "[") - (parts[at] == "]")
                at += 1
            depth += 1
        elif [*parts[at : at + 1]] == ["."] and at + 1 < len(parts) and not _is_called(parts, at + 1):
            depth = _VALUE if depth == 0 and parts[at + 1] in _SCALARS else depth + 1
            at += 2
        else:
            return at, depth
