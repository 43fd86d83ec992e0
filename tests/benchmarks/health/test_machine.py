"""What holds of the health machine whatever it is told."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.health.evidence import (
    Back,
    Booted,
    Cleared,
    Cordoned,
    Corrected,
    Evidence,
    LinkErrors,
    Lost,
    Margin,
    RecoveryAction,
    RecoveryRequested,
    Reloaded,
    RemapFailed,
    Replays,
    Spent,
    SramExceeded,
    Throttled,
    Uncorrected,
    WithoutSpares,
    Xid,
)
from agent.health.memory import HealthMemory, decode_memory, encode_memory
from agent.health.node import HealthMachine
from agent.health.policy import HealthPolicy
from agent.health.record import State

POLICY = HealthPolicy()
GPUS = ("a", "b", "c", "d")
ALARMS = (Corrected(5000.0), WithoutSpares(1), LinkErrors(500.0), Replays(60.0), Margin(-1))
ALL_CLEAR = (Corrected(0.0), WithoutSpares(0), LinkErrors(0.0), Replays(0.0), Margin(20))
XIDS = (13, 43, 48, 74, 78, 79, 109, 142, 149)
EVIDENCE: tuple[Evidence, ...] = (
    *map(Xid, XIDS),
    *map(RecoveryRequested, (None, *RecoveryAction)),
    Lost(),
    Back(),
    Uncorrected(0),
    Uncorrected(3),
    RemapFailed(),
    SramExceeded(),
    *ALARMS,
    *ALL_CLEAR,
    Throttled(True),
    Throttled(False),
    Spent(9),
    Spent(5),
    Reloaded(),
    Booted(),
    Cleared(),
    Cordoned("cordoned"),
    Cordoned(""),
)


def steps_of(evidence: tuple[Evidence, ...]) -> st.SearchStrategy[list[tuple[str, Evidence, float]]]:
    """Return sequences of such evidence, with how long to wait before each."""
    waits = st.sampled_from((0.0, 1.0, 200.0, 700.0, 4000.0, 90000.0))
    return st.lists(st.tuples(st.sampled_from(GPUS), st.sampled_from(evidence), waits), max_size=40)


STEPS = steps_of(EVIDENCE)
REPAIRING = (RecoveryRequested, Back, Spent, Reloaded, Booted, Cleared)
REPAIRS: tuple[Evidence, ...] = (
    Back(),
    RecoveryRequested(RecoveryAction.NONE),
    Cordoned(""),
    Throttled(False),
    *ALL_CLEAR,
    Cleared(),
)
CLOSING = (
    Lost(),
    RemapFailed(),
    SramExceeded(),
    RecoveryRequested(RecoveryAction.GPU_RESET),
    Xid(48),
    Xid(74),
    Xid(78),
    Xid(79),
    Xid(142),
)
LONGEST = POLICY.longest_hold + POLICY.probation + POLICY.day


def node() -> HealthMachine:
    """Return a node of four healthy GPUs."""
    health = HealthMachine(POLICY)
    health.has(GPUS)
    return health


def states(health: HealthMachine, now: float) -> list[State]:
    return [health.verdict(gpu, now).state for gpu in GPUS]


@pytest.mark.slow
@given(STEPS)
def test_a_repaired_gpu_that_a_person_clears_is_healthy(steps: list[tuple[str, Evidence, float]]) -> None:
    """Whatever was before; only heat that has just ended may still show for some minutes."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
    for gpu in GPUS:
        for repair in REPAIRS:
            health.told(gpu, repair, now)
    assert set(states(health, now)) == {State.HEALTHY}


@pytest.mark.slow
@given(STEPS)
def test_time_alone_reopens_every_gpu_that_nothing_holds_back(steps: list[tuple[str, Evidence, float]]) -> None:
    """After the longest hold, probation and a day: it is healthy, or something is there that time does not cure, and says so."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
    later = now + LONGEST
    for gpu in GPUS:
        verdict = health.verdict(gpu, later)
        assert verdict.state is State.HEALTHY or (verdict.reason and verdict.next)


@pytest.mark.slow
@given(STEPS)
def test_every_change_that_time_brings_is_announced(steps: list[tuple[str, Evidence, float]]) -> None:
    """Between two moments that `next_change` names, no verdict changes."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
    for _ in range(50):
        change = health.next_change(now)
        if math.isinf(change):
            change = now + LONGEST
        between = max(now, change - 0.01)  # heat is told a millisecond late
        assert states(health, now) == states(health, between)
        now = change


@pytest.mark.slow
@given(STEPS)
def test_what_people_were_told_is_what_holds(steps: list[tuple[str, Evidence, float]]) -> None:
    """Whoever follows the changes alone knows every state, and hears nothing twice."""
    health, now, heard = node(), 0.0, dict.fromkeys(GPUS, State.HEALTHY)
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
        for change in health.changes(now):
            assert change.before.state is heard[change.gpu]
            heard[change.gpu] = change.after.state
        assert list(heard.values()) == states(health, now)
        assert health.changes(now) == []


@given(STEPS)
def test_a_gpu_is_sick_only_while_it_takes_no_pods(steps: list[tuple[str, Evidence, float]]) -> None:
    """And where it takes none it is sick, or a person has taken it out."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
        for verdict in (health.verdict(each, now) for each in GPUS):
            is_sick = verdict.sick_since is not None
            assert is_sick <= (not verdict.state.takes_pods)
            assert verdict.state.takes_pods or is_sick or verdict.reason == "cordoned"


@pytest.mark.slow
@given(STEPS)
def test_a_restart_of_the_agent_changes_nothing(steps: list[tuple[str, Evidence, float]]) -> None:
    """What is kept is all there is."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
        kept = decode_memory(encode_memory(HealthMemory(dict(health.records), "boot")))
        assert (kept.gpus, kept.boot) == (health.records, "boot")
        assert states(HealthMachine(POLICY, kept.gpus), now + 1) == states(health, now + 1)


