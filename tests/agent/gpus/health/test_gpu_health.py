"""N4 and N6: which errors close a GPU, what opens it again, and that no restart of an agent forgets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.gpus.critical_errors import Coverage
from agent.gpus.discovery import NOTHING
from agent.gpus.facts import Gap, Known, Missing, RemappedRows
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.reader import read_nvml
from agent.health.evidence import RecoveryAction
from agent.health.memory import HealthMemory, encode_memory
from agent.health.policy import HealthPolicy
from tests.agent.builders import discovery, machine_of
from tests.agent.gpus.health.life import HOLD, Life, said
from tests.nvml.library import FakeNvml, machine
from topology.annotations.overrides import Override, Word, encode_overrides
from topology.node.status import Outlook


class Writes:
    """Keeps each write."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def load(self) -> HealthMemory:
        return HealthMemory()

    def keep(self, memory: HealthMemory) -> None:
        self.kept.append(encode_memory(memory))


def test_each_change_is_told_with_the_gpus_index() -> None:
    """Of one that is lost, too, which no look finds; and the status says since when it is sick."""
    told: list[tuple[str, int | None, str]] = []
    life = Life()
    life.health = GpuHealth(
        lambda: life.now,
        HealthPolicy(),
        tell=lambda change, index: told.append((change.gpu, index, change.after.state)),
    )
    life.look()
    life.now = 90.7
    lost = replace(discovery().status.gpus[0], healthy=False, reasons=("gpu is lost",))
    facts = machine_of("GPU-0", "GPU-1")
    unnamed = replace(facts, gpus=(Missing(Gap.LOST, "GPU_IS_LOST"), facts.gpus[1]))
    status = life.health.marked(replace(discovery().status, gpus=(lost, discovery().status.gpus[1])), unnamed)
    assert told == [("GPU-0", 0, "quarantined")]
    assert [gpu.sick_since for gpu in status.gpus] == [90, None]
    life.health.marked(discovery().status)
    assert len(told) == 1


def test_status_says_what_comes_next() -> None:
    """When a GPU opens by itself, or what a person has to do; nothing of those that are healthy."""
    life = Life()
    life.look()
    life.has("GPU-0", 74)
    life.has("GPU-1", 79)
    waits, needs_reset = life.look().gpus
    assert waits.outlook == Outlook("it opens by itself", until=int(life.now) + 300)
    assert needs_reset.outlook is not None
    assert needs_reset.outlook.until is None
    assert needs_reset.outlook.remedy == "drain the node and reboot it"
    assert all(gpu.outlook is None for gpu in Life().look().gpus)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 69, 94, 109, 137, 63, 92, 121, 154, 160, 165, 171, 172])
def test_n4_errors_that_leave_a_gpu_usable_leave_it_alone(number: int) -> None:
    """A program that reads where it must not is not the GPU's fault, and a notice is no error at all."""
    life = Life()
    assert not life.has("GPU-0", number)
    assert life.unhealthy == frozenset()


@pytest.mark.parametrize("number", [74, 79, 0, 12345])
def test_n4_every_other_error_closes_the_gpu(number: int) -> None:
    """Those that nobody knows, too; and the GPU beside it stays what it was."""
    life = Life()
    assert life.has("GPU-0", number)
    assert life.unhealthy == {"GPU-0"}
    assert life.reasons[0].startswith(f"xid {number}")


def test_n6_a_hold_counts_from_the_last_error() -> None:
    """And afterwards the GPU takes pods, on probation."""
    life = Life()
    life.has("GPU-0", 74)
    life.now = 150.0
    assert not life.has("GPU-0", 74)
    life.now = 150.0 + HOLD - 1
    assert life.unhealthy == {"GPU-0"}
    life.now = 150.0 + HOLD
    assert life.unhealthy == frozenset()
    assert life.reasons == ("on probation: xid 74",)


