"""The real kube-scheduler: where one of six equal nodes refuses a pod every time, the pod runs on another one."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.admission import BINDINGS, POLICIES
from tests.cluster.api import Api, ApiError
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.objects import PODS, Json
from tests.cluster.polling import eventually

pytestmark = pytest.mark.usefixtures("kubelets")

SIX = tuple(SimulatedNode(f"n{number}", "l40s-8") for number in range(6))
BEST = SIX[0].name
"""It wins by its name."""
CLAIMS = PODS.replace("/pods", "/persistentvolumeclaims")
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
POLICY = "somebody-elses"
MEGABYTE = {"storage": "1M"}


def test_a_pod_whose_bindings_to_the_best_node_are_refused_runs_elsewhere(gpu_cluster: GpuCluster) -> None:
    """An admission policy says no to all of them, and our bind is told."""
    gpu_cluster.join(*SIX)
    probe = {"metadata": {"name": "stranger"}, "target": {"kind": "Node", "name": BEST}}
    gpu_cluster.api.post(PODS, wants("stranger", 1, schedulerName="nobody"))
    policy = refusing("pods/binding", "CREATE", f"object.target.name != '{BEST}'")
    with in_force(
        gpu_cluster.api, policy, partial(gpu_cluster.api.post, f"{PODS}/stranger/binding", probe, dryRun="All")
    ):
        gpu_cluster.submit(wants("trainer", 4))
        eventually(partial(gpu_cluster.is_running, "trainer"), 60)
    tried = binds(gpu_cluster)
    assert tried[0] == BEST
    assert tried[-1] == gpu_cluster.node_of("trainer") != BEST
    assert len(tried) == 2


def test_a_pod_whose_volume_always_fails_on_the_best_node_runs_elsewhere(gpu_cluster: GpuCluster) -> None:
    """kube-scheduler fails before it asks us to bind, and tells nobody; it only comes back."""
    gpu_cluster.join(*SIX)
    with volumes(gpu_cluster.api):
        probe = {"metadata": {"annotations": {"example.com/probe": "yes"}}}
        policy = refusing("persistentvolumes", "UPDATE", f"object.metadata.name != '{BEST}'")
        with in_force(
            gpu_cluster.api, policy, partial(gpu_cluster.api.patch, f"{VOLUMES}/{BEST}", probe, dryRun="All")
        ):
            scratch = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}
            gpu_cluster.submit(wants("trainer", 4, volumes=[scratch]))
            eventually(lambda: control_volumes(gpu_cluster.api) and gpu_cluster.is_running("trainer"), 60)
    won = [call["best"] for call in gpu_cluster.extender.said("prioritize") if call["pod"] == "default/trainer"]
    assert won[0] == BEST
    assert binds(gpu_cluster) == [gpu_cluster.node_of("trainer")] != [BEST]


def binds(cluster: GpuCluster) -> list[str]:
    """Return the nodes that the trainer was to be bound to, up to the one where it is; the log may be a moment late."""

    def tried() -> list[str]:
        return [call["node"] for call in cluster.extender.said("bind") if call["pod"] == "default/trainer"]

    eventually(lambda: cluster.node_of("trainer") in tried())
    return tried()


def refusing(resource: str, operation: str, unless: str) -> Json:
    """Return an admission policy's spec that refuses an operation unless an expression holds."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    return {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": unless}]}


@contextmanager
def in_force(api: Api, spec: Json, probe: partial[Json]) -> Iterator[None]:
    """Have a policy in force, which is when `probe` is refused."""
    api.post(POLICIES, {"metadata": {"name": POLICY}, "spec": {"failurePolicy": "Fail", **spec}})
    api.post(BINDINGS, {"metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]}})
    try:
        eventually(lambda: is_refused(probe), 60)
        yield
    finally:
        api.delete(f"{BINDINGS}/{POLICY}")
        api.delete(f"{POLICIES}/{POLICY}")


def is_refused(request: partial[Json]) -> bool:
    """Whether the policy says no."""
    try:
        request()
    except ApiError as error:
        if POLICY not in str(error):
            raise
        return True
    return False


@contextmanager
def volumes(api: Api) -> Iterator[None]:
    """Have a local volume on each of the nodes, and a claim that takes that of the pod's node."""
    api.post(
        CLASSES,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for node in SIX:
        api.post(VOLUMES, {"metadata": {"name": node.name}, "spec": local_volume(node.name)})
        api.patch(f"{VOLUMES}/{node.name}/status", {"status": {"phase": "Available"}})
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": MEGABYTE}}
    api.post(CLAIMS, {"metadata": {"name": "scratch"}, "spec": spec})
    try:
        yield
    finally:
        for path in (f"{CLAIMS}/scratch", *(f"{VOLUMES}/{node.name}" for node in SIX), f"{CLASSES}/local"):
            api.delete(path)
            with suppress(ApiError):  # nothing here takes the protection away that a controller would
                api.patch(path, {"metadata": {"finalizers": None}})


def local_volume(node: str) -> Json:
    """Return the spec of a volume that only pods on one node can have."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "accessModes": ["ReadWriteOnce"],
        "capacity": MEGABYTE,
        "storageClassName": "local",
        "local": {"path": "/scratch"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }


def control_volumes(api: Api) -> bool:
    """Finish the binding of a claim to the volume that kube-scheduler has chosen, as the volume controller does."""
    for volume in api.list(VOLUMES):
        if "claimRef" in volume["spec"]:
            done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
            api.patch(f"{CLAIMS}/scratch", {"metadata": done, "spec": {"volumeName": volume["metadata"]["name"]}})
    return True
