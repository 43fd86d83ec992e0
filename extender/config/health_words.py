"""The words by which other health agents say on a Node that its GPUs are sick.

They name no GPU. So they are shown, and close a node only where an operator says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final


class WordKind(StrEnum):
    """Where a word stands on a Node."""

    CONDITION = "condition"
    LABEL = "label"
    TAINT = "taint"


@dataclass(frozen=True, slots=True)
class HealthWord:
    """What is looked for on a Node; `*` in a name or a value stands for anything."""

    kind: WordKind
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

        >>> HealthWord(WordKind.LABEL, "example.com/sick", "since-*").reason("example.com/sick")
        'closed by label example.com/sick'
        """
        value = "" if "*" in self.value else f"={self.value}"
        return f"closed by {self.kind} {name}{value}"


KNOWN: Final = (
    HealthWord(WordKind.CONDITION, "Gpu*Watch", "True", "NVSentinel"),
    HealthWord(WordKind.CONDITION, "SysLogs*", "True", "NVSentinel"),
    HealthWord(WordKind.CONDITION, "NVSwitch*", "True", "NVSentinel"),
    HealthWord(WordKind.CONDITION, "MultipleRemediations", "True", "NVSentinel"),
    HealthWord(WordKind.LABEL, "dgxc.nvidia.com/nvsentinel-state", "*", "NVSentinel"),
    HealthWord(WordKind.TAINT, "nvidia.com/gpu-error", "*", "NVSentinel"),
    HealthWord(WordKind.TAINT, "nvidia.com/gpu-xid-error", "*", "NVSentinel"),
    HealthWord(WordKind.TAINT, "nvidia.com/gpu-nvlink-error", "*", "NVSentinel"),
    HealthWord(WordKind.TAINT, "nvidia.com/syslog-xid-error", "*", "NVSentinel"),
    HealthWord(WordKind.CONDITION, "XidCriticalError", "True", "GKE"),
    HealthWord(WordKind.CONDITION, "GPUMissing", "True", "AKS"),
    HealthWord(WordKind.CONDITION, "NVLinkStatusInactive", "True", "AKS"),
    HealthWord(WordKind.CONDITION, "XIDErrors", "True", "AKS"),
    HealthWord(WordKind.CONDITION, "IBLinkFlapping", "True", "AKS"),
    HealthWord(WordKind.CONDITION, "AcceleratedHardwareReady", "False", "EKS"),
    HealthWord(WordKind.CONDITION, "NebiusGPUError", "True", "Nebius"),
)
"""Of the health agents that are common in 2026."""


def condition(text: str) -> HealthWord:
    """Read a condition as people write it: its type, and the status that is bad.

    >>> condition("GPUOnFire").value, condition("AcceleratedHardwareReady").value, condition("FansReady=False").value
    ('True', 'False', 'False')
    """
    name, _, status = text.partition("=")
    usual = next(
        (word.value for word in KNOWN if word.kind is WordKind.CONDITION and fnmatchcase(name, word.name)), "True"
    )
    return HealthWord(WordKind.CONDITION, name, status or usual)


def label(text: str) -> HealthWord:
    """Read a label as people write it: its key, and its value if that matters.

    >>> label("example.com/gpu-state=broken")
    HealthWord(kind=<WordKind.LABEL: 'label'>, name='example.com/gpu-state', value='broken', agent='', closes=False)
    """
    name, _, value = text.partition("=")
    return HealthWord(WordKind.LABEL, name, value or "*")


def taint(text: str) -> HealthWord:
    """Read a taint as `kubectl taint` has it: its key, and its value and effect if they matter.

    >>> [taint(text).value for text in ("a.b/c", "a.b/c=d", "a.b/c:NoExecute", "a.b/c=d:NoExecute")]
    ['*:*', 'd:*', '*:NoExecute', 'd:NoExecute']
    """
    key, _, effect = text.partition(":")
    name, _, value = key.partition("=")
    return HealthWord(WordKind.TAINT, name, f"{value or '*'}:{effect or '*'}")
