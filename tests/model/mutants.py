"""The protocol without one of its parts, and the set-up in which that must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

from extender.cluster.caches import pod_cache
from extender.cluster.caches.tombstones import Tombstone
from extender.cluster.objects.gpu_pods import has_ended, has_stopped
from extender.cluster.objects.kinds import Pod
from extender.cluster.ownership import evidence
from extender.cluster.ownership.standing import Standing, standing_of_tombstone
from tests.model.beliefs import BOUND, PENDING, Beliefs, beliefs, life, pod_version
from tests.model.library import GPUS, Mutant, Phase, Place, Setup, Violation
from tests.model.setups import USUAL, Case


@dataclass(frozen=True, slots=True)
class Wanting:
    """A mutant."""

    name: str
    case: Case
    published_events: int | None = None
    """Length of the shortest counter-example that the protocol's design names, where an event is a smaller step than here."""
    mutant: Mutant = Mutant.FAITHFUL
    planted: tuple[ModuleType, str, Callable[..., object]] | None = None
    """Or else: which of the product's own rules is replaced, and by what."""
    shows: Violation = Violation.DOUBLE
    """What goes wrong first."""

    def setup(self, believed: Beliefs) -> Setup:
        """Return the set-up with the fault; `believed` is what holds without it."""
        if self.planted:
            with mock.patch.object(*self.planted):
                believed = believed | beliefs(_SHORT_LIVES)
        return self.case.setup(believed, self.mutant, doubles_only=True)


def _absence_is_proof(
    tombstone: Tombstone | None, node: str, *, other_incarnation: bool, reported_free: bool
) -> Standing:
    standing = standing_of_tombstone(tombstone, node, other_incarnation=other_incarnation, reported_free=reported_free)
    return Standing.FREE if standing is Standing.UNSEEN else standing


def _end_is_proof(tombstone: Tombstone | None, node: str, *, other_incarnation: bool, reported_free: bool) -> Standing:
    standing = standing_of_tombstone(tombstone, node, other_incarnation=other_incarnation, reported_free=reported_free)
    return Standing.FREE if standing is Standing.GONE else standing


