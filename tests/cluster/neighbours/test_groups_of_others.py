"""Groups that real controllers make find their way to one NVLink domain each, without a word of ours on who belongs together."""

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from extender.kubectl.extender_client import explain
from tests.cluster.api import Json
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.neighbours.controllers import JOBS, JOBSETS, LEADER_WORKER_SETS, create
from tests.cluster.neighbours.frameworks import MPIJOBS, PYTORCHJOBS, RAYCLUSTERS, RAYJOBS
from tests.cluster.objects import PODS
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.node.links import Affinity

pytestmark = pytest.mark.slow

CLIQUE_LABEL = "nvidia.com/gpu.clique"
DOMAINS = {"a": 6, "b": 5}
"""Machines of eight GPUs. Three of `b` are the tightest fit for three pods; what is left of it is too small for three more."""
SIZE = 3
QUEUES = "/apis/kueue.x-k8s.io/v1beta1"


@pytest.fixture(autouse=True)
def domains(gpu_cluster: GpuCluster) -> None:
    """Let the machines of two NVLink domains join; their names say nothing of the domain."""
    places = [domain for number in range(max(DOMAINS.values())) for domain in DOMAINS if number < DOMAINS[domain]]
    gpu_cluster.join(
        *(
            SimulatedNode(f"n{number:02}", "hgx-h100", labels={CLIQUE_LABEL: f"{domain}.1"})
            for number, domain in enumerate(places)
        )
    )


def template(**asks: str) -> Json:
    """Return the template of a pod that takes a whole machine."""
    annotations = {f"{keys.USER_PREFIX}{key.replace('_', '-')}": text for key, text in asks.items()}
    made = gpu_pod("", 8, annotations, schedulerName=SCHEDULER_NAME)
    return {"metadata": {"annotations": annotations}, "spec": made["spec"]}


def groups(cluster: GpuCluster, label: str) -> dict[str, list[Json]]:
    """Return our scheduler's pods that have a label, by its value."""
    found: dict[str, list[Json]] = {}
    for pod in cluster.api.list(PODS, labelSelector=label):
        if pod["spec"]["schedulerName"] == SCHEDULER_NAME:
            found.setdefault(pod["metadata"]["labels"][label], []).append(pod)
    return found


def domains_of(cluster: GpuCluster, label: str, count: int, size: int = SIZE) -> dict[str, set[str]]:
    """Return the domains of each group, empty as long as there are not so many whole ones."""
    found = groups(cluster, label)
    nodes = {node["metadata"]["name"]: node for node in cluster.api.list("/api/v1/nodes")}
    if len(found) != count or any(
        len([pod for pod in pods if "nodeName" in pod["spec"]]) != size for pods in found.values()
    ):
        return {}
    return {
        name: {nodes[pod["spec"]["nodeName"]]["metadata"]["labels"][CLIQUE_LABEL] for pod in pods}
        for name, pods in found.items()
    }


def told(cluster: GpuCluster, pod: str) -> str:
    """Return what people are told of a pod's group."""
    explanation = explain(cluster.extender.url, "default", pod)
    assert explanation is not None and explanation.group is not None
    return explanation.group.line


def jobset(**asks: str) -> Json:
    """Return a JobSet without a name of its own, of Jobs of one pod."""
    workers = {"name": "workers", "replicas": SIZE, "template": {"spec": job(1, **asks)["spec"]}}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**kind, "metadata": {"generateName": "train-"}, "spec": {"replicatedJobs": [workers]}}


