"""Of each pod the newest version counts, and it is known whether any report could be about another one of its name."""

from __future__ import annotations

import pytest

from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.parts import whole
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from tests.extender.builders import cluster, node, pod, running
from topology.annotations import keys


def cache(*listed: str) -> tuple[PodCache, list[tuple[str, set[str]]]]:
    """Return a cache that has listed these pods unbound, and what it tells from now on."""
    told: list[tuple[str, set[str]]] = []
    pods = PodCache(keys.GPU_RESOURCE, lambda uid, nodes: told.append((uid, nodes)))
    pods.replaced([pod(name) for name in listed])
    told.clear()
    return pods, told


def known(pods: PodCache, uid: str = "p") -> GpuPod:
    found = pods.get(uid)
    assert found
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_and_the_same_one_change_nothing(version: int) -> None:
    """Whatever it says, and nobody is told."""
    pods, told = cache()
    pods.changed(running("p", "n1", "GPU-0", version=2))
    told.clear()
    pods.changed(pod("p", version=version))
    assert (known(pods).node, told) == ("n1", [])
    pods.changed(running("p", "n1", "GPU-1", version=3))
    assert (known(pods).placed, told) == (whole({"GPU-1": "main"}), [("p", {"n1"})])


@pytest.mark.parametrize(
    ("listed", "first", "is_alone"),
    [((), pod("p"), True), ((), pod("p", on="n1"), False), (("p",), pod("p", version=2), False)],
    ids=["heard of unbound", "heard of bound", "listed"],
)
def test_a_pod_is_alone_if_it_was_heard_of_before_it_was_bound(
    listed: tuple[str, ...], first: object, *, is_alone: bool
) -> None:
    """A list may come after it was deleted and made anew under the same name, so it does not count as hearing."""
    pods, _ = cache(*listed)
    pods.changed(first)  # type: ignore[arg-type]
    pods.changed(pod("p", on="n1", version=3))
    assert pods.is_alone(known(pods)) is is_alone


def test_a_pod_is_not_alone_if_one_of_its_name_has_left() -> None:
    """What is seen under the name may be that one's."""
    pods, told = cache()
    pods.changed(pod("p", uid="first"))
    told.clear()
    pods.changed(pod("p", uid="second"))
    assert not pods.is_alone(known(pods, "second"))
    assert (pods.get("first"), told) == (None, [("first", set()), ("second", set())])


def test_a_live_read_is_no_news_of_pods_that_are_not_known_and_of_those_that_are() -> None:
    """Who comes and who goes is the watch's to tell; what is in between a live reply may tell first."""
    pods, told = cache("p")
    pods.learn(pod("q"))
    pods.learn_gone("p")
    assert (pods.get("q"), pods.tombstone("p"), told) == (None, None, [])
    pods.learn(pod("p", on="n1", version=2))
    pods.learn_gone("r")
    assert known(pods).node == "n1"
    assert told == [("p", {"n1"}), ("r", set())]


def test_everybody_who_leaves_is_told_of_with_the_nodes_where_it_was() -> None:
    """By a list, by an event, by a move that cannot be."""
    pods, told = cache()
    for name in ("p", "q"):
        pods.changed(running(name, "n1", "GPU-0"))
    told.clear()
    pods.replaced([running("q", "n1", "GPU-0", version=2)])
    assert {uid for uid, _ in told} == {"p", "q"}
    told.clear()
    pods.deleted(running("q", "n1", "GPU-0", version=3))
    assert told == [("q", {"n1"})]
    assert (pods.bound_to("n1"), pods._bound, pods.waiting, len(pods)) == ([], {}, 0, 0)
    assert pods._uids == {}


def test_a_pod_that_asks_for_no_gpu_is_nobody() -> None:
    """Nor is its end remembered."""
    pods, told = cache()
    pods.changed(pod("p", 0))
    pods.deleted(pod("p", 0))
    assert (len(pods), pods.tombstone("p"), told) == (0, None, [])


@pytest.mark.parametrize(
    ("on", "phase", "node_name", "runs"),
    [("n1", "Running", "n1", "p"), ("n1", "Pending", "n1", None), ("n1", "Running", "n2", None)],
)
def test_who_runs_under_a_name_is_told_by_the_kubelet(on: str, phase: str, node_name: str, runs: str | None) -> None:
    """Bound is not started."""
    pods, _ = cache()
    pods.changed(pod("p", on=on, phase=phase))
    assert pods.runs_as(("ml", "p"), node_name) == runs
    assert pods.runs_as(("ml", "nobody"), node_name) is None


class TestFeed:
    """One way in for everybody."""

    def fed(self) -> tuple[ClusterState, PodFeed]:
        state = cluster(node(cpu="8"), node("n2", cpu="8"))
        return state, PodFeed(state)

    def test_whoever_hears_of_a_pod_hears_of_its_end(self) -> None:
        """Its CPU is free again, and it is remembered as gone."""
        state, feed = self.fed()
        feed.changed(pod("p", on="n1", cpu="4"))
        assert state.views["n1"].shape.cpu_milli == 4000
        feed.deleted(pod("p", on="n1", cpu="4", version=2))
        assert state.views["n1"].shape.cpu_milli == 8000
        assert state.pods.get("p") is None
        tombstone = state.pods.tombstone("p")
        assert tombstone is not None and tombstone.gone

    def test_a_list_is_for_everybody_too(self) -> None:
        """Pods with GPUs are listed as such, the others count with their CPU."""
        state, feed = self.fed()
        feed.replaced([pod("p", on="n1", cpu="1"), pod("q", 0, on="n2", cpu="5")])
        assert [known.uid for known in state.pods] == ["p"]
        assert [state.views[name].shape.cpu_milli for name in ("n1", "n2")] == [8000, 4000]

    @pytest.mark.parametrize(("count", "is_whole"), [(1, True), ("many", True), (0, True)])
    def test_a_pod_that_names_the_resource_is_kept_whole(self, count: int | str, *, is_whole: bool) -> None:
        """Even if it asks for none, or in a way that nobody can read; one that does not name it is not."""
        _, feed = self.fed()
        named = pod("p", count, on="n1")
        assert (feed.keep(named) == named) is is_whole
        bare = pod("p", on="n1", cpu="1")
        (bare.spec.containers[0].resources.limits or {}).clear()
        (bare.spec.containers[0].resources.requests or {}).clear()
        assert feed.keep(bare) != bare

    def test_cpu_of_pods_that_wait_is_nobodys(self) -> None:
        """No node is told of them."""
        state, feed = self.fed()
        _ = state.views
        feed.changed(pod("p", cpu="4"))
        assert state.cpu._of == {}
        assert [state.views[name].shape.cpu_milli for name in ("n1", "n2")] == [8000, 8000]
