"""Reads the text of a CEL selector before it is compiled: what it reads of a device, and two macros.

What it may cost is in `cel_cost`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

from extender.features.dra.cel_cost import BIND, MAX_COST, cost_of, uses_maps
from extender.features.dra.cel_functions import RENAMED

MAX_TOKENS: Final = 1_000
"""Names, literals and signs, and characters that are not ASCII: compiling so many takes four milliseconds."""
_PART: Final = re.compile(
    r"""(?P<string>[rRbB]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<space>\s+|//[^\n]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<other>\d[\w.]*|&&|\|\||[=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_STRING: Final = re.compile(r"""(["'])([^\\"']*)\1""")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")

Kind = Literal["driver", "attributes", "capacity", "allowMultipleAllocations"]
_KINDS: Final[dict[str, Kind]] = {
    "driver": "driver",
    "attributes": "attributes",
    "capacity": "capacity",
    "allowMultipleAllocations": "allowMultipleAllocations",
}


class Reads(NamedTuple):
    """One thing of a device; of the driver without domain and name."""

    kind: Kind
    domain: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CelSource:
    """What is known of an expression from its text."""

    text: str
    """What the library compiles."""
    reads: frozenset[Reads] | None
    """All that it can read of a device; `None`: anything."""
    domains: frozenset[str]
    """Domains that are there even if a device has nothing of them."""
    cost: int
    """At most so much for one device, in the units of `MAX_COST`."""
    tokens: int
    uses_maps: bool
    """Whether it does more with a map of a device than to look into it."""


def read_source(expression: str) -> CelSource:
    """Read an expression; raises `ValueError` for one that is too long or too expensive, or not supported.

    >>> read_source('device.attributes["gpu.nvidia.com"].architecture == "Hopper"').reads
    frozenset({Reads(kind='attributes', domain='gpu.nvidia.com', name='architecture')})
    """
    tokens = (match.group() for match in _PART.finditer(expression) if match.lastgroup != "space")
    parts = [*islice(tokens, MAX_TOKENS + 1)]
    if len(parts) + sum(not sign.isascii() for sign in expression) > MAX_TOKENS:
        raise ValueError(f"more than {MAX_TOKENS} names, literals and signs")
    cost = cost_of(parts)
    if cost > MAX_COST:
        raise ValueError("too expensive: too many loops, calls or patterns, or over too much")
    text = " ".join(_expanded(parts))
    return CelSource(text, _reads(parts), _domains(parts), cost, len(parts), uses_maps(parts))


def _expanded(parts: Sequence[str]) -> list[str]:
    """Write `cel.bind(name, value, result)`, and functions that have other names here, for the library."""
    expanded, at = list[str](), 0
    while at < len(parts):
        if tuple(parts[at : at + 4]) == BIND:
            arguments, at = _arguments(parts, at + 4)
            if len(arguments) != 3:
                raise ValueError("cel.bind takes three arguments")
            name, value, result = map(_expanded, arguments)
            expanded += ["[", *value, "]", ".", "map", "(", *name, ",", *result, ")", "[", "0", "]"]
            continue
        is_called = parts[at + 1 : at + 2] == ["("]
        expanded.append(RENAMED.get(parts[at], parts[at]) if is_called else parts[at])
        at += 1
    return expanded


def _arguments(parts: Sequence[str], at: int) -> tuple[list[list[str]], int]:
    """Split the arguments of a call, from behind its parenthesis on; returns where it ends, too."""
    arguments, depth = [list[str]()], 0
    for position in range(at, len(parts)):
        part = parts[position]
        if depth == 0 and part in _CLOSING:
            return arguments, position + 1
        if depth == 0 and part == ",":
            arguments.append([])
            continue
        depth += (part in _OPENING) - (part in _CLOSING)
        arguments[-1].append(part)
    raise ValueError("a call does not end")


def _reads(parts: Sequence[str]) -> frozenset[Reads] | None:
    reads = set[Reads]()
    for at, part in enumerate(parts):
        if part != "device" or (at and parts[at - 1] == "."):
            continue
        kind = _KINDS.get(parts[at + 2]) if parts[at + 1 : at + 2] == ["."] and at + 2 < len(parts) else None
        if kind in ("driver", "allowMultipleAllocations"):
            reads.add(Reads(kind))
            continue
        domain, name = _literal(parts, at + 3), _name(parts, at + 6)
        if kind is None or domain is None or name is None:
            return None
        reads.add(Reads(kind, domain, name))
    return frozenset(reads)


def _literal(parts: Sequence[str], at: int) -> str | None:
    """Return the text within `["…"]`."""
    if len(parts) < at + 3 or parts[at] != "[" or parts[at + 2] != "]":
        return None
    match = _PLAIN_STRING.fullmatch(parts[at + 1])
    return match[2] if match else None


def _name(parts: Sequence[str], at: int) -> str | None:
    """Return the name within `["…"]`, or behind a dot if it is not called."""
    if parts[at : at + 1] == ["["]:
        return _literal(parts, at)
    if len(parts) < at + 2 or parts[at] != "." or parts[at + 2 : at + 3] == ["("]:
        return None
    return parts[at + 1] if parts[at + 1].isidentifier() else None


def _domains(parts: Sequence[str]) -> frozenset[str]:
    """Return the domains that are named. None, where it is looked up whether a device has a domain."""
    domains = set[str]()
    for at, part in enumerate(parts):
        if part not in ("attributes", "capacity"):
            continue
        is_looked_up = list(parts[max(0, at - 3) : at]) == ["in", "device", "."]
        if is_looked_up and parts[at + 1 : at + 2] != ["["]:
            return frozenset()
        domain = _literal(parts, at + 1)
        if domain is not None:
            domains.add(domain)
    return frozenset(domains)