def job(pods: int = SIZE, /, **asks: str) -> Json:
    """Return a Job with indexes, without a name of its own."""
    pod = template(**asks)
    pod["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "train-"}, "spec": spec}


SIZED = {"group_size": str(SIZE)}


@pytest.mark.parametrize(
    ("collection", "label", "body"),
    [
        (JOBSETS, "jobset.sigs.k8s.io/jobset-name", jobset(**SIZED)),
        (JOBSETS, "jobset.sigs.k8s.io/jobset-name", jobset(group="llama", **SIZED)),
        (JOBS, "batch.kubernetes.io/job-name", job(**SIZED)),
    ],
    ids=["jobset", "jobset-and-our-name", "job"],
)
def test_two_runs_of_one_template_take_a_domain_each(
    gpu_cluster: GpuCluster, collection: str, label: str, body: Json
) -> None:
    """Also where the template names the group itself: the second run is not drawn to what the first has left."""
    assert domains_of_two_runs(gpu_cluster, collection, label, body) == [["a.1"], ["b.1"]]


@pytest.mark.parametrize("settings", [{"groups": {"readSizes": True}}], ids=["sizes-are-read"])
@pytest.mark.parametrize(
    ("collection", "label", "body"),
    [(JOBSETS, "jobset.sigs.k8s.io/jobset-name", jobset()), (JOBS, "batch.kubernetes.io/job-name", job())],
    ids=["jobset", "job"],
)
def test_so_do_two_runs_whose_size_only_their_object_says(
    gpu_cluster: GpuCluster, collection: str, label: str, body: Json
) -> None:
    """The first pod comes before the others are made; the API server has no PodGroup of anybody, which troubles nobody."""
    eventually(lambda: gpu_cluster.extender.metric("group_sizes_read"))
    assert domains_of_two_runs(gpu_cluster, collection, label, body) == [["a.1"], ["b.1"]]


def domains_of_two_runs(cluster: GpuCluster, collection: str, label: str, body: Json) -> list[list[str]]:
    """Create an object twice, the second when the first has been placed; return the domains of each."""
    for runs in (1, 2):
        create(cluster.plane, collection, body)
        found = eventually(partial(domains_of, cluster, label, runs), 60)
    return sorted(map(sorted, found.values()))


def test_each_group_of_a_leaderworkerset_takes_a_domain(gpu_cluster: GpuCluster) -> None:
    """Leader and workers together; their size is on the pod."""
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": SIZE, "workerTemplate": template()}}
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    create(gpu_cluster.plane, LEADER_WORKER_SETS, {**kind, "metadata": {"name": "serve"}, "spec": spec})
    found = eventually(partial(domains_of, gpu_cluster, "leaderworkerset.sigs.k8s.io/group-index", 2), 60)
    assert sorted(map(sorted, found.values())) == [["a.1"], ["b.1"]]
    assert "group serve/0, as leaderworkerset says (nvlink-domain): 0 to come" in told(gpu_cluster, "serve-0-1")


def test_each_replica_of_several_hosts_of_a_raycluster_takes_a_domain(gpu_cluster: GpuCluster) -> None:
    """With KubeRay's feature gate `RayMultiHostIndexing`; the head has no GPUs, and is in no group."""
    replicas = {"replicas": 2, "minReplicas": 2, "maxReplicas": 2, "numOfHosts": SIZE}
    workers = {"groupName": "gpus", **replicas, "rayStartParams": {}, "template": template(**SIZED)}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    kind = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "serve"}}
    create(gpu_cluster.plane, RAYCLUSTERS, {**kind, "spec": {"headGroupSpec": head, "workerGroupSpecs": [workers]}})
    domains = eventually(partial(domains_of, gpu_cluster, "ray.io/worker-group-replica-name", 2), 60)
    assert sorted(map(sorted, domains.values())) == [["a.1"], ["b.1"]]


def apply_when_webhooks_listen(cluster: GpuCluster, manifest: Path) -> None:
    """Apply a manifest without unknown fields; its webhooks listen after their controller says that it is ready."""
    kubectl = cluster.plane.binaries / "kubectl"
    command = [str(part) for part in (kubectl, "--kubeconfig", cluster.plane.kubeconfig(), "apply", "-f", manifest)]

    def applied() -> bool:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0 or "failed calling webhook" in ended.stderr, ended.stderr
        return ended.returncode == 0

    eventually(applied)


EXAMPLES = {
    "jobset": ("jobset.sigs.k8s.io/jobset-name", "jobset", ""),
    "leaderworkerset": ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset", ""),
    "kueue": ("batch.kubernetes.io/job-name", "job", ""),
    "pytorchjob": ("training.kubeflow.org/job-name", "kubeflow", PYTORCHJOBS),
    "trainjob": ("jobset.sigs.k8s.io/jobset-name", "jobset", ""),
    "rayjob": ("ray.io/cluster", "ray", RAYJOBS),
    "mpijob": ("training.kubeflow.org/job-name", "kubeflow", MPIJOBS),
}
"""Of each file: the label that names its group, the source of the group, and the collection whose object says that it runs."""


