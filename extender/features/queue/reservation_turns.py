"""Decides for which gangs GPUs may be kept, so that neither a gang nor a namespace keeps them from others for ever. No I/O.

A gang has its time, and then another one its turn. All gangs of a namespace together have as much. After that the namespace is
passed over while pods of others wait, each time for longer. That ends when one of its gangs starts on GPUs that were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.cluster.candidates.holds import Held
from extender.kit.backoff import Backoff, Pauses
from extender.kit.bounded import Bounded
from extender.kit.fair_table import FairTable
from extender.planning.reservations import Reservation
from extender.planning.units import Unit

LONGEST_PAUSE: Final = 4
"""Of a namespace, in times for which GPUs may be kept."""
REMEMBERED: Final = 1000
"""Gangs, and namespaces."""


@dataclass(slots=True)
class ReservationTurns:
    """For which gang GPUs are kept, for how long already, and who is passed over; all times are monotonic seconds."""

    seconds: float
    """Time for which GPUs may be kept; 0: not at all."""
    reservation: Reservation | None = None
    _since: float = 0.0
    """When its owner's turn began."""
    _at: float = 0.0
    """When it was last renewed."""
    _passed_over: FairTable[str, float] = field(default_factory=lambda: FairTable(REMEMBERED))
    """Gang → until when others of its namespace come first."""
    _kept_seconds: Bounded[str, float] = field(default_factory=lambda: Bounded(REMEMBERED))
    """Namespace → for how long GPUs have been kept for its gangs since its last pause."""
    _pauses: Backoff = field(init=False)
    """By namespace."""

    def __post_init__(self) -> None:
        """Let the first pause be as long as a turn."""
        self._pauses = Backoff(Pauses(self.seconds, LONGEST_PAUSE * self.seconds))

    def at(self, now: float, units: Iterable[Unit]) -> Callable[[Unit], bool]:
        """Return whose turn it is among units that wait. Nobody is passed over without another one that comes instead."""
        if not self.seconds:
            return lambda _: False
        namespaces, gangs, with_turn = set[str](), set[str](), set[str]()
        for unit in units:
            namespaces.add(unit.namespace)
            if unit.is_gang:
                gangs.add(unit.key)
                if self._has_turn(unit, now):
                    with_turn.add(unit.namespace)

        def may_keep_for(unit: Unit) -> bool:
            is_paused = not self._pauses.may_begin(unit.namespace, now) and len(namespaces) > 1
            has_turn = self._has_turn(unit, now) or unit.namespace not in with_turn
            return unit.key in gangs and has_turn and not is_paused

        return may_keep_for

    def keep(self, reservation: Reservation | None, now: float) -> None:
        """Keep GPUs as the last plan says."""
        before, self.reservation = self.reservation, reservation
        seconds = now - self._at
        self._at = now
        if reservation is None:
            return
        if before is None or before.owner != reservation.owner:
            self._since = now
            return
        owner, namespace = reservation.owner, reservation.namespace
        kept_seconds = (self._kept_seconds.get(namespace) or 0.0) + seconds
        if kept_seconds >= self.seconds:
            kept_seconds = 0.0
            self._pauses.failed(namespace, now, namespace)
        self._kept_seconds.put(namespace, kept_seconds)
        if now - self._since >= self.seconds:
            pause_ends = max(now, self._pauses.not_before(namespace))
            self._passed_over.put(owner, namespace, pause_ends + self.seconds)

    def kept(self, but_for: str = "") -> Mapping[str, Held]:
        """Return node → what is kept there; nothing if it is for the gang with this key."""
        return self.reservation.kept if self.reservation and self.reservation.owner != but_for else {}

    def started(self, unit: Unit) -> None:
        """Take note that a unit starts: what was kept for it has served its purpose."""
        if self.reservation is not None and unit.key == self.reservation.owner:
            self._pauses.forget(unit.namespace)
            self._kept_seconds.pop(unit.namespace)

    def _has_turn(self, unit: Unit, now: float) -> bool:
        return (self._passed_over.get(unit.key) or 0.0) <= now

    def forget(self) -> None:
        """Keep nothing: another replica plans."""
        self.reservation = None
