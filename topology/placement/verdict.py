"""What deciding comes to: a placement, or the reason why there is none; "does not fit" is a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from topology.bandwidth.predict import Bandwidth
from topology.node.links import Affinity

UNKNOWN_GPUS = "pods without a placement record hold unknown GPUs"
ASK_WHO = "the agent's next look tells which"


class Reason(StrEnum):
    """Why a node does not fit, in words that metrics can count.

    `docs/reference/metrics.md` explains each. One that another node type may cure joins `WIRES` of autoscaling's `need.py`.
    """

    CLOSED = "closed"
    """What is known of the node does not allow a decision; said by whoever keeps that knowledge."""
    UNDECIDED = "undecided"
    """The search for it is larger than one call; it goes on, and later calls have its answer."""
    NO_GPUS = "no-gpus"
    TOO_FEW_FREE = "too-few-free"
    UNSUITABLE_GPUS = "unsuitable-gpus"
    DRIVER = "driver"
    NIC = "nic"
    AFFINITY = "affinity"
    BANDWIDTH = "bandwidth"
    GROUP = "group"
    SHARING = "sharing"
    """The node shares no GPU, or cannot just now."""
    LEDGER_FULL = "ledger-full"
    """The node's ledger cannot take the pod's claims."""
    KUBELET = "kubelet"
    """The node's kubelet would not admit the pod, or nobody can know whether it would."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen GPUs, as positions in ring order."""

    gpus: tuple[int, ...]
    affinity: Affinity | None
    """How near the ring's farthest hop is; `None` for one GPU."""
    bandwidth: Bandwidth | None
    """`None` for one GPU."""
    score: float
    """Higher is better; comparable between nodes."""
    value_lost: float | None = None
    """What the pods to come lose by it; λ times that was taken off the score. `None`: not known."""
    shares: tuple[int, ...] = ()
    """Of a pod that shares GPUs: the position of each of its shares; `gpus` has each of these once."""

    def takes_of(self, mask: int) -> int:
        """Return how many of these GPUs (bit mask over positions) are among its own."""
        return sum(mask >> position & 1 for position in self.gpus) if mask else 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """No set of the free GPUs satisfies the request."""

    reason: Reason
    message: str
    """The rule: short, lower case, without names and without figures of the node."""
    figures: str = ""
    """What the node has instead; for answers about one node."""
    remedy: str = ""
    """What would help, the same wherever the rule is broken."""
    resolvable: bool = False
    """Whether removing pods could cure it."""

    @property
    def sentence(self) -> str:
        """The rule and the remedy: the same for equal nodes, so that kube-scheduler can count them."""
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    @property
    def on_this_node(self) -> str:
        """The rule and the figures, where only one node is spoken of."""
        return f"{self.message}: {self.figures}" if self.figures else self.message


WITHOUT_GPUS = Rejection(Reason.NO_GPUS, "node has no GPUs", remedy="add nodes with GPUs")
UNDECIDED = Rejection(
    Reason.UNDECIDED,
    "the best GPUs of the node are still being searched for",
    remedy="the pod is tried again within minutes",
)