@pytest.mark.parametrize("number", [79, 95, 119, 120, 143])
def test_n6_time_does_not_cure_what_needs_a_reset(number: int) -> None:
    """And says so; what happened before it changes nothing."""
    life = Life()
    life.has("GPU-0", 74)
    life.has("GPU-0", number)
    life.now = 100 * HOLD
    assert life.reasons == (f"xid {number}, needs a reset",)
    assert life.unhealthy == {"GPU-0"}


@pytest.mark.slow
def test_n6_gpu_that_has_many_errors_is_one_change() -> None:
    """Each other reason would be a write to the node."""
    life, told = Life(), set()
    for number in (79, 74, 94) * 3_333:
        life.now += 1.0
        life.has("GPU-0", number)
        told.add(life.health.marked(discovery().status))
    assert len(told) == 1


def test_the_drivers_own_word_shows_a_reset() -> None:
    """It asks for one, and then for nothing."""
    life = Life()
    life.has("GPU-0", 119)
    life.look(recovery_action=Known(RecoveryAction.GPU_RESET))
    life.now = 1000.0
    assert life.look(recovery_action=Known(RecoveryAction.GPU_RESET)).unhealthy == {"GPU-0"}
    assert life.look(recovery_action=Known(RecoveryAction.NONE)).unhealthy == frozenset()


def test_energy_that_counts_anew_shows_a_reset(tmp_path: Path) -> None:
    """Where the driver never says what it asks for; also between two agents, as nobody can reset a GPU that an agent has open."""
    life = Life(tmp_path)
    life.has("GPU-0", 95)
    life.look(energy_millijoules=Known(5_000))
    life.now = 1000.0
    assert life.look(energy_millijoules=Known(6_000)).unhealthy == {"GPU-0"}
    after = life.restart(tmp_path)
    assert after.look(energy_millijoules=Known(7_000)).unhealthy == {"GPU-0"}
    assert after.look(energy_millijoules=Known(10)).unhealthy == frozenset()
    assert after.reasons == ("on probation: xid 95",)


@pytest.mark.parametrize("lost", [False, True])
def test_probation_ends_however_often_somebody_looks(lost: bool) -> None:
    """That a GPU answers is news once."""
    life = Life()
    life.look(lost=True) if lost else life.has("GPU-0", 74)
    while life.now < HOLD + 3600.0:
        life.now += 30.0
        life.look(recovery_action=Known(RecoveryAction.NONE), throttled=Known(False), uncorrected_errors=Known(0))
    assert life.reasons == ()


def test_a_look_that_finds_nothing_new_is_no_write() -> None:
    """Energy that grows is nothing new, but where a GPU waits for a reset."""
    life, writes = Life(), Writes()
    kept, life.health = writes.kept, GpuHealth(lambda: life.now, HealthPolicy(), writes)
    for spent in range(5_000, 5_010):
        life.now += 30.0
        life.look(energy_millijoules=Known(spent))
    assert len(kept) == 1
    life.has("GPU-0", 95)
    for spent in range(6_000, 6_010):
        life.now += 30.0
        life.look(energy_millijoules=Known(spent))
    assert len(kept) == 3


def test_what_goes_on_as_it_is_is_no_write() -> None:
    """Two concerns that stand, and counters that rise slowly."""
    life, memory = Life(), Writes()
    life.health = GpuHealth(lambda: life.now, HealthPolicy(), memory)
    life.look(banks_without_spares=Known(1), margin_celsius=Known(0))
    for corrected in range(10):
        life.now += 30.0
        life.look(banks_without_spares=Known(1), margin_celsius=Known(0), corrected_errors=Known(corrected))
    assert len(memory.kept) == 1


def test_gpu_that_was_lost_stays_out_for_the_hold() -> None:
    """One that comes and goes would else take a pod each time."""
    life = Life()
    life.look(lost=True)
    life.now = 10.0
    assert life.look().gpus[0].reasons == ("gpu was lost",)
    life.now = HOLD
    assert life.look().unhealthy == frozenset()


