"""Pods that stand for others: they are never placed, and do not count among the pods that wait."""

from __future__ import annotations

import msgspec
import pytest

from extender.binding.bind import bind
from extender.binding.outcome import BindTarget, Failure, NotBound
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.stands_for import NEVER_PLACED
from extender.telemetry.gauges import gauges_of
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import PAIRS, args, at, cluster, node
from tests.extender.scattered import NAMESPACE, placeholder, ring


def test_a_stand_in_is_never_placed() -> None:
    """Not even on an empty machine; and a bind of it is refused."""
    state = cluster(node("n1", PAIRS), placeholder(ring("r1"), 2))
    [stand_in] = state.pods
    answer = filter_nodes(state, args(stand_in.pod, "n1"), at())
    assert (answer.node_names, answer.failed_nodes) == ([], None)
    assert NEVER_PLACED in (answer.failed_and_unresolvable_nodes or {})["n1"]
    steps = bind(state, BindTarget(*stand_in.key, stand_in.uid, "n1"), at, deadline=1.0)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert isinstance(end.value.value, NotBound)
    assert end.value.value.failure is Failure.BAD_REQUEST


def test_stand_ins_count_as_nothing_but_stand_ins() -> None:
    """Not as pods that wait, and not as demand; one that somebody has bound holds GPUs like any other pod."""
    stands = placeholder(ring("r1"), 2)
    state = cluster(node("n1", PAIRS), ring("r1"), stands)
    assert (len(state.indexes.stand_ins), gauges_of(state)["pods_waiting"]) == (1, 1)
    metadata = msgspec.structs.replace(stands.metadata, resource_version="2")
    state.pods.changed(Pod(metadata, msgspec.structs.replace(stands.spec, node_name="n1")))
    assert (len(state.indexes.stand_ins), gauges_of(state)["pods"]) == (0, 2)


@pytest.mark.parametrize("is_bound", [False, True], ids=["waiting", "bound"])
def test_a_stand_in_elsewhere_hides_none_of_a_namespace(*, is_bound: bool) -> None:
    """Anybody may say in a namespace of theirs that a pod stands for another one."""
    ours, theirs = (placeholder(ring("r1"), 2, namespace=namespace) for namespace in (NAMESPACE, "evil"))
    metadata = msgspec.structs.replace(theirs.metadata, name="foreign", uid="foreign")
    theirs = msgspec.structs.replace(theirs, metadata=metadata)
    pods = [ours, theirs]
    if is_bound:
        pods = [Pod(item.metadata, msgspec.structs.replace(item.spec, node_name="n1")) for item in pods]
    stand_ins = cluster(node("n1", PAIRS), *pods).indexes.stand_ins
    by_pod = stand_ins.bound_by_pod if is_bound else stand_ins.by_pod
    assert [stand_in.name for stand_in in by_pod(NAMESPACE).values()] == [ours.metadata.name]
    assert by_pod("ml") == {}
