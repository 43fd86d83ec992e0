"""Rows C19, C20, C22, C23, C26, A3–A5 and W4–W7: 200 seeds with all faults mixed break no rule, and meet all there is to meet."""

from __future__ import annotations

import os

import pytest

from tests.simulation.__main__ import main
from tests.simulation.disturbances.pods import CLASSES
from tests.simulation.invariants.ownership import Repair, Rule
from tests.simulation.invariants.paths import BindPath
from tests.simulation.mix import CUT, EVENTS, PROCESS_FAULTS, REQUEST_FAULTS, STREAM_FAULTS
from tests.simulation.soak import Tally, soak

pytestmark = pytest.mark.slow
SEEDS = range(200)
SELDOM = frozenset({BindPath.FENCES})
"""A node steps back from a pod that it failed, and the next bind to another node drops the pod's claims there. So the pod
seldom comes back to take other GPUs;
`tests/extender/binding/test_odd_replies.py` goes that way, with every reply that there is."""


@pytest.fixture(scope="module")
def found() -> Tally:
    """Run the seeds once, on all cores."""
    return soak(SEEDS, jobs=os.cpu_count() or 1)


def test_no_seed_breaks_an_invariant(found: Tally) -> None:
    """INV1 to INV7 and the rules beside them hold in every run; a seed that is named here replays as it is."""
    assert found.seeds == len(SEEDS)
    assert found.broken == {}


@pytest.mark.parametrize("fault", [*REQUEST_FAULTS, *STREAM_FAULTS, *PROCESS_FAULTS, *EVENTS, *CUT])
def test_every_fault_happens(found: Tally, fault: str) -> None:
    """A fault that never strikes proves nothing."""
    assert found.counters[f"fault: {fault}"] > 0


@pytest.mark.parametrize("path", [path for path in BindPath if path not in SELDOM])
def test_every_way_through_a_bind_is_gone(found: Tally, path: str) -> None:
    """B1 to B5, with all that can come of each step."""
    assert found.counters[f"path: {path}"] > 0


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule is not Rule.RENEWED])
def test_claims_leave_for_every_reason(found: Tally, rule: str) -> None:
    """R1, R2 and R3; a pod seldom chooses others on the same node, for the reason that is given for `SELDOM`."""
    assert found.counters[f"release: {rule}"] > 0


@pytest.mark.parametrize("repair", Repair)
def test_ledgers_are_repaired_in_every_way(found: Tally, repair: str) -> None:
    """Rebuilt, and corrected for our pods and for those that bypassed us."""
    assert found.counters[f"repair: {repair}"] > 0


@pytest.mark.parametrize("sharing_class", [each or "none" for each in CLASSES])
def test_shares_of_every_class_meet(found: Tally, sharing_class: str) -> None:
    """Shares that are alone on their GPUs prove nothing."""
    assert found.counters[f"share: beside another of class {sharing_class}"] > 0


def test_every_run_leaves_histories(found: Tally) -> None:
    """C23: one of each node's ledger, all of them linearizable."""
    assert found.counters["history: of a node's ledger"] >= len(SEEDS)


def test_the_soak_ends_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read the last line and the exit code."""
    assert main(["--seeds", "2", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 seeds, 0 violations"
