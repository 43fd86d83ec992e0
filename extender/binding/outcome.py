"""What bind is asked for, and what can come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from extender.cluster.candidates.holds import Ranked
from topology.annotations.records import PlacementRecord
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest


class Failure(StrEnum):
    """Why a pod was not bound, in words that metrics can count."""

    NOT_SYNCED = "not-synced"
    POD_GONE = "pod-gone"
    POD_DELETED = "pod-deleted"
    POD_ENDED = "pod-ended"
    BOUND_ELSEWHERE = "bound-elsewhere"
    NO_RECORD = "no-record"
    BAD_REQUEST = "bad-request"
    CLAIMED_BY_DRA = "claimed-by-dra"
    NODE_GONE = "node-gone"
    NO_FIT = "no-fit"
    GANG = "gang"
    CLAIMS_ELSEWHERE = "claims-elsewhere"
    LEDGER_FULL = "ledger-full"
    REFUSED = "refused"
    CONFLICT = "conflict"
    NO_ANSWER = "no-answer"


OTHER_NODES_MAY_DO: Final = frozenset({
    Failure.NODE_GONE, Failure.NO_FIT, Failure.LEDGER_FULL, Failure.REFUSED, Failure.CONFLICT, Failure.NO_ANSWER
})  # fmt: skip
"""The node steps back then; with all others it has nothing to do."""


@dataclass(frozen=True, slots=True)
class BindTarget:
    """What kube-scheduler asks for."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a bind decided on, and where, for those who ask how good it was."""

    request: GpuRequest
    placement: Placement
    topology_class: TopologyClass
    alternative: Ranked | None = None
    """The best other node that kube-scheduler asked about, as it was then, if that is known."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod is on the node: the API server said so."""

    record: PlacementRecord
    """As it arrived with the Binding; without containers for a pod that asks for no GPU."""
    chosen: Chosen | None = field(default=None, compare=False)
    """By this very call; `None` where the pod was bound before, or asks for no GPU."""

    @property
    def containers(self) -> Mapping[str, tuple[str, ...]]:
        """Container → GPUs."""
        return self.record.containers


@dataclass(frozen=True, slots=True)
class NotBound:
    """The pod is not on the node, or nobody knows; kube-scheduler will try again."""

    failure: Failure
    message: str


Outcome: TypeAlias = Bound | NotBound
