"""Pods whose GPUs are devices of ResourceClaims, as a feature reads these."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.objects.gpu_pods import ClaimedRequest
from extender.cluster.objects.kinds import Pod, PodClaim, PodStatus
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from tests.extender.builders import pod
from topology.errors import RequestError
from topology.request.gpu_request import GpuRequest, PodRequest

TWO = ClaimedRequest(PodRequest(GpuRequest(2, by_claim=True)))


def claiming(name: str = "p", on: str | None = None, version: int = 1) -> Pod:
    built = pod(name, 0, on=on, version=version)
    (main,) = built.spec.containers
    bare = [replace(main, resources=replace(main.resources, limits=None))]
    return replace(built, spec=replace(built.spec, containers=bare, resource_claims=[PodClaim("gpus", "claim")]))


def told(state: ClusterState, *pods: Pod) -> None:
    """Let the watch show these pods as it does."""
    feed = PodFeed(state)
    for item in pods:
        if (kept := feed.keep(item)) is not None:
            feed.changed(kept)


def test_without_a_feature_such_pods_ask_for_nothing() -> None:
    state = ClusterState()
    told(state, claiming())
    assert len(state.pods) == 0


def test_a_pod_is_read_when_its_claims_appear() -> None:
    """Until then nothing is known of it; the pod itself need not change."""
    state, requests = ClusterState(), dict[str, ClaimedRequest]()
    state.claimed.reader = lambda item: requests.get(item.metadata.uid)
    told(state, claiming())
    assert state.pods.get("p") is None
    requests["p"] = TWO
    state.pods.read_again("p")
    known = state.pods.get("p")
    assert known is not None and known.gpus == 2
    assert state.request_of(known.pod).request.by_claim


def test_it_waits_in_the_queue_until_its_claims_are_allocated() -> None:
    """Also without a gate: kube-scheduler cannot place it before."""
    state = ClusterState()
    state.claimed.reader = lambda item: TWO
    told(state, claiming())
    assert [*state.indexes.gates.queued] == ["p"]
    state.claimed.reader = lambda item: ClaimedRequest(TWO.request, is_allocated=True)
    state.pods.read_again("p")
    assert [*state.indexes.gates.queued] == []


def test_what_its_claims_requested_stays_when_they_are_gone() -> None:
    """Claims of an ended pod go before the pod, and its last version has to be heard of."""
    state = ClusterState()
    state.claimed.reader = lambda item: TWO
    told(state, claiming(on="n1"))
    state.claimed.reader = lambda item: None
    ended = claiming(on="n1", version=2)
    told(state, replace(ended, status=PodStatus(phase="Succeeded")))
    known = state.pods.get("p")
    assert known is not None and known.ended and known.gpus == 2
    PodFeed(state).deleted(ended)
    assert state.pods.get("p") is None and state.claimed.get("p") is None


def test_a_refusal_is_what_anybody_hears_who_reads_the_request() -> None:
    state = ClusterState()
    state.claimed.reader = lambda item: ClaimedRequest(None, "no such class")
    told(state, claiming())
    with pytest.raises(RequestError, match="no such class"):
        state.request_of(claiming())


def test_gpus_of_a_device_plugin_count_whatever_claims_a_bound_pod_has() -> None:
    """Nobody binds such a pod; if somebody does, its GPUs are not free."""
    state = ClusterState()
    state.claimed.reader = lambda item: ClaimedRequest(None, "requested in addition to a claim")
    both = pod("p", 3, on="n1")
    told(state, replace(both, spec=replace(both.spec, resource_claims=[PodClaim("gpus", "claim")])))
    known = state.pods.get("p")
    assert known is not None and known.gpus == 3


def test_a_list_forgets_pods_with_claims_that_are_gone() -> None:
    state = ClusterState()
    state.claimed.reader = lambda item: None
    PodFeed(state).replaced([claiming("a"), claiming("b")])
    PodFeed(state).replaced([claiming("b")])
    assert state.claimed.uids == ["b"]


def test_the_pods_that_name_a_claim_are_known_by_its_namespace_and_name() -> None:
    """Pods that are gone are not among them, whether an event or a list says so."""
    state = ClusterState()
    state.claimed.reader = lambda item: None
    told(state, *(claiming(name) for name in "abc"), claiming("a", version=2))
    namespace = claiming().metadata.namespace
    assert sorted(state.claimed.naming(namespace, "claim")) == ["a", "b", "c"]
    assert state.claimed.naming("other", "claim") == state.claimed.naming(namespace, "gpus") == []
    PodFeed(state).deleted(claiming("a"))
    PodFeed(state).replaced([claiming("b")])
    assert state.claimed.naming(namespace, "claim") == ["b"]
    PodFeed(state).deleted(claiming("b"))
    assert not state.claimed._naming