def test_a_gpu_that_failed_takes_no_pods_however_long() -> None:
    """Three incidents in a day."""
    life = Life()
    for _ in range(3):
        life.has("GPU-0", 74)
        life.now += 10_000.0
    life.now += 1e6
    assert life.unhealthy == {"GPU-0"}
    assert life.reasons == ("failed: 3 incidents in a day, the last with xid 74",)


def test_healthy_gpus_have_nothing_said_of_them() -> None:
    """Not even nothing."""
    assert Life().look().gpus[0].reasons == ()


def test_each_look_tells_what_nvml_counts() -> None:
    """A failed remap for ever, errors that could not be corrected for a day."""
    life = Life()
    life.look(uncorrected_errors=Known(7))
    assert life.look(uncorrected_errors=Known(8)).gpus[0].reasons[0].startswith("suspect: memory errors")
    failed = Known(RemappedRows(pending=False, failed=True))
    assert life.look(remapped_rows=failed).gpus[0].reasons == ("failed: row remap failed",)
    assert life.look().unhealthy == {"GPU-0"}


@pytest.mark.parametrize(
    ("fact", "before", "after", "reason"),
    [
        ("corrected_errors", 0, 600_000, "corrected memory errors come too fast"),
        (
            "nvlink_errors",
            {"crc": 5, "receive": 5},
            {"crc": 2_000, "receive": 2_005},
            "many transfer errors on its nvlinks",
        ),
        ("banks_without_spares", 0, 1, "part of its memory has no spare rows left"),
        ("margin_celsius", 9, 0, "as hot as it may be"),
    ],
)
def test_two_looks_tell_what_became_worse(fact: str, before: object, after: object, reason: str) -> None:
    """How fast errors come, and what each look finds by itself."""
    life, unknown = Life(), dict[str, Any]()
    assert life.look(**unknown | {fact: Known(before)}).gpus[0].reasons == ()
    life.now += 30.0
    assert life.look(**unknown | {fact: Known(after)}).gpus[0].reasons == (f"suspect: {reason}",)


def test_pcie_that_repeats_itself_for_ten_minutes_is_suspect() -> None:
    """Five a look are ten a minute."""
    life, count, reasons = Life(), 0, list[tuple[str, ...]]()
    while life.now <= 660.0:
        reasons.append(life.look(pcie_replays=Known(count)).gpus[0].reasons)
        life.now, count = life.now + 30.0, count + 5
    assert reasons[:21] == [()] * 21
    assert reasons[21:] == [("suspect: many transfers over pcie are made again",)] * 2


def test_a_limit_that_nvml_tells_for_ever_is_cleared_once_by_a_person(tmp_path: Path) -> None:
    """Also for the next agent: the driver goes on telling it."""
    life = Life(tmp_path)
    assert life.look(sram_exceeded=Known(value=True)).unhealthy == {"GPU-0"}
    life.health.overridden(said(GPU_0=Override(Word.HEALTHY)))
    assert life.look(sram_exceeded=Known(value=True)).unhealthy == frozenset()
    after = life.restart(tmp_path)
    assert after.look(sram_exceeded=Known(value=True)).unhealthy == frozenset()


