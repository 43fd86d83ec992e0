"""Rows C1 and C2: all interleavings within bounds, and what they show when a part of the protocol is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.cluster.ownership.standing import Standing
from tests.model.beliefs import Beliefs
from tests.model.explorer import TooManyStates
from tests.model.library import Model, Mutant, Phase, Place, Violation
from tests.model.mutants import MORE, NINE, OLDER, SHARES, Wanting
from tests.model.setups import CAPACITY, EVERY_COMMIT, USUAL, Case
from tests.model.story import story

pytestmark = pytest.mark.slow
PLAIN = Case("two pods", may=USUAL)


@pytest.mark.parametrize("case", EVERY_COMMIT, ids=lambda case: case.name)
def test_c1_no_interleaving_is_bad(model: Model, believed: Beliefs, case: Case) -> None:
    """No GPU is given to two pods, nor more of it than there is; no claim of a running pod is lost, and no other one stays."""
    setup = case.setup(believed)
    found = model.explore(setup, CAPACITY)
    assert found.violation is Violation.NONE, "\n".join(story(setup, found))
    assert found.states >= 1_000_000


@pytest.mark.parametrize("wanting", [*NINE, *MORE, *SHARES, *OLDER], ids=lambda wanting: wanting.name)
def test_c2_each_mutant_gives_one_gpu_to_two_pods(
    model: Model, believed: Beliefs, wanting: Wanting, golden: Callable[[str, str], None]
) -> None:
    """Nothing of the protocol can be left out; how it fails then is told in as few events as possible."""
    setup = wanting.setup(believed)
    found = model.explore(setup, CAPACITY)
    assert found.violation is wanting.shows
    golden(f"mutants/{wanting.name.replace(' ', '-').lower()}.txt", "\n".join((*story(setup, found), "")))


def test_c1_a_bind_without_a_claim_is_seen(model: Model, believed: Beliefs) -> None:
    """INV2 counts as soon as the Binding commits, long before there is a second pod."""
    assert model.explore(PLAIN.setup(believed, Mutant.NO_LEDGER), CAPACITY).violation is Violation.UNCLAIMED


def test_c1_a_claim_that_nobody_can_take_back_is_seen(model: Model, believed: Beliefs) -> None:
    """INV3, as far as it can be had without time: whatever has happened, a reconciler alone can put the ledger right."""
    disbelieved = believed | {(Phase.REPORTED, Place.HERE): frozenset({Standing.GONE})}
    case = Case("forced ends", may=("force",))
    assert model.explore(case.setup(believed), CAPACITY).violation is Violation.NONE
    assert model.explore(case.setup(disbelieved), CAPACITY).violation is Violation.STUCK


def test_what_has_no_room_proves_nothing(model: Model, believed: Beliefs) -> None:
    """A search that is cut short says so."""
    with pytest.raises(TooManyStates, match="more than 1000 states"):
        model.explore(PLAIN.setup(believed), 1000)
