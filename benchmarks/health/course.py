"""The course of each GPU's state under a sequence of facts, changes that time alone brings included."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.health.evidence import Uncorrected
from agent.health.links import LinkRecord
from agent.health.memory import HealthMemory, decode_memory, encode_memory
from agent.health.node import HealthMachine
from agent.health.policy import HealthPolicy
from agent.health.record import State
from benchmarks.health.facts import AgentRestarted, Fact, LinkFact


@dataclass(frozen=True, slots=True)
class StateChange:
    """From here on the state is this."""

    t: float
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class HealthTimeline:
    """All changes, by GPU, and by link as `GPU-GPU`."""

    gpus: dict[str, list[StateChange]]
    links: dict[str, list[StateChange]]


def follow(facts: Sequence[Fact], policy: HealthPolicy, until: float | None = None) -> HealthTimeline:
    """Return what the machine makes of the facts.

    Args:
        facts: in the order of their times.
        policy: the figures.
        until: how long time goes on, in seconds; without it, until nothing changes by itself any more.

    """
    following = _Following(facts, policy)
    end = math.inf if until is None else until
    for fact in facts:
        if fact.t > end:
            break
        following.wait(fact.t)
        following.take(fact)
    following.wait(end)
    return following.course


class _Following:
    def __init__(self, facts: Iterable[Fact], policy: HealthPolicy) -> None:
        facts = list(facts)
        names = {fact.gpu for fact in facts if fact.gpu}
        names |= {told.peer for fact in facts for told in fact.told if isinstance(told, LinkFact)}
        self._policy = policy
        self._health = HealthMachine(policy)
        self._health.has(sorted(names))
        for name in names:
            self._health.told(name, Uncorrected(0), 0.0)
        self._links: dict[str, LinkRecord] = {}
        self._now = facts[0].t if facts else 0.0
        self.course = HealthTimeline({name: [] for name in sorted(names)}, {})

    def wait(self, until: float) -> None:
        """Let time pass, with what it brings."""
        while (change := self._next_change()) <= until and change < math.inf:
            self._now = change
            self._note()
        if until < math.inf:
            self._now = until

    def take(self, fact: Fact) -> None:
        """Take in a fact, which is told now."""
        for told in fact.told:
            match told:
                case AgentRestarted():
                    memory = HealthMemory(
                        dict(self._health.records), links={name: {0: each} for name, each in self._links.items()}
                    )
                    kept = decode_memory(encode_memory(memory))
                    self._health = HealthMachine(self._policy, kept.gpus)
                    self._links = {name: links[0] for name, links in kept.links.items()}
                case LinkFact(peer, is_down):
                    name = "-".join(sorted((fact.gpu or "", peer)))
                    self._links[name] = self._links.get(name, LinkRecord()).told(is_down, self._now)
                    self.course.links.setdefault(name, [])
                case _:
                    for gpu in [fact.gpu] if fact.gpu else self.course.gpus:
                        self._health.told(gpu, told, self._now)
        self._note()

    def _next_change(self) -> float:
        links = (each.usable_at(self._policy) for each in self._links.values())
        return min((self._health.next_change(self._now), *(each for each in links if each > self._now)))

    def _note(self) -> None:
        for gpu, changes in self.course.gpus.items():
            verdict = self._health.verdict(gpu, self._now)
            _append(changes, StateChange(round(self._now, 2), verdict.state, verdict.reason), State.HEALTHY)
        for name, changes in self.course.links.items():
            link = self._links[name]
            state = "up" if link.is_usable(self._policy, self._now) else "down"
            reason = "" if state == "up" else "nvlink down" if link.is_down else "up again, not yet for long"
            _append(changes, StateChange(round(self._now, 2), state, reason), "up")


def _append(changes: list[StateChange], change: StateChange, first: str) -> None:
    if change.state != (changes[-1].state if changes else first):
        changes.append(change)