def test_a_person_opens_a_gpu_whose_row_remap_failed(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """NVML says so for ever, and people still read it."""
    described = tmp_path / "machine.nvml"
    described.write_text(machine("watched_h100").read_text() + "gpu 1 remap_failure 1\n")
    health = GpuHealth(lambda: 1e9, HealthPolicy())
    whole = GpuMachine(read_nvml, Host(tmp_path, tmp_path), health)
    with fake_nvml.loaded(described):
        closed = whole.discover(NOTHING)
        uuid = closed.topology.gpus[1].uuid
        health.overridden(encode_overrides({uuid: Override(Word.HEALTHY)}))
        opened = whole.discover(closed)
        described.write_text(described.read_text() + "fail nvmlDeviceGetHandleByIndex_v2 1 GPU_IS_LOST\n")
        lost = whole.discover(opened)
    assert [found.status.unhealthy for found in (closed, opened, lost)] == [{uuid}, frozenset(), {uuid}]
    assert opened.status.gpus[1].reasons == ("row remap failed",)


def test_what_cannot_be_told_now_is_no_evidence() -> None:
    """A driver that is busy says so, and closes nothing by it."""
    life = Life()
    failed = Missing(Gap.FAILED, "UNKNOWN")
    assert life.look(recovery_action=failed, uncorrected_errors=failed, throttled=failed).unhealthy == frozenset()


def test_what_nvml_says_besides_keeps_a_gpu_unhealthy() -> None:
    """The time that has passed says nothing about a GPU that is lost."""
    life = Life()
    life.has("GPU-0", 74)
    life.now = HOLD
    assert life.health.marked(discovery(healthy=False).status).unhealthy == {"GPU-0", "GPU-1"}


def test_a_gpu_that_is_not_there_any_more_is_forgotten() -> None:
    """Another one in its place has another UUID, and begins anew."""
    life = Life()
    life.has("GPU-9", 79)
    life.look()
    assert life.health.marked(discovery(gpus=10).status).unhealthy == frozenset()


def test_the_next_agent_goes_on_where_this_one_ended(tmp_path: Path) -> None:
    """Under the same boot nothing is forgotten, and nothing forgiven."""
    life = Life(tmp_path)
    life.has("GPU-0", 79)
    life.now = 5000.0
    assert life.restart(tmp_path).reasons == ("xid 79, needs a reset",)


def test_a_reboot_is_a_reset(tmp_path: Path) -> None:
    """The GPU takes pods, on probation."""
    life = Life(tmp_path)
    life.has("GPU-0", 79)
    life.now = 100.0
    assert life.restart(tmp_path, "boot-2").reasons == ("on probation: xid 79",)


def test_a_boot_that_cannot_be_told_is_none(tmp_path: Path) -> None:
    """Nothing is forgiven for what is not known."""
    life = Life(tmp_path)
    life.has("GPU-0", 79)
    assert life.restart(tmp_path, "").reasons == ("xid 79, needs a reset",)


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"gpus": {}, "v": 9}', b"\xff"])
def test_memory_that_cannot_be_read_is_none(tmp_path: Path, kept: bytes) -> None:
    """An agent that does not start would be worse."""
    (tmp_path / "health.json").write_bytes(kept)
    assert Life(tmp_path).unhealthy == frozenset()


def test_without_a_folder_nothing_is_kept_and_all_else_works(tmp_path: Path) -> None:
    """As where a read-only file system has none."""
    life = Life(tmp_path / "none")
    assert life.has("GPU-0", 79)
    assert life.unhealthy == {"GPU-0"}


def test_errors_that_are_not_told_are_said_not_to_be() -> None:
    """On the node's status, with NVML's reason; not before anybody has tried."""
    life = Life()
    assert life.health.marked(discovery().status).reasons == ()
    life.health.coverage = Coverage(("NOT_SUPPORTED",))
    assert life.health.marked(discovery().status).reasons == ("critical errors are not told: NOT_SUPPORTED",)


