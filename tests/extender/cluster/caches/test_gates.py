"""`relax-after` counts from when a pod's last scheduling gate went, as each process sees it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.binding.bind import bind
from extender.binding.outcome import BindTarget, NotBound
from extender.cluster.objects.kinds import Pod, PodCondition
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import PAIRS, args, at, cluster, node, pod
from topology.annotations import keys
from topology.effort import finish

WANTS = {keys.REQUIRED_AFFINITY: "nvlink", keys.RELAX_AFTER: "10m"}
TEN_MINUTES = 600.0


def waiting(*gates: str, reason: str = "SchedulingGated", version: int = 1) -> Pod:
    """Return a pod of four GPUs, of which no four are joined on a machine of pairs."""
    built = pod("p", 4, wants=WANTS, version=version)
    spec = replace(built.spec, scheduling_gates=[{"name": gate} for gate in gates] or None)
    conditions = [PodCondition("PodScheduled", "False", reason)] if reason else None
    return replace(built, spec=spec, status=replace(built.status, conditions=conditions))


def fits(state: ClusterState, asked: Pod, seconds: float) -> bool:
    """Return whether filter passes the node; pods are created at zero."""
    return bool(filter_nodes(state, args(asked, "n1"), at(seconds)).node_names)


def test_the_first_attempt_after_the_gates_have_gone_is_not_relaxed() -> None:
    """However old the pod is, and also where this process has never heard of it."""
    assert not fits(cluster(node("n1", PAIRS)), waiting(), 1800.0)
    assert not fits(cluster(node("n1", PAIRS), waiting()), waiting(), 1800.0)


def test_a_pod_relaxes_so_long_after_its_gates_have_gone() -> None:
    """Not after its creation; a later version of the pod changes nothing about that."""
    state = cluster(node("n1", PAIRS), waiting("queue"))
    finish(state.listening(1000.0))
    state.pods.changed(waiting(version=2))
    finish(state.listening(1001.0))
    tried = waiting(reason="Unschedulable", version=3)
    state.pods.changed(tried)
    finish(state.listening(1500.0))
    assert [fits(state, tried, 1001.0 + wait) for wait in (1.0, TEN_MINUTES - 1, TEN_MINUTES)] == [False, False, True]


def test_a_process_that_starts_between_the_last_gate_and_the_first_attempt_knows() -> None:
    """By the condition, which is still there."""
    state = cluster(node("n1", PAIRS), waiting())
    finish(state.listening(2000.0))
    tried = waiting(reason="Unschedulable", version=2)
    state.pods.changed(tried)
    assert [fits(state, tried, 2000.0 + wait) for wait in (TEN_MINUTES - 1, TEN_MINUTES)] == [False, True]


def test_a_pod_without_gates_relaxes_by_its_age() -> None:
    """As one does of which a process heard first when kube-scheduler had tried it."""
    for asked in (waiting(reason=""), waiting(reason="Unschedulable")):
        state = cluster(node("n1", PAIRS), asked)
        assert [fits(state, asked, wait) for wait in (TEN_MINUTES - 1, TEN_MINUTES)] == [False, True]


def test_a_pod_with_gates_is_explained_as_it_will_be_when_they_go() -> None:
    """It fits nowhere, however long it is held."""
    state = cluster(node("n1", PAIRS), waiting("queue"))
    told = inspection.explain(state, "ml", "p", at(1800.0))
    assert told is not None
    assert told.fits == ()


def test_bind_counts_as_filter_does() -> None:
    """What filter refused is not bound relaxed."""
    state = cluster(node("n1", PAIRS), waiting())
    steps = bind(state, BindTarget("ml", "p", "p", "n1"), lambda: at(1800.0), deadline=1e9)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert isinstance(stop.value.value, NotBound)


def test_what_is_gone_or_bound_is_forgotten() -> None:
    """Nothing is left of a pod that waits no more."""
    state = cluster(node("n1", PAIRS), waiting("queue"))
    state.pods.changed(waiting(version=2))
    finish(state.listening(1000.0))
    state.pods.deleted(waiting(version=3))
    gates = state.indexes.gates
    assert (gates._held, gates._opened, gates._since) == (set(), set(), {})
