"""Pods as large, as deep and as busy as the real API server takes them: nobody is kept from hearing of the others."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.api import Json
from tests.cluster.binaries import is_oldest
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.installation import Installation
from tests.cluster.objects import PODS, pod
from tests.cluster.polling import eventually

NODE = SimulatedNode("h100", "hgx-h100")
CROWD = 8
LEVELS = 2000
"""Twice as deep as a decoder goes that calls itself for each."""


def heavy(name: str, size_bytes: int) -> Json:
    """Return a pod without GPUs that nobody may bind, whose environment is all `<`: six bytes of JSON for each."""
    made = pod(name, schedulingGates=[{"name": "example.test/never"}])
    parts = range(0, size_bytes, 100_000)
    made["spec"]["containers"][0]["env"] = [
        {"name": f"E{at}", "value": "<" * min(100_000, size_bytes - at)} for at in parts
    ]
    return made


def deep(made: Json) -> Json:
    """Have the pod say that somebody manages fields of it that lie 2,000 levels deep, which is 16 kB."""
    fields: Json = {}
    for _ in range(LEVELS):
        fields = {"f:a": fields}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    made["metadata"]["managedFields"] = [entry]
    return made


def lists(cluster: GpuCluster) -> int:
    """Return how many lists of nodes and pods the extender has read, over all starts: two at each."""
    found = listed(cluster.extender)
    assert found >= 2
    return found


def listed(extender: ExtenderProcess) -> int:
    """Return how many lists of nodes and pods a process has read; others may be read at any time."""
    found = [facts["resource"] for facts in extender.logged() if facts.get("msg") == "listed"]
    return sum(resource in {"nodes", "pods"} for resource in found)


def told(cluster: GpuCluster, fate: str) -> float:
    """Return how many pods the running extender has counted as heavy, or as unread."""
    return cluster.extender.metric(f'watch_objects_total{{fate="{fate}",resource="pods"}}') or 0.0


@pytest.fixture
def crowded(gpu_cluster: GpuCluster) -> GpuCluster:
    """Lend a cluster with one node of GPUs and 67 MB of pods, of which the running extender has heard by its watch."""
    gpu_cluster.join(NODE)
    before = lists(gpu_cluster)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: gpu_cluster.api.post(PODS, heavy(f"heavy-{number}", 1_400_000)), range(CROWD)))
    eventually(lambda: told(gpu_cluster, "heavy") == CROWD)
    assert lists(gpu_cluster) == before
    return gpu_cluster


def test_a_crowd_of_heavy_pods_keeps_no_extender_from_beginning(
    crowded: GpuCluster, figure: Callable[[str], None]
) -> None:
    """Eight of 8.4 MB of JSON each are more than a page may have; a new extender reads them all, and binds."""
    crowded.extender.stop()
    began = monotonic()
    crowded.extender.run()
    seconds, memory = monotonic() - began, crowded.extender.memory_bytes() >> 20
    assert told(crowded, "heavy") == CROWD
    crowded.submit(wants("ours", 2))
    assert eventually(lambda: crowded.node_of("ours")) == NODE.name
    figure(f"{CROWD} pods of 8.4 MB: a new extender was ready after {seconds:.1f} s and had {memory} MiB")
    assert memory < 256


def test_a_heavy_pod_that_is_patched_again_and_again_delays_nobody(
    gpu_cluster: GpuCluster, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Twenty new versions of a pod of 2.4 MB of JSON cost no list, and whoever asks meanwhile is answered in time."""
    gpu_cluster.api.post(PODS, heavy("busy", 400_000))
    before, delays = lists(gpu_cluster), list[float]()
    with ThreadPoolExecutor(1) as threads:
        patching = threads.submit(patch, gpu_cluster, "busy", 20)
        while not patching.done():
            asked = monotonic()
            assert gpu_cluster.extender.read("/livez")[0] == 200
            delays.append(monotonic() - asked)
    patching.result()
    eventually(lambda: told(gpu_cluster, "heavy") == 21)
    assert lists(gpu_cluster) == before
    figure(f"20 patches of a pod of 2.4 MB: no list anew, the slowest of {len(delays)} answers {max(delays):.3f} s")
    assert max(delays) < goal(1.0)


def patch(cluster: GpuCluster, name: str, times: int) -> None:
    for number in range(times):
        cluster.api.patch(f"{PODS}/{name}", {"metadata": {"labels": {"patched": str(number)}}})


@pytest.fixture
def patience_with_depth() -> Iterator[None]:
    """Let this process read what the tests write; take it before `gpu_cluster`, which reads it at the end, too."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * LEVELS)
    yield
    sys.setrecursionlimit(usual)


@pytest.mark.skipif(is_oldest(), reason="kube-scheduler 1.30 sends who manages fields, and a pod so deep is refused")
@pytest.mark.usefixtures("patience_with_depth", "gpu_cluster")
def test_a_deep_pod_is_bound_as_any_other_and_hides_none(gpu_cluster: GpuCluster) -> None:
    """Who manages its fields is nobody's business here: the pod is listed, watched and read live without it."""
    gpu_cluster.join(NODE)
    before = lists(gpu_cluster)
    gpu_cluster.submit(deep(pod("without")), deep(wants("deep", 2)), wants("other", 2))
    for name in ("deep", "other"):
        assert eventually(lambda: gpu_cluster.node_of(name)) == NODE.name  # noqa: B023
    gpu_cluster.extender.stop()
    gpu_cluster.extender.run()
    assert lists(gpu_cluster) == before + 2
    assert len(gpu_cluster.claims(NODE.name, "deep")) == 2


def test_what_is_larger_than_was_agreed_is_passed_over_counted_and_named(
    crowded: GpuCluster, installation: Installation
) -> None:
    """An extender that may read less than etcd can hold is ready all the same, and says of which pods it knows no more."""
    narrow = installation.extender({"watch": {"maxLine": "1MiB", "maxPage": "2MiB"}})
    with narrow.running():
        assert narrow.metric('watch_objects_total{fate="unread",resource="pods"}') == CROWD
        crowded.api.patch(f"{PODS}/heavy-0", {"metadata": {"labels": {"patched": "1"}}})
        eventually(lambda: narrow.metric('watch_objects_total{fate="unread",resource="pods"}') == CROWD + 1)
        said = [facts for facts in narrow.logged() if facts.get("msg") == "passed over an object"]
        assert said[0]["object"].startswith("default/heavy-")
        assert narrow.read("/readyz")[0] == 200
    assert listed(narrow) == 2