@pytest.mark.slow
@given(STEPS, st.lists(st.sampled_from((0.0, 0.0, 3600.0, -3600.0, 1e8, -1e8)), min_size=40, max_size=40))
def test_a_clock_that_steps_changes_nothing(steps: list[tuple[str, Evidence, float]], clock_steps: list[float]) -> None:
    """What is remembered moves with it: each state lasts as long as with a clock that does not step."""
    health, stepped, now, offset = node(), node(), 1e9, 0.0
    for (gpu, evidence, wait), step in zip(steps, clock_steps, strict=False):
        stepped.move(step)
        now, offset = now + wait, offset + step
        health.told(gpu, evidence, now)
        stepped.told(gpu, evidence, now + offset)
        assert stepped.next_change(now + offset) - offset == pytest.approx(health.next_change(now), abs=0.01)
        for name in GPUS:
            plain, moved = health.verdict(name, now), stepped.verdict(name, now + offset)
            assert replace(moved, until=None, sick_since=None) == replace(plain, until=None, sick_since=None)
            assert (moved.until is None) == (plain.until is None)
            assert moved.until is None or moved.until - offset == pytest.approx(plain.until, abs=0.01)
            assert (stepped.doubt(name, now + offset) is None) == (health.doubt(name, now) is None)


@pytest.mark.slow
@given(STEPS, st.sampled_from(GPUS))
def test_a_sick_gpu_never_closes_its_neighbours(steps: list[tuple[str, Evidence, float]], sick: str) -> None:
    """All that is told of one GPU leaves the others healthy."""
    health, now = node(), 0.0
    for _, evidence, wait in steps:
        now += wait
        health.told(sick, evidence, now)
        assert {health.verdict(gpu, now).state for gpu in GPUS if gpu != sick} == {State.HEALTHY}


@pytest.mark.slow
@given(steps_of((*ALARMS, *ALL_CLEAR, Throttled(True), Throttled(False), Uncorrected(0), Uncorrected(3))))
def test_what_only_makes_suspect_never_takes_a_gpu_out(steps: list[tuple[str, Evidence, float]]) -> None:
    """However much of it comes together; and ten minutes after the last of it, a day for memory errors, nothing is said."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
        assert set(states(health, now)) <= {State.HEALTHY, State.SUSPECT}
    for gpu in GPUS:
        for symptom in (*ALL_CLEAR, Throttled(False)):
            health.told(gpu, symptom, now)
    assert set(states(health, now + POLICY.day)) == {State.HEALTHY}


@pytest.mark.slow
@given(steps_of((*map(Xid, (13, 43, 74, 78, 109)), *ALARMS, *ALL_CLEAR)))
def test_no_gpu_is_out_for_longer_than_the_longest_hold(steps: list[tuple[str, Evidence, float]]) -> None:
    """Where nothing asks for a reset; only a count of incidents, which the policy names, keeps one out for longer."""
    health, now, closed_at = node(), 0.0, dict.fromkeys(GPUS, -math.inf)
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
        closed_at[gpu] = now if evidence in {Xid(74), Xid(78)} else closed_at[gpu]
        for name in GPUS:
            later = closed_at[name] + POLICY.longest_hold
            verdict = health.verdict(name, max(now, later))
            assert verdict.state.takes_pods or verdict.reason.startswith(("3 incidents", "4 incidents", "5 incidents"))


@pytest.mark.slow
@given(STEPS)
def test_a_failed_gpu_is_offered_only_after_a_repair_or_a_persons_word(
    steps: list[tuple[str, Evidence, float]],
) -> None:
    """No symptom that passes, no time, and no error after it opens it."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        failed = {name for name in GPUS if health.verdict(name, now).state is State.FAILED}
        health.told(gpu, evidence, now)
        opened = {name for name in failed if health.verdict(name, now).state.takes_pods}
        assert opened <= ({gpu} if isinstance(evidence, REPAIRING) else set())


@pytest.mark.slow
@given(STEPS)
def test_memory_is_bounded(steps: list[tuple[str, Evidence, float]]) -> None:
    """However much is told."""
    health, now = node(), 0.0
    for round_ in range(20):
        for gpu, evidence, wait in steps:
            now += wait + round_
            health.told(gpu, evidence, now)
    assert len(encode_memory(HealthMemory(dict(health.records)))) < 40_000


@pytest.mark.slow
def test_all_short_sequences_keep_the_laws() -> None:
    """All pairs and triples of what can be told of one GPU, at three distances: the machine's small world, whole."""
    seen = set[State]()
    for wait, first, second in product((1.0, 400.0, 5000.0), EVIDENCE, EVIDENCE):
        before = node()
        before.told("a", first, 0.0)
        before.told("a", second, wait)
        for third in EVIDENCE:
            health, now = HealthMachine(POLICY, before.records), 2 * wait
            health.told("a", third, now)
            verdict = health.verdict("a", now)
            seen.add(verdict.state)
            assert verdict.state is State.HEALTHY or verdict.reason
            person_knows = first == third and second == Cleared()  # and says that it is well all the same
            if third in CLOSING and not person_knows:
                assert not verdict.state.takes_pods
    assert seen == {*State}
