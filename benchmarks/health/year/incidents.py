"""Draws what befalls the GPUs of a fleet in the time simulated: the same list for every policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.health.year.kinds import IncidentKind
from benchmarks.health.year.operators import Operator

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class FleetYear:
    """What is simulated, and for how long."""

    nodes: int = 1_000
    gpus_per_node: int = 8
    days: float = 365.0

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.days * DAY

    @property
    def gpu_hours(self) -> float:
        """All there are."""
        return self.nodes * self.gpus_per_node * self.days * 24


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that befalls one GPU."""

    t: float
    """Seconds from the beginning."""
    gpu: int
    kind: IncidentKind
    peer: int | None = None
    """The GPU at the other end of the link, where both tell."""


def draw_incidents(
    fleet: FleetYear, kinds: Iterable[IncidentKind], operator: Operator, seed: int
) -> Mapping[int, Sequence[Incident]]:
    """Return the incidents of each node that has any, in the order of time.

    Each kind has random numbers of its own: one kind more, or less, leaves the others as they are. What would befall a GPU that
    is sick already is left out.
    """
    by_node: dict[int, list[Incident]] = {}
    for kind in kinds:
        for node, incident in _of_kind(fleet, kind, Random(f"{seed} {kind.name}")):  # noqa: S311
            by_node.setdefault(node, []).append(incident)
    return {node: list(_one_at_a_time(by_node[node], operator)) for node in sorted(by_node)}


def _of_kind(fleet: FleetYear, kind: IncidentKind, random: Random) -> Iterator[tuple[int, Incident]]:
    per_second = kind.per_gpu_hour / HOUR * fleet.nodes * fleet.gpus_per_node
    t = random.expovariate(per_second)
    while t < fleet.seconds:
        gpu = random.randrange(fleet.gpus_per_node)
        others = [each for each in range(fleet.gpus_per_node) if each != gpu]
        peer = random.choice(others) if kind.is_of_a_link and others else None
        yield random.randrange(fleet.nodes), Incident(t, gpu, kind, peer)
        t += random.expovariate(per_second)


def _one_at_a_time(incidents: list[Incident], operator: Operator) -> Iterator[Incident]:
    sick_until: dict[int, float] = {}
    for incident in sorted(incidents, key=lambda each: each.t):
        if incident.kind.is_sick:
            if incident.t < sick_until.get(incident.gpu, 0.0):
                continue
            sick_until[incident.gpu] = incident.t + operator.seconds_until_well(incident.kind)
        yield incident
