"""The words by which other health agents say on a Node that its GPUs are sick, and what a node says by them.

They name no GPU. So they are shown, and close a node only where an operator says so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase, translate
from typing import Final

from extender.cluster.objects.kinds import Node

MAX_SIGNS: Final = 16
"""Of one node; those that close it come first."""
MAX_NAME_CHARACTERS: Final = 253
"""Of what a sign is called, and of its value; longer ones are nobody's."""
MAX_DETAIL_CHARACTERS: Final = 200


_NAME: Final = re.compile(rf"[A-Za-z0-9._/-]{{1,{MAX_NAME_CHARACTERS}}}")
"""The API server takes any text for the type of a condition, and a reason goes into kube-scheduler's events."""


class Kind(StrEnum):
    """Where a word stands on a Node."""

    CONDITION = "condition"
    LABEL = "label"
    TAINT = "taint"


@dataclass(frozen=True, slots=True)
class Word:
    """What is looked for on a Node; `*` in a name or a value stands for anything."""

    kind: Kind
    name: str
    value: str = "*"
    """Status of a condition, value of a label, value and effect of a taint (`true:NoSchedule`)."""
    agent: str = ""
    """Who says it."""

    closes: bool = False
    """Whether a node that says it takes no new pods."""

    def covers(self, name: str, value: str) -> bool:
        """Whether this is what was looked for."""
        return fnmatchcase(name, self.name) and fnmatchcase(value, self.value)

    def reason(self, name: str) -> str:
        """Return why a node that says it is closed.

        What differs from node to node is left out, for kube-scheduler counts equal reasons.

        >>> Word(Kind.LABEL, "example.com/sick", "since-*").reason("example.com/sick")
        'closed by label example.com/sick'
        """
        value = "" if "*" in self.value else f"={self.value}"
        return f"closed by {self.kind} {name}{value}"


KNOWN: Final = (
    Word(Kind.CONDITION, "Gpu*Watch", "True", "NVSentinel"),
    Word(Kind.CONDITION, "SysLogs*", "True", "NVSentinel"),
    Word(Kind.CONDITION, "NVSwitch*", "True", "NVSentinel"),
    Word(Kind.CONDITION, "MultipleRemediations", "True", "NVSentinel"),
    Word(Kind.LABEL, "dgxc.nvidia.com/nvsentinel-state", "*", "NVSentinel"),
    Word(Kind.TAINT, "nvidia.com/gpu-error", "*", "NVSentinel"),
    Word(Kind.TAINT, "nvidia.com/gpu-xid-error", "*", "NVSentinel"),
    Word(Kind.TAINT, "nvidia.com/gpu-nvlink-error", "*", "NVSentinel"),
    Word(Kind.TAINT, "nvidia.com/syslog-xid-error", "*", "NVSentinel"),
    Word(Kind.CONDITION, "XidCriticalError", "True", "GKE"),
    Word(Kind.CONDITION, "GPUMissing", "True", "AKS"),
    Word(Kind.CONDITION, "NVLinkStatusInactive", "True", "AKS"),
    Word(Kind.CONDITION, "XIDErrors", "True", "AKS"),
    Word(Kind.CONDITION, "IBLinkFlapping", "True", "AKS"),
    Word(Kind.CONDITION, "AcceleratedHardwareReady", "False", "EKS"),
    Word(Kind.CONDITION, "NebiusGPUError", "True", "Nebius"),
)
"""Of the health agents that are common in 2026."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What one node says by one of the words."""

    kind: Kind
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

        >>> Sign(Kind.TAINT, "nvidia.com/gpu-xid-error", "true:NoSchedule", "NVSentinel").text
        'taint nvidia.com/gpu-xid-error=true:NoSchedule'
        """
        return f"{self.kind} {self.name}={self.value}"


class HealthWords:
    """Finds signs on nodes by the words that are known and those that an operator adds."""

    def __init__(self, more: Iterable[Word] = ()) -> None:
        words = (*KNOWN, *more)
        self._conditions, self._labels, self._taints = (
            _Table(word for word in words if word.kind is kind) for kind in (Kind.CONDITION, Kind.LABEL, Kind.TAINT)
        )

    def signs(self, node: Node) -> tuple[Sign, ...]:
        """Return what a node says, what closes it first; mostly nothing."""
        found = [*self._signs(node)]
        return tuple(sorted(found, key=lambda sign: (sign.closes is None, sign.kind, sign.name))[:MAX_SIGNS])

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

    def __init__(self, words: Iterable[Word]) -> None:
        self._literal = defaultdict[str, list[Word]](list)
        self._patterns: list[Word] = []
        for word in words:
            (self._patterns if "*" in word.name else self._literal[word.name]).append(word)
        self._any_pattern = re.compile("|".join(translate(word.name) for word in self._patterns) or r"(?!)")

    def find(self, name: str, value: str) -> list[Word]:
        """Return the words that are said by this."""
        words = self._literal.get(name, [])
        if self._any_pattern.match(name):
            words = words + self._patterns
        said = [word for word in words if word.covers(name, value)]
        return said if said and _NAME.fullmatch(name) and len(value) <= MAX_NAME_CHARACTERS else []

    def of_interest(self, labels: Mapping[str, str]) -> Iterable[str]:
        """Return the labels that may be words: a node has a hundred, and mostly one name is looked for."""
        return labels if self._patterns else [name for name in self._literal if name in labels]


def _sign(said: Sequence[Word], name: str, value: str, detail: str = "") -> Sign:
    agent = next((word.agent for word in said if word.agent), "")
    closes = next((word.reason(name) for word in said if word.closes), None)
    return Sign(said[0].kind, name, value, agent, detail, closes)


def condition(text: str) -> Word:
    """Read a condition as people write it: its type, and the status that is bad.

    >>> condition("GPUOnFire").value, condition("AcceleratedHardwareReady").value, condition("FansReady=False").value
    ('True', 'False', 'False')
    """
    name, _, status = text.partition("=")
    known = next((word.value for word in KNOWN if word.kind is Kind.CONDITION and fnmatchcase(name, word.name)), "True")
    return Word(Kind.CONDITION, name, status or known)


def label(text: str) -> Word:
    """Read a label as people write it: its key, and its value if that matters.

    >>> label("example.com/gpu-state=broken")
    Word(kind=<Kind.LABEL: 'label'>, name='example.com/gpu-state', value='broken', agent='', closes=False)
    """
    name, _, value = text.partition("=")
    return Word(Kind.LABEL, name, value or "*")


def taint(text: str) -> Word:
    """Read a taint as `kubectl taint` has it: its key, and its value and effect if they matter.

    >>> [taint(text).value for text in ("a.b/c", "a.b/c=d", "a.b/c:NoExecute", "a.b/c=d:NoExecute")]
    ['*:*', 'd:*', '*:NoExecute', 'd:NoExecute']
    """
    key, _, effect = text.partition(":")
    name, _, value = key.partition("=")
    return Word(Kind.TAINT, name, f"{value or '*'}:{effect or '*'}")
