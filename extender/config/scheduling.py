"""Choice of nodes and GPUs."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from extender.config.defaults import HOLD_SECONDS, SCHEDULER_NAME
from extender.kit.settings import Duration, Names, Section, Table
from topology.annotations import keys
from topology.request.domains import DOMAIN_LABELS, Level
from topology.value.score import Weights


class SchedulingSettings(Section):
    """Choice of nodes and GPUs."""

    resource: str = keys.GPU_RESOURCE
    """Extended resource of whole GPUs."""
    scheduler_names: Names = (SCHEDULER_NAME,)
    """Schedulers that use this extender. Pods with GPUs of other schedulers are counted."""
    tolerated_taints: Names = ()
    """Keys of taints that all pods with GPUs tolerate. Nodes with other taints do not count as free."""
    candidates: int = Field(default=16, ge=0)
    """Nodes that filter returns. 0: all that fit. 1: the best only."""
    foresight: float = Field(default=Weights().pods_to_come, ge=0)
    """λ: weight of future pods. 0 considers the current pod only."""
    demand: Table[int, float] = Field(default=dict(Weights().demand), min_length=1)
    """Expected share of pods by number of GPUs, until enough pods were seen."""
    admission: float = Field(default=Weights().admission, ge=0)
    """Value of placing a pod, relative to perfect links. Low values keep NVLink islands whole, high values fill gaps."""
    domain_labels: Table[Level, tuple[str, ...]] = Field(default=dict(DOMAIN_LABELS), validate_default=True)
    """Labels of NVLink domain, rack and block. The first that a node has counts."""
    appraise_after: Duration = 15.0
    """Time after the start until values of free GPUs are computed. A formula serves before."""
    hold: Duration = HOLD_SECONDS
    """Time for which prioritize reserves the best node's GPUs. Must be longer than `bindDeadline`."""
    bind_deadline: Duration = 3.0
    """Deadline of a bind. Must be shorter than the scheduler's `httpTimeout`."""

    @field_validator("domain_labels")
    @classmethod
    def _keeps_the_other_levels(cls, given: dict[Level, tuple[str, ...]]) -> dict[Level, tuple[str, ...]]:
        return {level: tuple(labels) for level, labels in {**DOMAIN_LABELS, **given}.items()}

    @model_validator(mode="after")
    def _holds_for_a_whole_bind(self) -> SchedulingSettings:
        if self.hold <= self.bind_deadline:
            raise ValueError(
                "hold must be longer than bindDeadline, or GPUs are offered to others while a bind waits for its turn"
            )
        return self

    @property
    def weights(self) -> Weights:
        """λ, admission and demand, as the plan takes them."""
        demand = tuple(sorted(self.demand.items()))
        return Weights(pods_to_come=self.foresight, admission=self.admission, demand=demand)
