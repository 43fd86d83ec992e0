"""SEC4–SEC6: what is the agent's and what is the extender's nobody else can write, by any way into the real API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.admission import (
    ACCEPTED,
    RBAC,
    Request,
    Row,
    annotate_node,
    annotate_pod,
    bind,
    change_node,
    create_node,
    create_pod,
    debug_pod,
    outcome,
    with_records,
)
from tests.cluster.agent_pod import AGENT, create_agent_pod
from tests.cluster.api import Api
from tests.cluster.binaries import is_oldest
from tests.cluster.control_plane import SCHEDULER, ControlPlane
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.installation import ACCOUNT as EXTENDER
from tests.cluster.installation import Installation
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import NODES, PODS, Json, container, node
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.rendered import FOLDER, NAMESPACE
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger

REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"
KUBELET = "system:node:node-a"
VALIDATOR = "system:serviceaccount:gpu-operator:nvidia-operator-validator"
USER, CLUSTER_ADMIN = "user", "cluster-admin"
ADMIN = "admin"
USERS = {
    USER: [], CLUSTER_ADMIN: ["kubeadm:cluster-admins"], EXTENDER: [], REPLICA_SETS: [], DAEMON_SETS: [],
    VALIDATOR: [],
    KUBELET: ["system:nodes"],
}  # fmt: skip

PLACEMENT, FENCE = {keys.PLACEMENT: '{"v":1}'}, {keys.FENCE: "7"}
LEDGER, TOPOLOGY = {keys.LEDGER: '{"v":1}'}, {keys.TOPOLOGY: '{"v":1}'}
REQUEST, FOREIGN = {keys.REQUIRED_AFFINITY: "nvlink"}, {"example.com/note": "hello"}
TAINT = {"spec": {"taints": [{"key": "example.com/mine", "effect": "NoSchedule"}]}}
OWNER = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]}}
HEARTBEAT = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
ON_NODE_A = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
]}}}  # fmt: skip
GPU_FIRST = [container("first", gpus=1)]
SHARE_FIRST = [{**container("first", gpus=0), "resources": {"limits": {keys.SHARE_RESOURCE: "4"}}}]

SUBRESOURCES = ("status", "binding", "ephemeralcontainers", "resize")

A, B, C = "pod-allocations", "binding-allocations", "scheduled-pods"
D, E, F = "agent-own-node", "extender-ledger", "node-annotations"

TABLE = [
    Row(USER, "creates a pod with a placement", create_pod(PLACEMENT), A),
    Row(USER, "creates a pod with a fence", create_pod(FENCE), A),
    Row(USER, "creates a pod with a request", create_pod(REQUEST)),
    Row(REPLICA_SETS, "creates a pod from a template with a placement", create_pod(PLACEMENT), A),
    Row(USER, "adds a placement", annotate_pod("waiting", PLACEMENT), A),
    Row(USER, "alters a placement", annotate_pod("placed", PLACEMENT), A),
    Row(USER, "deletes a placement", annotate_pod("placed", {keys.PLACEMENT: None}), A),
    Row(USER, "deletes all annotations of a placed pod", annotate_pod("placed", None), A),
    Row(USER, "annotates a placed pod otherwise", annotate_pod("placed", FOREIGN)),
    Row(USER, "alters a placement through status", annotate_pod("placed", PLACEMENT, "/status"), A),
    Row(USER, "fences a pod", annotate_pod("waiting", FENCE, "/status"), A),
    Row(USER, "adds a debugging container to a placed pod", debug_pod("placed", {})),
    Row(KUBELET, "alters a placement through status", annotate_pod("placed", PLACEMENT, "/status"), A),
    Row(KUBELET, "annotates a pod otherwise through status", annotate_pod("placed", FOREIGN, "/status")),
    Row(EXTENDER, "fences a pod", annotate_pod("waiting", FENCE, "/status")),
    Row(ADMIN, "deletes a placement", annotate_pod("placed", {keys.PLACEMENT: None})),
    Row(USER, "binds with a placement", bind("waiting", PLACEMENT), B),
    Row(USER, "binds with a placement the old way", bind("waiting", PLACEMENT, old_way=True), B),
    Row(SCHEDULER, "binds with a placement", bind("waiting", PLACEMENT), B),
    Row(SCHEDULER, "binds without one", bind("waiting")),
    Row(EXTENDER, "binds with a placement", bind("waiting", PLACEMENT)),
    Row(USER, "creates a GPU pod on a node", create_pod(gpus=1, nodeName="node-a"), C),
    Row(USER, "creates a pod on a node with GPUs at first", create_pod(nodeName="node-a", initContainers=GPU_FIRST), C),
    Row(USER, "creates a pod on a node with a share", create_pod(nodeName="node-a", initContainers=SHARE_FIRST), C),
    Row(REPLICA_SETS, "creates a GPU pod on a node", create_pod(gpus=1, nodeName="node-a"), C),
    Row(VALIDATOR, "creates a GPU pod on a node", create_pod(nodeName="node-a", initContainers=GPU_FIRST)),
    Row(USER, "creates a GPU pod on no node", create_pod(gpus=1)),
    Row(USER, "creates a pod without GPUs on a node", create_pod(nodeName="node-a")),
    Row(DAEMON_SETS, "creates a GPU pod for a node", create_pod(gpus=1, affinity=ON_NODE_A)),
    Row(KUBELET, "shows a static GPU pod", create_pod(gpus=1, nodeName="node-a")),
    Row(ADMIN, "creates a GPU pod on a node", create_pod(gpus=1, nodeName="node-a")),
    Row(EXTENDER, "writes a ledger", annotate_node(LEDGER)),
    Row(EXTENDER, "deletes a ledger", annotate_node({keys.LEDGER: None})),
    Row(EXTENDER, "writes a topology", annotate_node(TOPOLOGY), E),
    Row(EXTENDER, "annotates a node otherwise", annotate_node(FOREIGN), E),
    Row(EXTENDER, "labels a node", change_node({"metadata": {"labels": {"a": "b"}}}), E),
    Row(EXTENDER, "taints a node", change_node(TAINT), E),
    Row(EXTENDER, "cordons a node", change_node({"spec": {"unschedulable": True}}), E),
    Row(EXTENDER, "keeps a node from being deleted", change_node({"metadata": {"finalizers": ["a.b/c"]}}), E),
    Row(EXTENDER, "gives a node an owner", change_node(OWNER), E),
    Row(EXTENDER, "labels a node through status", change_node({"metadata": {"labels": {"a": "b"}}}, "node-a", "/status"), E),
    Row(EXTENDER, "creates a node", create_node(LEDGER), E),
    Row(USER, "alters a ledger", annotate_node(LEDGER), F),
    Row(USER, "deletes a ledger", annotate_node({keys.LEDGER: None}), F),
    Row(USER, "alters a topology", annotate_node(TOPOLOGY), F),
    Row(USER, "deletes a topology", annotate_node({keys.TOPOLOGY: None}), F),
    Row(USER, "alters a ledger through status", annotate_node(LEDGER, "node-a", "/status"), F),
    Row(USER, "creates a node with a topology", create_node(TOPOLOGY), F),
    Row(USER, "creates a node with a ledger", create_node(LEDGER), F),
    Row(USER, "creates a node", create_node()),
    Row(USER, "labels a node", change_node({"metadata": {"labels": {"a": "b"}}})),
    Row(USER, "taints a node", change_node(TAINT)),
    Row(KUBELET, "alters its topology", annotate_node(TOPOLOGY), F),
    Row(KUBELET, "alters its ledger through status", annotate_node(LEDGER, "node-a", "/status"), F),
    Row(KUBELET, "says that it is ready", change_node(HEARTBEAT, "node-a", "/status")),
    Row(ADMIN, "deletes a ledger", annotate_node({keys.LEDGER: None})),
    Row(CLUSTER_ADMIN, "deletes a ledger", annotate_node({keys.LEDGER: None})),
]  # fmt: skip


# What a stolen token of the agent on node-a is good for.
AGENTS_OWN = [
    Row("node-a", "writes its topology", annotate_node(TOPOLOGY)),
    Row("node-a", "deletes its topology", annotate_node({keys.TOPOLOGY: None})),
    Row("node-a", "writes another node's topology", annotate_node(TOPOLOGY, "node-b"), D),
    Row("node-b", "writes another node's topology", annotate_node(TOPOLOGY, "node-a"), D),
    Row("nowhere", "writes a topology", annotate_node(TOPOLOGY), D),
    Row("node-a", "writes its ledger", annotate_node(LEDGER), D),
    Row("node-a", "deletes its ledger", annotate_node({keys.LEDGER: None}), D),
    Row("node-a", "writes another node's ledger", annotate_node(LEDGER, "node-b"), D),
    Row("node-a", "annotates its node otherwise", annotate_node(FOREIGN), D),
    Row("node-a", "labels its node", change_node({"metadata": {"labels": {"a": "b"}}}), D),
    Row("node-a", "taints its node", change_node(TAINT), D),
    Row("node-a", "cordons its node", change_node({"spec": {"unschedulable": True}}), D),
    Row("node-a", "keeps its node from being deleted", change_node({"metadata": {"finalizers": ["a.b/c"]}}), D),
    Row("node-a", "gives its node an owner", change_node(OWNER), D),
    Row("node-a", "writes its node's status", change_node(HEARTBEAT, "node-a", "/status"), RBAC),
    Row("node-a", "replaces its node", lambda api: api.put(f"{NODES}/node-a", node("node-a"), dryRun="All"), RBAC),
    Row("node-a", "creates a node", create_node(TOPOLOGY), RBAC),
    Row("node-a", "deletes its node", lambda api: api.delete(f"{NODES}/node-a", dryRun="All"), RBAC),
    Row("node-a", "lists nodes", lambda api: api.get(NODES), RBAC),
    Row("node-a", "lists pods", lambda api: api.get(PODS), RBAC),
    Row("node-a", "fences a pod", annotate_pod("waiting", FENCE, "/status"), RBAC),
    Row("node-a", "binds a pod", bind("waiting", PLACEMENT), RBAC),
    Row("node-a", "reads secrets", lambda api: api.get("/api/v1/namespaces/kube-system/secrets"), RBAC),
    Row("node-a", "reaches its kubelet", lambda api: api.get(f"{NODES}/node-a/proxy/pods"), RBAC),
]  # fmt: skip


@pytest.fixture(scope="module")
def guarded(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with gputopo installed, where RBAC lets everybody write pods and nodes."""
    with ControlPlane(binaries, USERS) as own:
        kubectl(own, "apply", "--server-side", "-k", FOLDER)
        let_all_write(own.admin)
        with_records(own.admin)
        create_agent_pods(own)
        await_policies(own)
        yield own


