"""Reads facts about GPUs over time: one JSON object a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.health.evidence import (
    Back,
    Booted,
    Cleared,
    Cordoned,
    Corrected,
    Evidence,
    LinkErrors,
    Lost,
    Margin,
    RecoveryAction,
    RecoveryRequested,
    Reloaded,
    RemapFailed,
    Replays,
    SramExceeded,
    Throttled,
    Uncorrected,
    WithoutSpares,
    Xid,
)


class UnreadableFact(ValueError):
    """A line is no fact; says which, and why."""


@dataclass(frozen=True, slots=True)
class LinkFact:
    """A link to a peer went down, or came up."""

    peer: str
    is_down: bool


@dataclass(frozen=True, slots=True)
class AgentRestarted:
    """The agent went, and another one began with what it had kept."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was told at a time."""

    t: float
    """Seconds."""
    gpu: str | None
    """`None`: the node, and so each of its GPUs."""
    told: tuple[Evidence | LinkFact | AgentRestarted, ...]


def read_facts(path: Path) -> list[Fact]:
    """Return the facts of a file in their order; raises `UnreadableFact` and `OSError`."""
    facts: list[Fact] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            fact = _fact(msgspec.json.decode(line))
            if facts and fact.t < facts[-1].t:
                raise UnreadableFact(f"t {fact.t:g} is before the line above, {facts[-1].t:g}")
        except (msgspec.DecodeError, UnreadableFact) as error:
            raise UnreadableFact(f"{path}, line {number}: {error}") from error
        facts.append(fact)
    return facts


def _fact(line: object) -> Fact:
    if not isinstance(line, dict):
        raise UnreadableFact("is no JSON object")
    t, gpu = line.get("t"), line.get("gpu")
    if not isinstance(t, int | float) or isinstance(t, bool) or not math.isfinite(t):
        raise UnreadableFact("has no t in seconds")
    if gpu is not None and not (isinstance(gpu, str) and gpu):
        raise UnreadableFact("gpu is no name")
    told = {key: value for key, value in line.items() if key not in {"t", "gpu"}}
    if len(told) != 1:
        raise UnreadableFact(f"tells {len(told)} things in place of one: {', '.join(sorted(told)) or 'nothing'}")
    ((key, value),) = told.items()
    if key not in _READERS:
        raise UnreadableFact(f"{key} is none of {', '.join(_READERS)}")
    if gpu is None and key in {"nvlink_down", "nvlink_up"}:
        raise UnreadableFact(f"{key} needs a gpu")
    try:
        evidence = tuple(_READERS[key](value))
    except (TypeError, ValueError) as error:
        raise UnreadableFact(f"{key}: {error}") from error
    return Fact(float(t), gpu, evidence)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no whole number of at least 0")
    return value


def _rate(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no rate")
    return float(value)


def _degrees(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number of degrees")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name of a GPU")
    return value


def _if_true(value: object, evidence: Evidence | AgentRestarted) -> Iterator[Evidence | AgentRestarted]:
    """Yield the evidence unless the fact says `false`: that it did not happen."""
    if value is not None and value is not False:
        yield evidence


def _override(value: object) -> Iterator[Evidence]:
    match value:
        case "healthy":
            yield Cleared()
            yield Cordoned("")
        case "cordoned":
            yield Cordoned("cordoned")
        case None:
            yield Cordoned("")
        case _:
            raise ValueError(f"{value!r} is none of healthy, cordoned, null")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


_READERS: Final[dict[str, Callable[[Any], Iterator[Evidence | LinkFact | AgentRestarted]]]] = {
    "xid": lambda value: iter((Xid(_count(value)),)),
    "recovery_action": lambda value: iter(
        (RecoveryRequested(None if value is None else RecoveryAction(_count(value))),)
    ),
    "lost": lambda value: _if_true(value, Lost()),
    "back": lambda value: _if_true(value, Back()),
    "ecc_uncorrected": lambda value: iter((Uncorrected(_count(value)),)),
    "remap_failure": lambda value: _if_true(value, RemapFailed()),
    "sram_threshold": lambda value: _if_true(value, SramExceeded()),
    "ecc_corrected_per_second": lambda value: iter((Corrected(_rate(value)),)),
    "banks_without_spares": lambda value: iter((WithoutSpares(_count(value)),)),
    "nvlink_errors_per_second": lambda value: iter((LinkErrors(_rate(value)),)),
    "pcie_replays_per_minute": lambda value: iter((Replays(_rate(value)),)),
    "temperature_margin": lambda value: iter((Margin(_degrees(value)),)),
    "nvlink_down": lambda value: iter((LinkFact(_name(value), is_down=True),)),
    "nvlink_up": lambda value: iter((LinkFact(_name(value), is_down=False),)),
    "throttled": lambda value: iter((Throttled(_flag(value)),)),
    "agent_restart": lambda value: _if_true(value, AgentRestarted()),
    "driver_reload": lambda value: _if_true(value, Reloaded()),
    "boot": lambda value: _if_true(value, Booted()),
    "override": _override,
}