@pytest.mark.parametrize("name", sorted(file.stem for file in (MANIFESTS / "frameworks").glob("*.yaml")))
def test_both_pods_of_an_example_are_placed_in_one_domain(gpu_cluster: GpuCluster, name: str) -> None:
    """As one group, by the real controllers, which then start what has no GPUs, too: launcher, Ray's head and submitter.

    There are no containers, so nothing is asked of the head's dashboard, and the launcher reaches no worker.
    """
    label, source, collection = EXAMPLES[name]
    apply_when_webhooks_listen(gpu_cluster, MANIFESTS / "frameworks" / f"{name}.yaml")
    domains_by_group = eventually(partial(domains_of, gpu_cluster, label, 1, 2), 60)
    assert [len(domains) for domains in domains_by_group.values()] == [1]
    [(group, pods)] = groups(gpu_cluster, label).items()
    names = [pod["metadata"]["name"] for pod in pods]
    assert [gpu_cluster.placement(pod).affinity for pod in names] == [Affinity.NVLINK] * 2
    line = re.compile(rf"group {group}(/0)?, as {source} says \(nvlink-domain\): 0 to come, others on n\d+ in \w.1")
    eventually(lambda: all(line.fullmatch(told(gpu_cluster, pod)) for pod in names))
    if collection:
        eventually(partial(runs, gpu_cluster, collection))


def runs(cluster: GpuCluster, collection: str) -> bool:
    """Whether the status of the only object says that it runs."""
    [status] = [item.get("status", {}) for item in cluster.api.list(collection)]
    running = {"type": "Running", "status": "True"}
    conditions = status.get("conditions") or ()
    return status.get("jobDeploymentStatus") == "Running" or any(running.items() <= item.items() for item in conditions)


def queue(gpus: int) -> list[tuple[str, Json]]:
    """Return what Kueue needs to let pods for so many GPUs through."""
    quotas = {keys.GPU_RESOURCE: str(gpus), "cpu": "1k", "memory": "1Ti"}
    flavor = {"name": "gpus", "resources": [{"name": name, "nominalQuota": most} for name, most in quotas.items()]}
    resources = {"coveredResources": [*quotas], "flavors": [flavor]}
    kinds = {
        "resourceflavors": ("ResourceFlavor", "gpus", {}),
        "clusterqueues": ("ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": [resources]}),
        "namespaces/default/localqueues": ("LocalQueue", "mine", {"clusterQueue": "all"}),
    }
    return [
        (
            f"{QUEUES}/{collection}",
            {"apiVersion": QUEUES.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, "spec": spec},
        )
        for collection, (kind, name, spec) in kinds.items()
    ]


def gang(name: str, number: int) -> Json:
    """Return a pod of a pod group of Kueue's."""
    pod = {"apiVersion": "v1", "kind": "Pod", **template()}
    labels = {"kueue.x-k8s.io/queue-name": "mine", "kueue.x-k8s.io/pod-group-name": name}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(SIZE)}
    return {**pod, "metadata": {"name": f"{name}-{number}", "labels": labels, "annotations": annotations}}


def test_a_pod_group_behind_gates_takes_a_domain_when_kueue_lets_it_through(gpu_cluster: GpuCluster) -> None:
    """Two gangs and quota for one: the second one waits at Kueue's gate, holds no room, and comes when the first has ended."""
    label = "kueue.x-k8s.io/pod-group-name"
    for collection, body in queue(gpus=8 * SIZE):
        create(gpu_cluster.plane, collection, body)
    for name in ("one", "two"):
        for number in range(SIZE):
            create(gpu_cluster.plane, PODS, gang(name, number))
        eventually(lambda: sum("nodeName" in pod["spec"] for pod in groups(gpu_cluster, label)["one"]) == SIZE, 60)
    gates = [pod["spec"].get("schedulingGates") for pod in groups(gpu_cluster, label)["two"]]
    assert len(gates) == SIZE and all(gates)
    assert "group two, as kueue says (nvlink-domain)" in told(gpu_cluster, "two-0")
    for number in range(SIZE):
        gpu_cluster.complete(f"one-{number}")
    found = eventually(partial(domains_of, gpu_cluster, label, 2), 60)
    assert {name: len(where) for name, where in found.items()} == {"one": 1, "two": 1}
