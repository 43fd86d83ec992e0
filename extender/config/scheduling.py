"""How nodes and GPUs are chosen."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from extender.config.defaults import HOLD_SECONDS, SCHEDULER_NAME
from extender.kit.settings import Duration, Names, Section, Table
from topology.annotations import keys
from topology.request.domains import DOMAIN_LABELS, Level
from topology.value.score import Weights


class SchedulingSettings(Section):
    """How nodes and GPUs are chosen."""

    resource: str = keys.GPU_RESOURCE
    """The extended resource that stands for whole GPUs."""
    scheduler_names: Names = (SCHEDULER_NAME,)
    """The schedulers that ask us; pods with GPUs that others place, or that wait for others, are counted."""
    tolerated_taints: Names = ()
    """Keys of taints that all pods with GPUs tolerate, beside the resource's own name: nodes with others do not count as free."""
    candidates: int = Field(default=16, ge=0)
    """Nodes that filter passes on; 0: all that fit, 1: pin."""
    foresight: float = Field(default=Weights().pods_to_come, ge=0)
    """λ: how much the value that a placement destroys weighs against what the pod gains; 0 looks at this pod alone."""
    demand: Table[int, float] = Field(default=dict(Weights().demand), min_length=1)
    """The pods still to come: share by GPUs asked for. Believed while few pods have been seen."""
    admission: float = Field(default=Weights().admission, ge=0)
    """What it is worth to serve a pod at all, or to meet its preferred affinity, when perfect wiring adds 1.

    Low keeps islands whole, high fills gaps."""
    domain_labels: Table[Level, tuple[str, ...]] = Field(default=dict(DOMAIN_LABELS), validate_default=True)
    """Labels of nodes that name their NVLink domain, rack and block; of several the first that a node has counts."""
    appraise_after: Duration = 15.0
    """How long after the start the values of free GPUs are first computed; until then a formula serves."""
    hold: Duration = HOLD_SECONDS
    """How long the predicted winner's GPUs are kept from other pods, from prioritize on until its bind has had its turn."""
    bind_deadline: Duration = 3.0
    """Must be shorter than the scheduler's `httpTimeout`."""

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
