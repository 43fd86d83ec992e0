"""What Nodes say by the words of other health agents."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from extender.cluster.objects.kinds import Node
from extender.config.health_words import KNOWN, HealthWord, WordKind

MAX_SIGNS: Final = 16
"""Of one node; those that close it come first."""
MAX_NAME_CHARACTERS: Final = 253
"""Of what a sign is called, and of its value; longer ones are nobody's."""
MAX_DETAIL_CHARACTERS: Final = 200


_NAME: Final = re.compile(rf"[A-Za-z0-9._/-]{{1,{MAX_NAME_CHARACTERS}}}")
"""The API server takes any text for the type of a condition, and a reason goes into kube-scheduler's events."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What one node says by one of the words."""

    kind: WordKind
    name: str
    value: str
    agent: str
    """Who says so, as far as the word tells."""
    detail: str = ""
    """Reason and message of a condition."""
    closes: str | None = None
    """The reason why the node is closed, if this closes it; the same for all nodes that this word closes."""

    @property
    def text(self) -> str:
        """What stands on the node.

        >>> Sign(WordKind.TAINT, "nvidia.com/gpu-xid-error", "true:NoSchedule", "NVSentinel").text
        'taint nvidia.com/gpu-xid-error=true:NoSchedule'
        """
        return f"{self.kind} {self.name}={self.value}"


class HealthWords:
    """Finds signs on nodes by the words that are known and those that an operator adds."""

    def __init__(self, more: Iterable[HealthWord] = ()) -> None:
        words = (*KNOWN, *more)
        self._conditions, self._labels, self._taints = (
            _Table(word for word in words if word.kind is kind)
            for kind in (WordKind.CONDITION, WordKind.LABEL, WordKind.TAINT)
        )

    def signs(self, node: Node) -> tuple[Sign, ...]:
        """Return what a node says, what closes it first; mostly nothing."""
        signs = [*self._signs(node)]
        return tuple(sorted(signs, key=lambda sign: (sign.closes is None, sign.kind, sign.name))[:MAX_SIGNS])

    def _signs(self, node: Node) -> Iterator[Sign]:
        for condition in node.status.conditions or ():
            if said := self._conditions.find(condition.type, condition.status):
                detail = ": ".join(filter(None, (condition.reason, condition.message)))
                yield _sign(said, condition.type, condition.status, detail[:MAX_DETAIL_CHARACTERS])
        labels = node.metadata.labels or {}
        for name in self._labels.of_interest(labels):
            if said := self._labels.find(name, labels[name]):
                yield _sign(said, name, labels[name])
        for taint in node.spec.taints or ():
            value = f"{taint.value or ''}:{taint.effect}"
            if said := self._taints.find(taint.key, value):
                yield _sign(said, taint.key, value)


class _Table:
    """Words of one kind, found by name in about a microsecond: nodes are read all the time, and mostly say nothing."""

    def __init__(self, words: Iterable[HealthWord]) -> None:
        self._literal = defaultdict[str, list[HealthWord]](list)
        self._patterns: list[HealthWord] = []
        for word in words:
            (self._patterns if "*" in word.name else self._literal[word.name]).append(word)
        self._any_pattern = re.compile("|".join(translate(word.name) for word in self._patterns) or r"(?!)")

    def find(self, name: str, value: str) -> list[HealthWord]:
        """Return the words that are said by this."""
        words = self._literal.get(name, [])
        if self._any_pattern.match(name):
            words = words + self._patterns
        said = [word for word in words if word.covers(name, value)]
        return said if said and _NAME.fullmatch(name) and len(value) <= MAX_NAME_CHARACTERS else []

    def of_interest(self, labels: Mapping[str, str]) -> Iterable[str]:
        """Return the labels that may be words: a node has a hundred, and mostly one name is looked for."""
        return labels if self._patterns else [name for name in self._literal if name in labels]


def _sign(said: Sequence[HealthWord], name: str, value: str, detail: str = "") -> Sign:
    agent = next((word.agent for word in said if word.agent), "")
    closes = next((word.reason(name) for word in said if word.closes), None)
    return Sign(said[0].kind, name, value, agent, detail, closes)
