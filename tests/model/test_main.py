"""What `make model` says at the end, and with which exit status."""

from __future__ import annotations

import pytest

from tests.model.__main__ import judge
from tests.model.beliefs import Beliefs
from tests.model.library import Model, Mutant
from tests.model.mutants import MORE, NINE, OLDER, SHARES, Wanting
from tests.model.setups import USUAL, Case

pytestmark = pytest.mark.slow
SMALL = Case("one binder", binders=1)
CAUGHT = Wanting("no ledger", Case("two pods", may=USUAL), mutant=Mutant.NO_LEDGER)
MISSED = Wanting("no ledger, but one pod only", Case("one pod", pods=1, may=USUAL), mutant=Mutant.NO_LEDGER)


def test_all_mutants_are_counted() -> None:
    """Those that the catalogue lists, others that came up, those of shares, and those of claims on other nodes."""
    assert (len(NINE), len(MORE), len(SHARES), len(OLDER)) == (9, 7, 7, 3)


@pytest.mark.parametrize(
    ("case", "mutants", "verdict", "status"),
    [
        (SMALL, [CAUGHT], "0 violations, 1/1 mutants caught", 0),
        (SMALL, [CAUGHT, MISSED], "0 violations, 1/2 mutants caught", 1),
        (CAUGHT, [CAUGHT], "1 violations, 1/1 mutants caught", 1),
    ],
)
def test_only_a_flawless_run_succeeds(
    model: Model,
    believed: Beliefs,
    capsys: pytest.CaptureFixture[str],
    case: Case | Wanting,
    mutants: list[Wanting],
    verdict: str,
    status: int,
) -> None:
    """The last line of stdout is the verdict; all else goes to stderr."""
    assert judge(model, believed, [case], mutants) == status
    line = capsys.readouterr().out
    assert line.endswith(f" states, {verdict}\n") and line.count("\n") == 1 and int(line.split()[0]) > 0
