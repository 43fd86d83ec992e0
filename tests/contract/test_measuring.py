"""Contract with the API: what measuring rests on of Jobs and ConfigMaps."""

from __future__ import annotations

from collections.abc import Awaitable

from benchmarks.measure.cluster import ApiRefused, JobNamespace
from benchmarks.measure.job import GO, JobOptions, job, job_name
from benchmarks.measure.survey import Target
from benchmarks.processes.client import ApiClient
from extender.kubernetes.kube import KubeApi
from tests.contract.conftest import Backend
from topology.formats.catalog import machine

TARGET = Target("n1", "0" * 16, machine("rtx-3090-2"), ((0, 1),), {})
WANTED = JobOptions("example.com/nccl-tests:1")


def namespace_of(pods: str) -> str:
    return pods.split("/")[-2]


async def test_a_job_is_made_once_and_removed_by_whom_it_belongs_to(
    backend: Backend, api: ApiClient, pods: str
) -> None:
    """A second one of its name is refused with 409; another label removes nothing; one that is gone is no failure."""
    path = pods.replace("/api/v1", "/apis/batch/v1").replace("/pods", "/jobs")
    name = job_name(TARGET)
    async with KubeApi.from_kubeconfig(backend.kubeconfig) as kube:
        cluster = JobNamespace(kube, namespace_of(pods))
        await cluster.create_job(job(TARGET, WANTED, "ours"))
        refused = [await code(cluster.create_job(job(TARGET, WANTED, "theirs")))]
        await cluster.delete_job(name, (GO, "theirs"))
        refused.append((await api.call("GET", f"{path}/{name}")).code)
        await cluster.delete_job(name, (GO, "ours"))
        await cluster.delete_job(name, (GO, "ours"))
        refused.append((await api.call("GET", f"{path}/{name}")).code)

    assert refused == [409, 200, 404]


async def test_a_configmap_is_written_only_on_top_of_what_was_read(backend: Backend, pods: str) -> None:
    """It is made where there is none; a version that is not the newest is refused with 409."""
    async with KubeApi.from_kubeconfig(backend.kubeconfig) as kube:
        cluster = JobNamespace(kube, namespace_of(pods))
        nothing = await cluster.read_config_map("m")
        await cluster.write_config_map("m", "one", None)
        text, version = await cluster.read_config_map("m")
        await cluster.write_config_map("m", "two", version)
        refused = [
            await code(cluster.write_config_map("m", "three", version)),
            await code(cluster.write_config_map("m", "three", None)),
        ]
        last = await cluster.read_config_map("m")

    assert (nothing, text, last[0]) == ((None, None), "one", "two")
    assert refused == [409, 409]


async def test_the_pod_of_a_job_is_found_by_its_labels(backend: Backend, api: ApiClient, pods: str) -> None:
    """And no other pod is, one of an earlier Job of that name least of all."""
    of_job = {"batch.kubernetes.io/job-name": "j"}
    wanted = ("wanted", {**of_job, GO: "ours"})
    others = [("earlier", {**of_job, GO: "theirs"}), ("no-job", {GO: "ours"}), ("other", {})]
    async with KubeApi.from_kubeconfig(backend.kubeconfig) as kube:
        cluster = JobNamespace(kube, namespace_of(pods))
        found = []
        for each in (others, [wanted]):
            for name, labels in each:
                spec = {"containers": [{"name": "main", "image": "example.com/none"}]}
                (await api.call("POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})).ok()
            found.append(await cluster.pod_of("j", (GO, "ours")))

    assert [pod and pod["metadata"]["name"] for pod in found] == [None, "wanted"]


async def code(work: Awaitable[None]) -> int:
    """Return with which status a request was refused; 0: it was not."""
    try:
        await work
    except ApiRefused as error:
        return error.code
    return 0