def _deletion_is_proof(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or has_stopped(pod)


def _final_phase_is_proof(pod: Pod) -> bool:
    return has_ended(pod)


_STOPPING = (Phase.STOPPING, pod_version(Place.HERE, "Running", terminated=False, deleting=True))
_DOUBTED = (Phase.DOUBTED, pod_version(Place.HERE, "Failed"))
_SHORT_LIVES = (
    life(Place.HERE, PENDING, BOUND, _STOPPING),
    life(Place.HERE, PENDING, BOUND, _DOUBTED),
    life(Place.HERE, PENDING, BOUND, (Phase.GHOST, None)),
)
_PLAIN = Case("two pods", may=USUAL)
_LOST = Case("a ledger that is lost", may=(*USUAL, "wipes"))

NINE = (
    Wanting("no ledger", _PLAIN, 9, Mutant.NO_LEDGER),
    Wanting("no compare-and-swap", _PLAIN, 11, Mutant.NO_CAS),
    Wanting("no fence", _PLAIN, 14, Mutant.NO_FENCE),
    Wanting("absence taken for proof", _PLAIN, 14, planted=(evidence, "standing_of_tombstone", _absence_is_proof)),
    Wanting("Binding with the UID only", _PLAIN, 15, Mutant.UID_ONLY),
    Wanting(
        "Binding with neither UID nor version",
        Case("a namesake", pods=3, may=(*USUAL, "namesakes")),
        15,
        Mutant.NO_PRECONDITIONS,
    ),
    Wanting(
        "deletion taken for proof",
        Case("graceful ends", may=(*USUAL, "graceful")),
        15,
        planted=(pod_cache, "has_stopped", _deletion_is_proof),
    ),
    Wanting(
        "another choice without a fence",
        Case("another choice", gpus=GPUS, may=(*USUAL, "unfit")),
        16,
        Mutant.RECHOICE_WITHOUT_FENCE,
    ),
    Wanting("Binding sent again without a claim", _PLAIN, 17, Mutant.RESEND_WITHOUT_CLAIM),
)
"""Those of the protocol's design."""
MORE = (
    Wanting("ledger read after the fence", _PLAIN, mutant=Mutant.LEDGER_READ_AFTER_FENCE),
    Wanting(
        "claim withdrawn while in doubt",
        Case("forced ends", may=(*USUAL, "force")),
        mutant=Mutant.WITHDRAWAL_IN_DOUBT,
    ),
    Wanting("lost ledger taken for an empty one", _LOST, mutant=Mutant.MISSING_IS_EMPTY),
    Wanting(
        "final phase taken for proof",
        Case("ends by another hand", may=(*USUAL, "doubts")),
        planted=(pod_cache, "has_stopped", _final_phase_is_proof),
    ),
    Wanting("ledger rebuilt without a fence", _LOST, mutant=Mutant.REBUILD_WITHOUT_FENCE),
    Wanting("unbound pods fenced as far as heard of", _LOST, mutant=Mutant.UNBOUND_BY_HEARSAY),
    Wanting("ledger rebuilt from what was heard of", _LOST, mutant=Mutant.STOCK_BY_HEARSAY),
)
"""Others that came up."""
SHARES = (
    Wanting(
        "sum of shares not compared",
        Case("two shares that do not fit", units=2, shares=(2, 1, 0), may=USUAL),
        mutant=Mutant.SUM_IGNORED,
        shows=Violation.OVERFULL,
    ),
    Wanting(
        "shared GPU given whole",
        Case("a share and a whole GPU", units=2, shares=(1, 0, 0), may=USUAL),
        mutant=Mutant.SHARED_TAKEN_WHOLE,
        shows=Violation.MIXED,
    ),
    Wanting(
        "class of shares not compared",
        Case("two classes", units=2, shares=(1, 1, 0), classes=(0, 1, 0), may=USUAL),
        mutant=Mutant.CLASS_IGNORED,
        shows=Violation.MET,
    ),
    Wanting(
        "shared GPUs not counted",
        Case("one GPU that may be shared", gpus=GPUS, units=2, shares=(2, 2, 0), shareable=1, may=USUAL),
        mutant=Mutant.BOUND_IGNORED,
        shows=Violation.SPREAD,
    ),
    Wanting(
        "share free before its process is gone",
        Case("forced ends of shares", units=2, shares=(2, 1, 0), may=(*USUAL, "force")),
        planted=(evidence, "standing_of_tombstone", _end_is_proof),
        shows=Violation.OVERFULL,
    ),
    Wanting(
        "shares without compare-and-swap",
        Case("two shares that do not fit", units=2, shares=(2, 1, 0), may=USUAL),
        mutant=Mutant.NO_CAS,
        shows=Violation.OVERFULL,
    ),
    Wanting(
        "shares without a fence",
        Case("two shares that do not fit", units=2, shares=(2, 1, 0), may=USUAL),
        mutant=Mutant.NO_FENCE,
        shows=Violation.OVERFULL,
    ),
)
"""Of GPUs that are shared."""
_AFTER_ANOTHER = Case(
    "one bind after another on two nodes", nodes=2, gpus=GPUS, binders=1, may=("late_bindings", "touches")
)
OLDER = (
    Wanting("older claims kept", _AFTER_ANOTHER, mutant=Mutant.OLDER_KEPT, shows=Violation.EXCESS),
    Wanting("older claims dropped without a fence", _AFTER_ANOTHER, mutant=Mutant.OLDER_DROPPED_WITHOUT_FENCE),
    Wanting(
        "older claims dropped from the ledger after the fence",
        Case("two binders on two nodes", nodes=2, gpus=GPUS, may=("late_bindings",)),
        mutant=Mutant.OLDER_READ_AFTER_FENCE,
    ),
)
"""Of claims on another node than that of a bind."""
