"""Adds up what a policy cost: hours by whether a GPU was well and whether it was in, and jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

_HOUR = 3600.0


@dataclass(slots=True)
class GpuHourTotals:
    """Sums over GPUs; the four kinds of hours are all there are."""

    well_in: float = 0.0
    well_out: float = 0.0
    """What healthy GPUs were not used for."""
    sick_in: float = 0.0
    """What sick GPUs were offered for."""
    sick_out: float = 0.0
    jobs_on_sick: int = 0
    """Jobs that were put on a GPU while it was sick."""
    jobs_ended: int = 0
    """Those of them that its fault has ended."""
    taken_out: int = 0
    """How often a GPU that was in went out."""
    lost_by_kind: dict[str, float] = field(default_factory=dict)
    """`well_out`, by what had befallen the GPU when it went out."""
    offered_by_kind: dict[str, float] = field(default_factory=dict)
    """`sick_in`, by what it was sick of."""
    ended_by_kind: dict[str, float] = field(default_factory=dict)
    """`jobs_ended`, likewise."""

    @property
    def gpu_hours(self) -> float:
        """All hours that were reckoned."""
        return self.well_in + self.well_out + self.sick_in + self.sick_out

    def spend(self, seconds: float, kind: str, *, is_sick: bool, is_in: bool) -> None:
        """Take in how a GPU has spent some time; `kind` is what it is sick of, or why it is out."""
        hours = seconds / _HOUR
        match is_sick, is_in:
            case False, True:
                self.well_in += hours
            case False, False:
                self.well_out += hours
                _add(self.lost_by_kind, kind, hours)
            case True, True:
                self.sick_in += hours
                _add(self.offered_by_kind, kind, hours)
            case _:
                self.sick_out += hours

    def end_job(self, kind: str) -> None:
        """Take in that a job has ended by the fault of the GPU that it was put on."""
        self.jobs_ended += 1
        _add(self.ended_by_kind, kind, 1)

    def add(self, other: GpuHourTotals) -> None:
        """Take in the sums of other GPUs."""
        self.well_in += other.well_in
        self.well_out += other.well_out
        self.sick_in += other.sick_in
        self.sick_out += other.sick_out
        self.jobs_on_sick += other.jobs_on_sick
        self.jobs_ended += other.jobs_ended
        self.taken_out += other.taken_out
        for mine, its in (
            (self.lost_by_kind, other.lost_by_kind),
            (self.offered_by_kind, other.offered_by_kind),
            (self.ended_by_kind, other.ended_by_kind),
        ):
            for kind, figure in its.items():
                _add(mine, kind, figure)


def _add(figures: dict[str, float], kind: str, figure: float) -> None:
    figures[kind] = figures.get(kind, 0.0) + figure
