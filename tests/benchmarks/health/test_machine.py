"""What holds of the health machine whatever it is told."""

from __future__ import annotations

import math
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from agent.health.evidence import (
    Asked,
    Back,
    Booted,
    Cleared,
    Cordoned,
    Evidence,
    Lost,
    RecoveryAction,
    Reloaded,
    RemapFailed,
    Spent,
    Throttled,
    Uncorrected,
    Xid,
)
from agent.health.memory import Memory, decode_memory, encode_memory
from agent.health.node import NodeHealth
from agent.health.policy import Policy
from agent.health.record import State

POLICY = Policy()
GPUS = ("a", "b", "c", "d")
XIDS = (13, 43, 48, 74, 78, 79, 109, 142, 149)
EVIDENCE: tuple[Evidence, ...] = (
    *map(Xid, XIDS),
    *map(Asked, (None, *RecoveryAction)),
    Lost(),
    Back(),
    Uncorrected(0),
    Uncorrected(3),
    RemapFailed(),
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
STEPS = st.lists(
    st.tuples(st.sampled_from(GPUS), st.sampled_from(EVIDENCE), st.sampled_from((0.0, 1.0, 200.0, 4000.0, 90000.0))),
    max_size=40,
)
REPAIRS: tuple[Evidence, ...] = (Back(), Asked(RecoveryAction.NONE), Cordoned(""), Throttled(False), Cleared())
CLOSING = (Lost(), RemapFailed(), Asked(RecoveryAction.GPU_RESET), Xid(48), Xid(74), Xid(78), Xid(79), Xid(142))
LONGEST = POLICY.longest_hold + POLICY.probation + POLICY.day


def node() -> NodeHealth:
    """Return a node of four healthy GPUs."""
    health = NodeHealth(POLICY)
    health.has(GPUS)
    return health


def states(health: NodeHealth, now: float) -> list[State]:
    return [health.verdict(gpu, now).state for gpu in GPUS]


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


@given(STEPS)
def test_a_restart_of_the_agent_changes_nothing(steps: list[tuple[str, Evidence, float]]) -> None:
    """What is kept is all there is."""
    health, now = node(), 0.0
    for gpu, evidence, wait in steps:
        now += wait
        health.told(gpu, evidence, now)
        kept = decode_memory(encode_memory(Memory(dict(health.records), "boot")))
        assert (kept.gpus, kept.boot) == (health.records, "boot")
        assert states(NodeHealth(POLICY, kept.gpus), now + 1) == states(health, now + 1)


@given(STEPS, st.sampled_from(GPUS))
def test_a_sick_gpu_never_closes_its_neighbours(steps: list[tuple[str, Evidence, float]], sick: str) -> None:
    """All that is told of one GPU leaves the others healthy."""
    health, now = node(), 0.0
    for _, evidence, wait in steps:
        now += wait
        health.told(sick, evidence, now)
        assert {health.verdict(gpu, now).state for gpu in GPUS if gpu != sick} == {State.HEALTHY}


@given(STEPS)
def test_memory_is_bounded(steps: list[tuple[str, Evidence, float]]) -> None:
    """However much is told."""
    health, now = node(), 0.0
    for round_ in range(20):
        for gpu, evidence, wait in steps:
            now += wait + round_
            health.told(gpu, evidence, now)
    assert len(encode_memory(Memory(dict(health.records)))) < 40_000


def test_all_short_sequences_keep_the_laws() -> None:
    """All pairs and triples of what can be told of one GPU, at three distances: the machine's small world, whole."""
    seen = set[State]()
    for first, second, third in product(EVIDENCE, repeat=3):
        for wait in (1.0, 400.0, 5000.0):
            health = node()
            for step, evidence in enumerate((first, second, third)):
                health.told("a", evidence, step * wait)
            now = 2 * wait
            verdict = health.verdict("a", now)
            seen.add(verdict.state)
            assert verdict.state is State.HEALTHY or verdict.reason
            person_knows = first == third and second == Cleared()  # and says that it is well all the same
            if third in CLOSING and not person_knows:
                assert not verdict.state.takes_pods
    assert seen == {*State}
