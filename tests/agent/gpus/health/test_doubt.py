"""Which GPUs are doubtful: open, and the last that new pods get among equals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.gpus.facts import Known, RemappedRows
from agent.gpus.faults import blackout_status, gpu_status
from agent.health.evidence import RecoveryAction
from tests.agent.builders import discovery, gpu_facts
from tests.agent.gpus.health.life import HOLD, Life, said
from topology.annotations.overrides import Override, Word
from topology.node.status import NodeGpuStatus, Outlook

DAY = 86_400.0


def doubtful(life: Life) -> set[str]:
    return set(life.look().doubtful)


def test_suspect_and_probation_gpus_are_doubtful_and_closed_ones_are_not() -> None:
    """A GPU that takes no pods is taken last by nobody."""
    life = Life()
    assert doubtful(life) == set()
    life.has("GPU-0", 74)
    assert (set(life.unhealthy), doubtful(life)) == ({"GPU-0"}, set())
    life.now = HOLD
    assert (set(life.unhealthy), doubtful(life)) == (set(), {"GPU-0"})
    life.now = HOLD + 3600.0
    assert doubtful(life) == set()
    life.has("GPU-1", 13)
    life.now += 200.0
    life.has("GPU-1", 13)
    assert life.health.marked(discovery().status).gpus[1].reasons[0].startswith("suspect: ")
    assert doubtful(life) == {"GPU-1"}


@pytest.mark.parametrize(
    "fact",
    [{"remapped_rows": Known(RemappedRows(pending=True, failed=False))}, {"page_retirement_pending": Known(True)}],
)
def test_a_gpu_whose_memory_waits_for_a_reset_is_doubtful(fact: dict[str, object]) -> None:
    """It is well, and a reset that nobody has made yet would make it better; one whose rows are used up is closed."""
    status = gpu_status("GPU-0", gpu_facts(**fact))
    assert (status.healthy, status.doubtful) == (True, True)
    life = Life()
    life.has("GPU-0", 79)
    marked = life.health.marked(replace(discovery().status, gpus=(status,)))
    assert (set(marked.unhealthy), marked.gpus[0].doubtful) == ({"GPU-0"}, False)
    failed = gpu_status("GPU-0", gpu_facts(remapped_rows=Known(RemappedRows(pending=True, failed=True))))
    assert (failed.healthy, failed.doubtful) == (False, False)
    assert not any(gpu.doubtful for gpu in blackout_status(NodeGpuStatus(0, (status,)), "UNKNOWN").gpus)


def test_a_gpu_that_was_sick_twice_in_a_week_is_doubtful_for_a_week_after_the_first() -> None:
    """Healthy, open, and liked less than its equals; why and until when is said."""
    life = Life(now=1000.0)
    life.has("GPU-0", 74)
    life.now += 2 * DAY
    assert doubtful(life) == set()
    life.has("GPU-0", 46)
    life.look(recovery_action=Known(RecoveryAction.NONE))
    life.now += DAY
    told = life.look().gpus[0]
    assert (told.healthy, told.doubtful) == (True, True)
    assert told.reasons == ("2 incidents in a week, the last with xid 46",)
    assert told.outlook == Outlook("it counts as any other if nothing happens", until=1000 + 7 * int(DAY))
    life.now = 1000.0 + 7 * DAY - 1
    assert doubtful(life) == {"GPU-0"}
    life.now += 1
    assert doubtful(life) == set()
    assert life.look().gpus[0].outlook is None


def test_errors_that_came_together_are_one_incident() -> None:
    """And one incident in a week is chance."""
    life = Life()
    for _ in range(20):
        life.has("GPU-0", 74)
        life.now += 100.0
    life.now += DAY
    assert doubtful(life) == set()


def test_a_siblings_faults_do_not_make_a_gpu_doubtful() -> None:
    """An error that both ends of a link tell is the link's: it is sick again and again, and no GPU is liked less."""
    life = Life()
    for _ in range(4):
        life.has("GPU-0", 74)
        life.has("GPU-1", 74)
        life.now += DAY
    assert doubtful(life) == set()


def test_a_persons_word_ends_a_doubt_and_no_restart_does(tmp_path: Path) -> None:
    """Who has replaced the cable need not wait for a week."""
    life = Life(tmp_path)
    for _ in range(2):
        life.has("GPU-0", 74)
        life.now += DAY
    after = life.restart(tmp_path)
    assert doubtful(after) == {"GPU-0"}
    after.health.overridden(said(GPU_0=Override(Word.HEALTHY)))
    assert doubtful(after) == set()
