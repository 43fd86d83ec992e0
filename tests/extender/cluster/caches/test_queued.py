"""Pods behind our own scheduling gate are known by UID, and whether other gates keep them, too."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.objects.kept_pods import lean
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.pod_demand import asked_by
from tests.extender.builders import cluster, node, pod
from topology.annotations import keys

OTHER = "kueue.x-k8s.io/admission"


def gated(*gates: str, name: str = "p1", on: str | None = None, phase: str | None = None, version: int = 1) -> Pod:
    """Return a pod as the cache gets it."""
    built = pod(name, 2, on=on, phase=phase, version=version)
    built = replace(built, spec=replace(built.spec, scheduling_gates=[{"name": gate} for gate in gates] or None))
    return lean(built, asked_by(built))


@pytest.mark.parametrize(
    ("gates", "is_queued", "awaits_plan"),
    [
        ((), False, False),
        ((OTHER,), False, False),
        ((keys.PLAN_GATE,), True, True),
        ((keys.PLAN_GATE, OTHER), True, False),
        ((OTHER, keys.PLAN_GATE), True, False),
        (("a", "b", OTHER, keys.PLAN_GATE), True, False),
    ],
)
def test_a_pod_awaits_its_plan_when_our_gate_is_the_last(
    gates: tuple[str, ...], is_queued: bool, awaits_plan: bool
) -> None:
    """In whichever order the gates stand, and however many there are: two of them are kept."""
    state = cluster(node("n1"), gated(*gates))
    known = state.pods.get("p1")
    assert known
    assert len(known.pod.spec.scheduling_gates or ()) <= 2
    assert ("p1" in state.indexes.gates.queued, known.awaits_plan) == (is_queued, awaits_plan)


def test_a_pod_leaves_the_queue_when_its_gate_goes_or_it_ends() -> None:
    """A new version of it says so, or its deletion."""
    state = cluster(node("n1"), *(gated(keys.PLAN_GATE, name=name) for name in ("opened", "ended", "gone")))
    state.pods.changed(gated(name="opened", version=2))
    state.pods.changed(gated(keys.PLAN_GATE, name="ended", phase="Failed", version=2))
    state.pods.deleted(gated(keys.PLAN_GATE, name="gone", version=2))
    assert state.indexes.gates.queued == {}


def test_a_namespace_holds_what_its_bound_pods_ask_for() -> None:
    """Until they end; pods that wait hold nothing."""
    state = cluster(node("n1"), gated(name="a", on="n1"), gated(name="b", on="n1"), gated(keys.PLAN_GATE, name="c"))
    assert state.indexes.use.held == {"ml": 4}
    state.pods.changed(gated(name="a", on="n1", phase="Succeeded", version=2))
    assert state.indexes.use.held == {"ml": 2}
    state.pods.deleted(gated(name="b", on="n1", version=2))
    assert state.indexes.use.held == {}
