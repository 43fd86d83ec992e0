"""The rest of a group hears of a pod that has to go, by whomever, and once."""

from __future__ import annotations

import msgspec

from extender.cluster.objects.gpu_pods import why_evicted
from extender.cluster.objects.kept_pods import lean
from extender.cluster.objects.kinds import Pod, PodCondition
from extender.cluster.objects.pod_demand import asked_by
from tests.extender.builders import cluster, gpus, node, pod
from topology.annotations import keys

ON_N1 = {name: gpus("n1", position) for position, name in enumerate(("p", "near", "other"))}


def member(name: str, group: str = "llama", *, version: int = 1, evicted: bool = False, phase: str = "Running") -> Pod:
    """Build a pod of a group that runs on n1; one that is evicted says so among other conditions."""
    built = pod(
        name, 1, on="n1", placed=ON_N1[name], phase=phase, terminated=False, wants={keys.GROUP: group}, version=version
    )
    conditions = [
        PodCondition("Ready", "True"),
        PodCondition("DisruptionTarget", str(evicted), "EvictionByEvictionAPI"),
    ]
    item = msgspec.structs.replace(built, status=msgspec.structs.replace(built.status, conditions=conditions))
    return lean(item, asked_by(item))


def test_the_others_of_its_group_hear_of_it_once() -> None:
    """However many versions say so; another group's do not."""
    state = cluster(node(), member("p"), member("near"), member("other", "bert"))
    assert state.indexes.evictions.news() == []
    for version in (2, 3):
        state.pods.changed(member("p", version=version, evicted=True))
    (news,) = state.indexes.evictions.news()
    assert (news.pod.key[1], news.why) == ("p", "EvictionByEvictionAPI")
    assert [other.key[1] for other in news.others] == ["near"]
    assert state.indexes.evictions.news() == []


def test_it_may_be_gone_when_they_are_told() -> None:
    """A pod without grace is deleted a moment after it was evicted."""
    state = cluster(node(), member("p"), member("near"))
    state.pods.changed(member("p", version=2, evicted=True))
    state.pods.deleted(member("p", version=3, evicted=True))
    assert [news.pod.key[1] for news in state.indexes.evictions.news()] == ["p"]


def test_one_that_has_ended_is_no_news() -> None:
    """The kubelet leaves the same condition on pods that it has ended."""
    state = cluster(node(), member("p", evicted=True, phase="Failed"), member("near"))
    assert state.indexes.evictions.news() == []


def test_of_conditions_only_this_one_is_kept() -> None:
    """Pods have half a dozen, and there are many pods."""
    assert member("p").status.conditions is None
    kept = member("p", evicted=True)
    assert [each.type for each in kept.status.conditions or ()] == ["DisruptionTarget"]
    assert why_evicted(kept) == "EvictionByEvictionAPI"
