"""The bounded set-ups of the queue's model that are explored whole, and the mutants that must be caught."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.queue.library import QueueMutant, QueueSetup, QueueViolation

CAPACITY = 75_000_000
"""States of one exploration."""


@dataclass(frozen=True, slots=True)
class QueueCase:
    """One bounded set-up: how many of each, and what may happen."""

    name: str
    units: tuple[int, ...]
    """The unit of each pod; pods of one unit are a gang."""
    places: int = 2
    planners: int = 2
    pinned: tuple[int, ...] = ()
    """Pods that may only go where they are planned, besides those of gangs."""
    may: tuple[str, ...] = ()
    """What may happen besides lost answers and deaths of processes: switches of `QueueSetup`."""

    def setup(self, mutant: QueueMutant = QueueMutant.FAITHFUL) -> QueueSetup:
        """Return it as the explorer wants it."""
        setup = QueueSetup(
            pods=len(self.units),
            places=self.places,
            planners=self.planners,
            mutant=mutant,
            **dict.fromkeys(self.may, 1),
        )
        setup.units[: len(self.units)] = self.units
        in_gangs = (pod for pod, unit in enumerate(self.units) if self.units.count(unit) > 1)
        setup.pinned = sum(1 << pod for pod in {*in_gangs, *self.pinned})
        return setup


@dataclass(frozen=True, slots=True)
class QueueWanting:
    """A mutant, the set-up in which it must show, and what goes wrong first."""

    mutant: QueueMutant
    case: QueueCase
    shows: QueueViolation

    @property
    def name(self) -> str:
        """What it is called in a list."""
        return self.mutant.name.lower().replace("_", " ")

    def setup(self) -> QueueSetup:
        """Return the set-up with the fault."""
        return self.case.setup(self.mutant)


GANG, GANG_AND_POD, PODS, POD = (0, 0), (0, 0, 1), (0, 1), (0,)
ALL = ("touches", "deletions", "delays")

EVERY_COMMIT = (
    QueueCase("a gang, and one planner after another", GANG, planners=1, may=ALL),
    QueueCase("a gang, and two planners at once", GANG, may=("touches",)),
    QueueCase("a gang that loses pods", GANG, may=("deletions",)),
    QueueCase("a pod, and two planners at once", POD, may=("touches", "deletions")),
    QueueCase("two pods for one place", PODS, places=1, may=("touches", "deletions")),
    QueueCase("one of two pods is pinned", PODS, places=1, planners=1, pinned=(1,), may=ALL),
    QueueCase("two gangs for two places", (0, 0, 1, 1), planners=1),
    QueueCase("GPUs are kept for a gang", GANG_AND_POD, planners=1, may=("touches", "deletions", "reservations")),
)
LONG = (
    QueueCase("a gang, and all that can happen", GANG, may=ALL),
    QueueCase("a gang, and a place more", GANG, places=3),
    QueueCase("a pod, two places, and all that can happen", POD, may=ALL),
)

_GANG = QueueCase("a gang", GANG)
MUTANTS = (
    QueueWanting(QueueMutant.OPEN_UNCLAIMED, _GANG, QueueViolation.LOST),
    QueueWanting(QueueMutant.OPEN_ONE_BY_ONE, _GANG, QueueViolation.HALF),
    QueueWanting(QueueMutant.OPEN_ANY_VERSION, _GANG, QueueViolation.LOST),
    QueueWanting(QueueMutant.TAKE_BACK_UNFENCED, _GANG, QueueViolation.LOST),
    QueueWanting(QueueMutant.FENCED_ONCE, _GANG, QueueViolation.HALF),
    QueueWanting(QueueMutant.LEDGER_READ_LATE, _GANG, QueueViolation.HALF),
    QueueWanting(QueueMutant.NEVER_TAKEN_BACK, _GANG, QueueViolation.STUCK),
    QueueWanting(QueueMutant.CLAIMS_REPLACED, _GANG, QueueViolation.HALF),
    QueueWanting(QueueMutant.PLANNED_AGAIN, QueueCase("a gang, and a place more", GANG, places=3), QueueViolation.HALF),
    QueueWanting(QueueMutant.PINNED_RELEASED, _GANG, QueueViolation.LOST),
    QueueWanting(QueueMutant.RELEASED_UNFENCED, QueueCase("a pod", POD, planners=1), QueueViolation.LOST),
    QueueWanting(
        QueueMutant.RESERVATION_IGNORED,
        QueueCase("GPUs are kept for a gang", GANG_AND_POD, planners=1, may=("reservations",)),
        QueueViolation.ROBBED,
    ),
)
