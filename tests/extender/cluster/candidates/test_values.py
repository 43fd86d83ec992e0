"""What free GPUs are worth to the extender: kept in step with machines and pods, and decided by at once."""

from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.values import Values
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from tests.extender.builders import cluster, node, pod
from topology.annotations import keys
from topology.placement.topology_classes import TopologyClasses
from topology.placement.verdict import Placement
from topology.request.gpu_request import Communication, GpuRequest
from topology.value.demand import PRIOR_PODS, TYPICAL_KINDS
from topology.value.fragmentation import PodKind
from topology.value.score import Weights

versions = count()
SINGLE = GpuRequest(1, communication=Communication.NONE)


def appraise(values: Values) -> int:
    return sum(1 for _ in values.appraise())


def with_pods(count: int, gpus: int) -> ClusterState:
    return cluster(node("n1"), *(pod(f"p{number}", gpus) for number in range(count)))


def of(namespace: str, made: Pod) -> Pod:
    return replace(made, metadata=replace(made.metadata, namespace=namespace))


def test_every_kind_of_machine_is_appraised_once() -> None:
    """Then there is nothing to do until pods of another mix come."""
    state = cluster(node("n1"), node("n2"))
    assert appraise(state.values) > 0
    assert appraise(state.values) == 0


def test_a_machine_that_comes_later_is_appraised_too() -> None:
    """Nodes of a new kind join a cluster at any time."""
    state = cluster(node("n1"))
    appraise(state.values)
    state.nodes.changed(node("n2", machine_name="hgx-h100"))
    assert appraise(state.values) > 0


def test_verdicts_follow_new_values_at_once() -> None:
    """The order of nodes by score is not that of yesterday's values."""
    state = cluster(node("n1"))
    before = state.shapes.order(SINGLE).verdicts[0]
    appraise(state.values)
    after = state.shapes.order(SINGLE).verdicts[0]
    assert isinstance(before, Placement)
    assert isinstance(after, Placement)
    assert before.score != after.score


def test_demand_is_learnt_from_pods_once_each() -> None:
    """However often the watch tells of them."""
    state = with_pods(int(PRIOR_PODS) * 2, gpus=2)
    for known in [*state.pods]:
        state.pods.changed(known.pod)
    appraise(state.values)
    assert abs(dict(state.values.demand)[2] - (1 * 0.2 + 2 * 1.0) / 3) < 1e-9


def test_typical_pods_are_handed_on_with_a_word() -> None:
    """Whoever decides by them is told to forget what was decided before."""
    told: list[tuple[tuple[PodKind, float], ...]] = []
    values = Values(TopologyClasses(), Weights(), lambda: told.append(values.typical))
    for number in range(int(PRIOR_PODS) * 2):
        values.meet(f"uid-{number}", PodKind(1, 500, 4000), running=False)
    appraise(values)
    assert told[0] == ((PodKind(1, 500, 4000), 1.0),)


def test_pods_that_teach_something_are_told_of_at_once() -> None:
    """Nobody has to look again and again whether they have come, and a few of them are no news."""
    values, met, woken = Values(TopologyClasses(), Weights(), lambda: None), count(1), []
    values.wake = lambda: woken.append(values.demand)
    few = int(1.5 * PRIOR_PODS)
    for _ in range(few):
        values.meet(f"uid-{next(met)}", PodKind(1), running=False)
    assert not woken
    values.meet(f"uid-{next(met)}", PodKind(1), running=False)
    assert len(woken) == 1
    appraise(values)
    values.meet(f"uid-{next(met)}", PodKind(1), running=False)
    assert len(woken) == 1


def test_a_few_pods_teach_nothing() -> None:
    """The configured mix stands until there is something to go by."""
    state = with_pods(5, gpus=2)
    before = state.values.demand
    appraise(state.values)
    assert state.values.demand == before


def test_pods_that_hold_their_gpus_for_long_count_for_more() -> None:
    """Those that are gone, and those that have stopped, hold them no longer."""
    values = Values(TopologyClasses(), Weights(demand=((1, 0.5), (8, 0.5))), lambda: None)
    for number in range(200):
        for size in (1, 8):
            values.meet(f"{size}/{number}", PodKind(size), running=True)
        values.meet(f"1/{number}", PodKind(1), running=False)
        values.forget(f"8/{number - 9}")
    appraise(values)
    assert dict(values.demand)[8] > 0.85


def test_what_gone_pods_asked_for_is_remembered() -> None:
    """They are what the pods to come will be like."""
    state = with_pods(int(PRIOR_PODS) * 2, gpus=2)
    for known in [*state.pods]:
        state.pods.deleted(known.pod)
    appraise(state.values)
    assert dict(state.values.demand)[2] > 0.5


@pytest.mark.slow
def test_a_tenant_with_ever_new_patterns_leaves_the_kinds_of_other_namespaces() -> None:
    """Values are computed for a bounded number of kinds, among them the others'; the steps to it are as few each time."""
    globs = ({keys.GPU_MODEL: ",".join(f"a{number}-{i}?" for i in range(20))} for number in count())
    state, steps = cluster(node("n1"), node("n2", machine_name="hgx-h100")), list[int]()
    for _ in range(3):
        for number in range(400):
            version = next(versions)
            state.pods.changed(of("evil", pod(f"evil-{version}", 1, wants=next(globs))))
            if number < 10:
                state.pods.changed(of("good", pod(f"good-{version}", 2)))
        steps.append(appraise(state.values))
    assert PodKind(2) in dict(state.values.typical)
    assert len(state.values.typical) <= TYPICAL_KINDS
    assert steps[2] <= steps[0] + 2 * TYPICAL_KINDS


def test_a_pod_that_asks_for_more_gpus_than_any_node_has_teaches_nothing() -> None:
    """It goes nowhere, and its size would be one more that values are computed for."""
    state = cluster(node("n1"), *(pod(f"p{number}", 1_000 + number) for number in range(200)))
    before = state.values.demand
    appraise(state.values)
    assert (state.values.demand, state.values.typical) == (before, ())
