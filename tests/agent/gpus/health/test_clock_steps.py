"""A wall clock that steps neither ends the hold of a GPU or a link early, nor makes it last: the monotonic clock counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.gpus.critical_errors import CriticalError
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.health_file import HealthFile
from agent.health import evidence
from agent.health.clock_steps import last_event, moved
from agent.health.concerns import Concern, HeldConcern
from agent.health.links import NodeLinks
from agent.health.node import HealthMachine
from agent.health.policy import HealthPolicy
from agent.health.record import Closure, GpuFailure, GpuIncident, GpuRecord, Repair, State, Verdict, Way
from agent.health.throttling import Spell
from tests.agent.builders import discovery, machine_of
from topology.node.status import GpuStatus, LinkFault

NOW = 1_800_000_000.0
HOUR, YEAR = 3600.0, 365 * 86_400.0
POLICY = HealthPolicy(hold=300.0)
STEPS = [HOUR, 10 * YEAR, -HOUR, -10 * YEAR, 1000.0 - NOW]
CLOSES = 999
"""A critical error that nobody knows: it closes a GPU for a hold."""


class Machine:
    """Two GPUs, and the clocks of their machine."""

    def __init__(self, folder: Path) -> None:
        self.wall, self.monotonic = NOW, 5000.0
        self._folder = folder
        self.boots("boot-1")

    def boots(self, boot: str) -> None:
        """Begin with the next agent."""
        self.file = HealthFile(self._folder)
        self.health = GpuHealth(lambda: self.wall, POLICY, self.file, boot, monotonic=lambda: self.monotonic)
        self.health.marked(discovery().status)

    def restart_agent(self) -> None:
        self.file.close()
        self.boots("boot-1")

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def step(self, seconds: float) -> None:
        self.wall += seconds

    def fail(self) -> None:
        self.health.happened(CriticalError("GPU-0", CLOSES))

    def lose_link(self) -> None:
        status = replace(discovery().status, link_faults=(LinkFault("GPU-0", 3, "inactive"),))
        self.health.marked(status, machine_of("GPU-0", "GPU-1"))

    def gpu(self) -> GpuStatus:
        """Return what is published of the GPU that fails."""
        return self.health.marked(discovery().status).gpus[0]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_hold_lasts_as_long_as_it_is_whatever_the_wall_clock_does(
    machine: Machine, step: float, restarts: bool
) -> None:
    """The agent may start again meanwhile. What is published is right by the clock of now."""
    machine.fail()
    machine.wait(100.0)
    machine.step(step)
    if restarts:
        machine.restart_agent()
    assert not machine.gpu().healthy
    outlook = machine.gpu().outlook
    assert outlook and outlook.until == int(machine.wall) + 200
    assert machine.gpu().sick_since == int(machine.wall) - 100
    machine.wait(199.0)
    assert not machine.gpu().healthy
    machine.wait(2.0)
    assert machine.gpu().healthy


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_wrong_for_a_moment_closes_a_gpu_for_its_hold(
    machine: Machine, step: float, restarts: bool
) -> None:
    """However far away the error seems to be once the clock is right."""
    machine.step(step)
    machine.fail()
    machine.step(-step)
    if restarts:
        machine.restart_agent()
    machine.wait(299.0)
    assert not machine.gpu().healthy
    machine.wait(2.0)
    assert machine.gpu().healthy
    machine.wait(POLICY.probation)
    assert not machine.gpu().doubtful


def test_a_clock_that_is_set_before_its_time_is_known_loses_no_hold(machine: Machine) -> None:
    """A machine that boots in 1970 with an error, until NTP sets its clock; monotonic time has begun again, too."""
    machine.fail()
    machine.file.close()
    machine.wall, machine.monotonic = 30.0, 10.0
    machine.boots("boot-2")
    assert machine.gpu().healthy and machine.gpu().doubtful, "a boot ends a hold; probation begins"
    machine.fail()
    machine.wall += NOW
    machine.wait(299.0)
    assert not machine.gpu().healthy
    machine.wait(500.0)
    assert machine.gpu().healthy and machine.gpu().doubtful


@pytest.mark.parametrize("step", STEPS)
def test_the_times_of_links_move_too(machine: Machine, step: float) -> None:
    """As they are published."""
    machine.lose_link()
    machine.wait(100.0)
    machine.step(step)
    (fault,) = machine.health.marked(discovery().status).link_faults
    assert fault.since == int(machine.wall) - 100


def test_a_boot_is_no_step(machine: Machine) -> None:
    """The monotonic clock begins again with it, and the wall clock goes on."""
    machine.lose_link()
    machine.wait(100.0)
    machine.file.close()
    machine.wall, machine.monotonic = machine.wall + 60.0, 10.0
    machine.boots("boot-2")
    (fault,) = machine.health.marked(discovery().status).link_faults
    assert fault.since == int(NOW)


def test_small_steps_leave_what_is_published_as_it_is(machine: Machine) -> None:
    """A leap second is no news."""
    machine.fail()
    before = machine.gpu()
    machine.step(1.0)
    assert machine.gpu() == before


def record_at(now: float) -> GpuRecord:
    """Build a record in which each time that there can be is set."""
    incident = GpuIncident(now - 5.0, now - 4.0, "xid 79")
    closure = Closure("xid 79", now - 4.0, now + 300.0, Way.RESET, reset_at=now - 2.0, clear_at=now - 1.0)
    return GpuRecord(
        incidents=(incident,),
        applications=(incident,),
        closure=closure,
        closed_before=closure,
        failure=GpuFailure("row remap failed", now - 3.0, Repair.NONE),
        repairs=(now - 7.0, now - 6.0),
        suspect_until=now + 50.0,
        throttled=(Spell(now - 9.0, now - 8.0), Spell(now - 7.0)),
        concerns=(HeldConcern(Concern.HOT, now - 9.0, now - 8.0), HeldConcern(Concern.PCIE, now - 7.0)),
        told=Verdict(State.QUARANTINED, until=now + 300.0, sick_since=now - 4.0),
    )


@pytest.mark.parametrize("step", STEPS)
def test_each_time_of_a_record_moves(step: float) -> None:
    """And what has never happened has not happened afterwards."""
    assert moved(record_at(NOW), step) == record_at(NOW + step)
    assert moved(GpuRecord(), step) == GpuRecord()
    assert last_event(record_at(NOW), POLICY) == NOW - 1.0


def test_what_happened_in_the_future_counts_as_of_now() -> None:
    """Of a file that says no more: ten years ahead are not ten years closed, and a day later all is well."""
    health = HealthMachine(POLICY)
    health.has(["g", "h"])
    wrong = NOW + 10 * YEAR
    health.told("g", evidence.Xid(CLOSES), wrong)
    assert health.verdict("g", wrong + 1.0).state is State.QUARANTINED
    kept = HealthMachine(POLICY, health.records)
    for each in (health, kept):
        found = each.verdict("g", NOW)
        assert (found.state, found.until) == (State.QUARANTINED, NOW + POLICY.hold)
        assert each.next_change(NOW) == NOW + POLICY.hold
        assert each.verdict("g", NOW + 86_400.0).state is State.HEALTHY


@pytest.mark.parametrize(
    "events",
    [
        [(evidence.Uncorrected(1), 0.0)],
        [(evidence.Throttled(True), 0.0), (evidence.Throttled(False), 400.0)],
        [(evidence.WithoutSpares(1), 0.0), (evidence.WithoutSpares(0), 1.0)],
        [(evidence.Xid(13), 0.0), (evidence.Xid(13), 200.0)],
    ],
    ids=["memory", "heat", "rows", "programs"],
)
def test_no_suspicion_from_the_future_outlasts_its_time(events: list[tuple[evidence.Evidence, float]]) -> None:
    """It begins now, and ends in a day at the latest."""
    health, later = HealthMachine(POLICY), NOW + 10 * YEAR
    health.has(["g"])
    health.told("g", evidence.Uncorrected(0), later)
    for told, seconds in events:
        health.told("g", told, later + seconds)
    assert health.verdict("g", NOW).state is State.SUSPECT
    assert health.verdict("g", NOW + POLICY.day).state is State.HEALTHY


@pytest.mark.parametrize("step", STEPS)
def test_a_link_stays_out_for_five_minutes_whatever_the_wall_clock_does(step: float) -> None:
    """Moved with the clock, and, where that is not known, not later than now."""
    links, wall = NodeLinks(POLICY), NOW
    for is_down in (False, True, False):
        links.looked_at("g", 0, wall, is_down=is_down)
    links.move(step)
    wall += step + POLICY.link_up - 1.0
    assert not links.looked_at("g", 0, wall, is_down=False)
    assert links.looked_at("g", 0, wall + 1.0, is_down=False)
    late = NodeLinks(POLICY)
    for is_down in (False, True, False):
        late.looked_at("g", 0, NOW + 10 * YEAR, is_down=is_down)
    assert not late.looked_at("g", 0, NOW, is_down=False)
    assert late.looked_at("g", 0, NOW + POLICY.link_up, is_down=False)