@pytest.fixture(scope="module")
def guarded_from_kubelets(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with gputopo installed that knows kubelets and keeps them to their own node and pods."""
    flags = {"authorization-mode": "Node,RBAC", "enable-admission-plugins": "NodeRestriction"}
    with ControlPlane(binaries, USERS, flags) as own:
        kubectl(own, "apply", "--server-side", "-k", FOLDER)
        let_all_write(own.admin, all_but=KUBELET)
        with_records(own.admin)
        await_policies(own)
        yield own


def await_policies(own: ControlPlane) -> None:
    """Return when every policy that the table is about is in force, seconds after it was stored."""
    firsts = [next(row for row in TABLE if row.refused_by == policy) for policy in (A, B, C, E, F)]
    eventually(lambda: all(outcome(own.api(row.who), row.request) == row.refused_by for row in firsts))
    with own.service_account(NAMESPACE, AGENT) as agent:
        eventually(lambda: outcome(agent, annotate_node(TOPOLOGY)) == D)


def create_agent_pods(own: ControlPlane) -> None:
    """Create what the DaemonSet's controller would."""
    for name in ("node-a", "node-b"):
        create_agent_pod(own, name)


def let_all_write(api: Api, all_but: str = "") -> None:
    group = "rbac.authorization.k8s.io"
    resources = [*("bindings", "nodes", "nodes/status", "pods"), *(f"pods/{name}" for name in SUBRESOURCES)]
    rule = {"apiGroups": [""], "resources": resources, "verbs": ["*"]}
    api.post(f"/apis/{group}/v1/clusterroles", {"metadata": {"name": "all"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "all"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name} for name in {*USERS, SCHEDULER} - {all_but}],
    }
    api.post(f"/apis/{group}/v1/clusterrolebindings", binding)


@pytest.mark.parametrize("row", [row.parameter() for row in TABLE])
def test_sec5_only_the_owner_writes(guarded: ControlPlane, row: Row) -> None:
    """Create, update, status, binding or node: forged and deleted records are refused, by the policy that is for it."""
    assert outcome(guarded.api(row.who), row.request) == row.refused_by


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(
            annotate_pod("placed", PLACEMENT, "/resize"),
            marks=pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 knows no pods/resize"),
        ),
        debug_pod("placed", PLACEMENT),
    ],
)
def test_sec5_some_ways_carry_no_annotation(guarded: ControlPlane, request_: Request) -> None:
    """A resize and a debugging container leave a pod's annotations as they were."""
    assert request_(guarded.api(USER))["metadata"]["annotations"] == {keys.PLACEMENT: "{}"}


