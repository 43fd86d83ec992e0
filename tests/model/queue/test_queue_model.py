"""All interleavings of planners, kube-scheduler and faults within bounds, and what they show when a part is missing."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, sizeof
from enum import IntEnum

import pytest

from tests.model.__main__ import judge_queue
from tests.model.explorer import has_compiler
from tests.model.header import Header
from tests.model.queue.library import (
    HEADER,
    PlaceLedger,
    PlannerState,
    PodPhase,
    QueuedPod,
    QueueEvent,
    QueueModel,
    QueueMutant,
    QueueSetup,
    QueueState,
    QueueViolation,
    ReconcilerState,
    Request,
)
from tests.model.queue.setups import CAPACITY, EVERY_COMMIT, MUTANTS, QueueCase, QueueWanting
from tests.model.queue.story import queue_story

pytestmark = pytest.mark.slow
SMALL = QueueCase("a pod", (0,), planners=1)
LOST = QueueWanting(QueueMutant.RELEASED_UNFENCED, SMALL, QueueViolation.LOST)
MISSED = QueueWanting(QueueMutant.OPEN_ONE_BY_ONE, SMALL, QueueViolation.HALF)


@pytest.fixture(scope="module")
def queue_model(tmp_path_factory: pytest.TempPathFactory) -> QueueModel:
    """Compile the model, or skip the test where there is no compiler."""
    if not has_compiler():
        pytest.skip("the model needs gcc")
    return QueueModel(tmp_path_factory.mktemp("queue-model"))


@pytest.mark.parametrize("case", EVERY_COMMIT, ids=lambda case: case.name)
def test_no_interleaving_of_planners_is_bad(queue_model: QueueModel, case: QueueCase) -> None:
    """No pod that may be bound loses its claims, no gang starts in parts, and no claim stays for nothing."""
    setup = case.setup()
    exploration = queue_model.explore(setup, CAPACITY)
    assert exploration.violation is QueueViolation.NONE, "\n".join(queue_story(setup, exploration))
    assert exploration.states >= 10_000


@pytest.mark.parametrize("wanting", MUTANTS, ids=lambda wanting: wanting.name)
def test_each_mutant_of_the_queue_is_caught(
    queue_model: QueueModel, wanting: QueueWanting, golden: Callable[[str, str], None]
) -> None:
    """Nothing can be left out. The golden file shows how it fails then, in as few events as possible."""
    setup = wanting.setup()
    exploration = queue_model.explore(setup, CAPACITY)
    assert exploration.violation is wanting.shows
    golden(f"queue-mutants/{wanting.name.replace(' ', '-')}.txt", "\n".join((*queue_story(setup, exploration), "")))


def test_there_is_a_set_up_for_each_mutant_of_the_queue() -> None:
    """None is forgotten."""
    assert [wanting.mutant for wanting in MUTANTS] == [*QueueMutant][1:]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("phase", PodPhase),
        ("step", Request),
        ("mutant", QueueMutant),
        ("event", QueueEvent),
        ("violation", QueueViolation),
    ],
)
def test_the_queue_header_has_the_same_names(name: str, numbers: type[IntEnum]) -> None:
    """In the same order, so each name has the same number."""
    assert Header(HEADER).members(name) == [member.name for member in numbers]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("planner", PlannerState),
        ("reconciler", ReconcilerState),
        ("pod", QueuedPod),
        ("ledger", PlaceLedger),
        ("state", QueueState),
        ("setup", QueueSetup),
    ],
)
def test_the_queue_header_has_the_same_fields(name: str, fields: type[Structure]) -> None:
    """Bit fields of one type are packed alike by C and by ctypes."""
    assert Header(HEADER).fields(name) == [":".join((str(field[0]), *map(str, field[2:]))) for field in fields._fields_]


def test_the_queue_library_has_structures_of_the_same_size(queue_model: QueueModel) -> None:
    """Names and bits are compared above."""
    assert all(sizeof(kind) == size for kind, size in queue_model.sizes().items())


@pytest.mark.parametrize(
    ("cases", "wanted", "verdict", "status"),
    [
        ([SMALL], [LOST], "0 violations, 1/1 mutants caught", 0),
        ([SMALL], [MISSED], "0 violations, 0/1 mutants caught", 1),
        ([LOST], [], "1 violations, 0/0 mutants caught", 1),
    ],
)
def test_only_a_flawless_run_of_the_queue_succeeds(
    queue_model: QueueModel,
    capsys: pytest.CaptureFixture[str],
    cases: list[QueueCase | QueueWanting],
    wanted: list[QueueWanting],
    verdict: str,
    status: int,
) -> None:
    """The line of stdout is the verdict; all else goes to stderr."""
    assert judge_queue(queue_model, cases, wanted) == status
    assert capsys.readouterr().out.endswith(f" states, {verdict}\n")