def test_nvml_tells_what_health_is_judged_by(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """Through the real binding: the driver's recovery action, errors of memory, what slows it down, and energy."""
    lines = ["recovery_action 4", "uncorrected_errors 7", "slowdown 64", "energy_mj 12"]
    described = tmp_path / "machine.nvml"
    described.write_text(machine("hgx_h100").read_text() + "".join(f"gpu 2 {line}\n" for line in lines))
    with fake_nvml.loaded(described):
        first, _, third, *_ = read_nvml().gpus
    assert isinstance(first, Known)
    assert isinstance(third, Known)
    assert first.value.watched.recovery_action == Missing(Gap.UNSUPPORTED, "NOT_SUPPORTED")
    gpu = third.value.watched
    assert gpu.recovery_action == Known(RecoveryAction.DRAIN_AND_RESET)
    assert (gpu.uncorrected_errors, gpu.throttled, gpu.energy_millijoules) == (Known(7), Known(True), Known(12))


def test_a_cordoned_gpu_takes_no_pods_until_it_is_let_in() -> None:
    """And people read why, and by whom."""
    life = Life()
    assert life.health.overridden(said(GPU_0=Override(Word.CORDONED, "fan is loud", "anna")))
    assert life.reasons == ("cordoned: fan is loud (anna)",)
    assert life.unhealthy == {"GPU-0"}
    assert life.health.overridden("")
    assert life.unhealthy == frozenset()


def test_a_cordon_forgives_nothing() -> None:
    """What was sick before is sick after it."""
    life = Life()
    life.has("GPU-0", 79)
    life.health.overridden(said(GPU_0=Override(Word.CORDONED)))
    assert life.unhealthy == {"GPU-0"}
    life.health.overridden("")
    assert life.reasons == ("xid 79, needs a reset",)


def test_a_cordon_stands_until_the_next_agent_has_heard_of_its_node(tmp_path: Path) -> None:
    """Or the GPU would be open for a moment at each start."""
    life = Life(tmp_path)
    life.health.overridden(said(GPU_0=Override(Word.CORDONED)))
    assert life.unhealthy == {"GPU-0"}
    after = life.restart(tmp_path)
    assert after.unhealthy == {"GPU-0"}
    after.health.overridden("")
    assert after.unhealthy == frozenset()


def test_a_word_counts_until_its_time() -> None:
    """Whoever cordons for a night need not wake up for it."""
    life = Life()
    life.health.overridden(said(GPU_0=Override(Word.CORDONED, until=100)))
    assert life.unhealthy == {"GPU-0"}
    life.now = 100.0
    assert life.unhealthy == frozenset()


def test_a_persons_word_ends_what_came_before_it_and_nothing_later(tmp_path: Path) -> None:
    """Also for the next agent, which reads the same word again."""
    life = Life(tmp_path)
    life.has("GPU-0", 79)
    life.health.overridden(said(GPU_0=Override(Word.HEALTHY)))
    assert life.unhealthy == frozenset()
    life.now = 500.0
    assert life.has("GPU-0", 79)
    after = life.restart(tmp_path)
    after.health.overridden(said(GPU_0=Override(Word.HEALTHY)))
    assert after.unhealthy == {"GPU-0"}


@pytest.mark.parametrize("text", ["{", '{"v":1}', '{"v":1,"gpus":{"GPU-0":{"is":"broken"}}}', '{"v":2,"gpus":{}}'])
def test_words_that_cannot_be_read_leave_what_was_said(text: str) -> None:
    """A slip of the pen must not open a GPU that somebody has closed."""
    life = Life()
    life.health.overridden(said(GPU_0=Override(Word.CORDONED)))
    life.health.overridden(text)
    assert life.unhealthy == {"GPU-0"}


@pytest.mark.parametrize("code", ["UNKNOWN", "GPU_IS_LOST", "RESET_REQUIRED"])
def test_what_is_watched_may_fail_without_a_word_about_the_gpu(fake_nvml: FakeNvml, tmp_path: Path, code: str) -> None:
    """Each such call, at the second look; a reason that comes and goes would be a write each time."""
    calls = (
        "TotalEccErrors",
        "CurrentClocksEventReasons",
        "TotalEnergyConsumption",
        "UtilizationRates",
        "Temperature",
        "PowerUsage",
    )
    described = tmp_path / "machine.nvml"
    described.write_text(machine("hgx_h100").read_text())
    health = GpuHealth(lambda: 1e9, HealthPolicy())
    whole = GpuMachine(read_nvml, Host(tmp_path, tmp_path), health)
    with fake_nvml.loaded(described):
        before = whole.discover(NOTHING)
    failing = "".join(f"fail nvmlDeviceGet{call} 2 {code}\n" for call in calls)
    described.write_text(machine("hgx_h100").read_text() + failing)
    with fake_nvml.loaded(described):
        after = whole.discover(before)
    assert after.topology == before.topology
    assert after.status.gpus == before.status.gpus