@pytest.mark.parametrize("policy", [A, B, C, E, F])
def test_sec5_every_policy_is_needed(guarded: ControlPlane, policy: str) -> None:
    """Without its binding all of its rows are accepted, so each refusal above is its doing."""
    rows = [row for row in TABLE if row.refused_by == policy]
    with unbound(guarded, policy):
        eventually(lambda: all(outcome(guarded.api(row.who), row.request) == ACCEPTED for row in rows))


@contextmanager
def unbound(own: ControlPlane, policy: str) -> Iterator[None]:
    """Take a policy out of force for the length of a `with` block."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gputopo-{policy}"
    binding = own.admin.get(path)
    own.admin.delete(path)
    try:
        yield
    finally:
        metadata = {"name": binding["metadata"]["name"], "labels": binding["metadata"]["labels"]}
        own.admin.post(path.rpartition("/")[0], {**binding, "metadata": metadata})
        await_policies(own)


def test_sec5_crowded_objects_stay_within_the_cost_limit(guarded: ControlPlane) -> None:
    """A node with as many annotations as the API server stores can still be written, and is still guarded."""
    crowd = {f"example.com/note-{number:04}": "x" * 40 for number in range(4_000)}
    guarded.admin.post(NODES, node("crowded", annotations={**crowd, keys.LEDGER: "{}"}))
    own = guarded.api(EXTENDER)
    assert outcome(own, annotate_node(LEDGER, "crowded")) == ACCEPTED
    assert outcome(own, annotate_node(FOREIGN, "crowded")) == E
    assert outcome(guarded.api(USER), annotate_node(FOREIGN, "crowded")) == ACCEPTED
    assert outcome(guarded.api(USER), annotate_node(LEDGER, "crowded")) == F


@pytest.mark.parametrize("row", [row.parameter() for row in AGENTS_OWN])
def test_sec4_agent_writes_its_own_annotations_on_its_own_node(guarded: ControlPlane, row: Row) -> None:
    """With a real token of its account, bound to its pod as the kubelet's are, and with the chart's rights."""
    pod = None if row.who == "nowhere" else f"agent-on-{row.who}"
    with guarded.service_account(NAMESPACE, AGENT, pod) as agent:
        assert outcome(agent, row.request) == row.refused_by


def test_sec4_policy_is_needed(guarded: ControlPlane) -> None:
    """Without it RBAC lets an agent write every node."""
    rows = [row for row in AGENTS_OWN if row.refused_by == D]
    with guarded.service_account(NAMESPACE, AGENT, "agent-on-node-a") as agent, unbound(guarded, D):
        eventually(lambda: all(outcome(agent, row.request) == ACCEPTED for row in rows))


@pytest.mark.parametrize("row", [row.parameter() for row in TABLE if row.who == KUBELET and "static" not in row.what])
def test_sec6_kubelet_writes_no_record(guarded_from_kubelets: ControlPlane, row: Row) -> None:
    """Where the Node authorizer and NodeRestriction decide what a kubelet may, which do not look at annotations."""
    assert outcome(guarded_from_kubelets.api(KUBELET), row.request) == row.refused_by


def test_sec5_extender_fences_and_releases_under_the_policies(installation: Installation) -> None:
    """The real extender takes back the claim of a pod that nobody binds: it fences the pod and rewrites the ledger."""
    plane, machine = installation.plane, SimulatedNode("t4", "t4-4")
    extender = installation.extender({"reconcile": {"orphanAfter": "1s"}})
    cluster = GpuCluster(plane, extender)
    try:
        cluster.join(machine)
        cluster.submit(wants("orphan", 1))
        claim_for(cluster, machine, cluster.pod("orphan"))
        with extender.running():
            eventually(lambda: not cluster.claims(machine.name, "orphan"))
        assert keys.FENCE in cluster.pod("orphan")["metadata"]["annotations"]
    finally:
        sweep(plane.admin, keep=[NAMESPACE])


def claim_for(cluster: GpuCluster, machine: SimulatedNode, owner: Json) -> None:
    """Write the ledger that an extender leaves behind which dies between claim and Binding."""
    metadata = owner["metadata"]
    version = metadata["resourceVersion"]
    claim = Claim(machine.topology.gpus[0].uuid, metadata["uid"], "default", metadata["name"], "main", version)
    uid = cluster.api.get(f"{NODES}/{machine.name}")["metadata"]["uid"]
    cluster.annotate(machine.name, keys.LEDGER, encode_ledger(Ledger(1, (claim,), uid)))
