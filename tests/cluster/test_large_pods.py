"""Pods as large as etcd takes: what may still be written to them, and that no node waits for one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from msgspec.json import decode, encode

from benchmarks.simulated.fleet import SimulatedNode
from extender.binding.intents import BindPod, Done, GetPodVersion, NoAnswer, Reply, Single, fence
from extender.cluster.objects.kinds import Pod
from extender.kubernetes.kube import KubeApi
from tests.cluster.api import ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from topology.annotations import keys

ETCD_BYTES = 1 << 20 | 1 << 19
SECONDS = 10.0
LEVELS = 2_000
"""Twice as deep as a decoder goes that calls itself for each."""


def filled(pod: Json, size: int, text: str = "x") -> Json:
    """Return the pod with so many bytes in its environment."""
    whole, rest = divmod(size // len(text.encode()), 100_000)
    values = [text * 100_000] * whole + [text * rest]
    pod["metadata"]["annotations"] = {"room": "x" * 1_000}
    pod["spec"]["containers"][0]["env"] = [{"name": f"E{n}", "value": value} for n, value in enumerate(values)]
    return pod


def sleeper(name: str, size: int, text: str = "x") -> Json:
    """Return a pod of that size without GPUs."""
    return filled({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, size, text)


def takes(write: Callable[[], object]) -> bool:
    """Try a write, and say whether etcd takes that much."""
    try:
        write()
    except ApiError as error:
        if "too large" in str(error):
            return False
        raise
    return True


def largest(cluster: ControlPlane) -> int:
    """Return how many bytes of environment etcd takes, at most, by halving."""
    least, most, numbers = ETCD_BYTES - 10_000, ETCD_BYTES, count(1000)
    while most - least > 1:
        half = (least + most) // 2
        pod = sleeper(f"p{next(numbers)}", half)
        if takes(partial(cluster.admin.post, PODS, pod)):
            least = half
            make_room(cluster, pod["metadata"]["name"])
        else:
            most = half
    return least


def make_room(cluster: ControlPlane, name: str) -> None:
    """Let a pod shrink, and delete it: to be deleted it has to be written to, and has no place for that.

    Whoever writes to it in between takes the place again.
    """

    def gone() -> bool:
        shrinks = partial(cluster.admin.patch, f"{PODS}/{name}", {"metadata": {"annotations": None}})
        return takes(shrinks) and takes(partial(cluster.admin.delete, f"{PODS}/{name}", gracePeriodSeconds="0"))

    eventually(gone)


async def execute(cluster: ControlPlane, intent: Single) -> Reply:
    """Have the product's own client do it."""
    async with KubeApi.from_kubeconfig(cluster.kubeconfig()) as api:
        return await api.execute(intent, SECONDS)


def known(cluster: ControlPlane, name: str) -> Pod:
    """Return a pod as the product reads it."""
    return decode(encode(cluster.admin.get(f"{PODS}/{name}")), type=Pod)


def binding(pod: Pod) -> BindPod:
    """Return a Binding with a record of the usual size."""
    metadata = pod.metadata
    record = {keys.PLACEMENT: "x" * 150}
    return BindPod(metadata.namespace, metadata.name, metadata.uid, metadata.resource_version, "n1", record)


async def test_that_a_fence_is_too_large_does_not_prove_that_a_binding_is(
    cluster: ControlPlane, figure: Callable[[str], None]
) -> None:
    """A Binding replaces the scheduler's long sentence by a short one; therefore we decide by size, and before both."""
    cluster.admin.post(NODES, {"metadata": {"name": "n1"}})
    most = largest(cluster)
    figure(f"large pods: etcd takes {most} bytes of environment, of {ETCD_BYTES}")
    cluster.admin.post(PODS, sleeper("full", most - 1_100))
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m" * 600}
    cluster.admin.patch(f"{PODS}/full/status", {"status": {"conditions": [unscheduled]}})
    path = f"{PODS}/full"
    sizes = count(step=8)
    while takes(lambda: cluster.admin.patch(path, {"metadata": {"annotations": {"fill": "x" * next(sizes)}}})):
        pass
    pod = known(cluster, "full")
    refused = await execute(cluster, fence(pod))
    assert isinstance(refused, NoAnswer) and "too large" in refused.message
    assert isinstance(await execute(cluster, binding(pod)), Done)
    make_room(cluster, "full")


async def test_a_fence_of_any_pod_is_answered_in_few_bytes(cluster: ControlPlane) -> None:
    """The pod's JSON has 9 MB, as each byte of it is written as six; the fence and the look after it show the metadata."""
    cluster.admin.post(PODS, sleeper("swollen", ETCD_BYTES - 10_000, "<"))
    assert len(encode(cluster.admin.get(f"{PODS}/swollen")).replace(b"<", b"\\u003c")) > 8 << 20
    pod = known(cluster, "swollen")
    fenced = await execute(cluster, fence(pod))
    assert isinstance(fenced, Done) and isinstance(fenced.value, Pod)
    assert fenced.value.spec == pod.spec
    seen = await execute(cluster, GetPodVersion("default", "swollen"))
    assert isinstance(seen, Done) and isinstance(seen.value, Pod)
    assert seen.value.metadata == fenced.value.metadata
    assert seen.value.metadata.resource_version != pod.metadata.resource_version


@contextmanager
def patience_with_depth() -> Iterator[None]:
    """Let this process read what the test writes; the product's client, which runs in it too, is tried without."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * LEVELS)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


async def test_a_fence_of_a_deep_pod_is_answered_in_words_that_we_read(cluster: ControlPlane) -> None:
    """Its managed fields lie 2,000 levels deep, and are the last that is said where metadata is asked for alone."""
    fields: Json = {}
    for _ in range(LEVELS):
        fields = {"f:a": fields}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    pod = sleeper("deep", 10)
    pod["metadata"]["managedFields"] = [entry]
    with patience_with_depth():
        cluster.admin.post(PODS, pod)
    looked = await execute(cluster, GetPodVersion("default", "deep"))
    assert isinstance(looked, Done) and isinstance(looked.value, Pod)
    fenced = await execute(cluster, fence(looked.value))
    assert isinstance(fenced, Done) and isinstance(fenced.value, Pod)
    assert fenced.value.metadata.resource_version != looked.value.metadata.resource_version
    with patience_with_depth():
        cluster.admin.delete(f"{PODS}/deep", gracePeriodSeconds="0")


def test_a_pod_as_large_as_etcd_takes_keeps_no_node_closed(gpu_cluster: GpuCluster) -> None:
    """A node that has lost its ledger gets one although nobody can fence it; its owner is told why it gets no GPUs."""
    size = largest(gpu_cluster.plane) - 500
    gpu_cluster.submit(filled(wants("large", 1), size))
    gpu_cluster.join(SimulatedNode("t4", "t4-4"))
    gpu_cluster.plane.admin.patch(f"{NODES}/t4", {"metadata": {"annotations": {keys.LEDGER: None}}})
    gpu_cluster.submit(wants("small", 1))
    assert eventually(lambda: gpu_cluster.node_of("small")) == "t4"
    assert eventually(lambda: "no place for the placement" in gpu_cluster.why_pending("large"))
    assert gpu_cluster.node_of("large") is None
    make_room(gpu_cluster.plane, "large")
