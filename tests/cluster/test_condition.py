"""SEC4: what an agent may say in its node's status is one condition, on the real API server; and what it says arrives there."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ApiError as AgentApiError
from agent.gpus.discovery import NodeDiscovery
from agent.node.condition import MAX_MESSAGE_CHARACTERS, ConditionKeeper
from agent.node.kube import KubernetesNode
from tests.agent.builders import discovery
from tests.cluster.admission import ACCEPTED, RBAC, Request, Row, outcome, with_records
from tests.cluster.agent_pod import AGENT, create_agent_pod
from tests.cluster.api import PatchKind
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import install_chart
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import NODES, Json, node
from tests.cluster.polling import eventually
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys

D = "agent-own-node"
OURS = {"type": keys.GPUS_HEALTHY, "status": "False", "reason": "GPUsSick", "message": "GPU 3 (GPU-1a2b3c4d): xid 79"}
FIRST = {"op": "add", "path": "/status/conditions/-", "value": OURS}


def status(body: Json, name: str = "node-a", kind: PatchKind = "strategic", **metadata: object) -> Request:
    """Change a node's status, and what else such a request can change."""
    return lambda api: api.patch(
        f"{NODES}/{name}/status", {"status": body, **({"metadata": metadata} if metadata else {})}, kind, dryRun="All"
    )


def conditions(*changed: Json, name: str = "node-a") -> Request:
    return status({"conditions": list(changed)}, name)


def operations(*changes: Json) -> Request:
    return lambda api: api.patch(f"{NODES}/node-a/status", list(changes), "json", dryRun="All")


ADDRESSES = [{"type": "InternalIP", "address": "10.0.0.1"}]
PORT = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 6443}}}

# What a stolen token of the agent on node-a is good for where it may patch statuses.
TABLE = [
    Row("node-a", "says that a GPU is sick", conditions(OURS)),
    Row("node-a", "says that none is", conditions({**OURS, "status": "True"})),
    Row("node-a", "takes back what it said", conditions({"$patch": "delete", "type": keys.GPUS_HEALTHY})),
    Row("node-a", "adds its condition by operations", operations(FIRST)),
    Row("node-a", "says something of another node", conditions(OURS, name="node-b"), D),
    Row("nowhere", "says something of a node", conditions(OURS), D),
    Row("node-a", "says that its node is not ready", conditions({"type": "Ready", "status": "False"}), D),
    Row("node-a", "takes away that its node is ready", conditions({"$patch": "delete", "type": "Ready"}), D),
    Row("node-a", "speaks as another health agent", conditions({"type": "XidCriticalError", "status": "True"}), D),
    Row("node-a", "says more than its condition", conditions(OURS, {"type": "Ready", "status": "Unknown"}), D),
    Row("node-a", "replaces all conditions by its own", status({"conditions": [OURS]}, kind="merge"), D),
    Row("node-a", "takes away all conditions", status({"conditions": None}, kind="merge"), D),
    Row("node-a", "says it twice", operations(FIRST, FIRST), D),
    Row("node-a", "writes a book", conditions({**OURS, "message": "x" * 10_000}), D),
    Row("node-a", "adds GPUs", status({"capacity": {"nvidia.com/gpu": "64"}}), D),
    Row("node-a", "offers more GPUs", status({"conditions": [OURS], "allocatable": {"nvidia.com/gpu": "64"}}), D),
    Row("node-a", "takes all GPUs away", status({"allocatable": {"nvidia.com/gpu": "0"}}), D),
    Row("node-a", "moves its kubelet", status({"addresses": [{"type": "InternalIP", "address": "10.6.6.6"}]}), D),
    Row("node-a", "takes its addresses away", status({"addresses": None}, kind="merge"), D),
    Row("node-a", "moves its kubelet's port", status(PORT), D),
    Row("node-a", "says that its node runs another system", status({"nodeInfo": {"kubeletVersion": "v9"}}), D),
    Row("node-a", "says that an image is there", status({"images": [{"names": ["a/b"]}]}), D),
    Row("node-a", "says that a volume is attached", status({"volumesInUse": ["a/b"]}), D),
    Row("node-a", "labels its node", status({"conditions": [OURS]}, labels={"a": "b"}), D),
    Row("node-a", "writes its ledger on the way", status({"conditions": [OURS]}, annotations={keys.LEDGER: "9"}), D),
    Row("node-a", "replaces its node's status", lambda api: api.put(f"{NODES}/node-a/status", node("node-a")), RBAC),
    Row("node-a", "fences a pod", lambda api: api.patch("/api/v1/namespaces/default/pods/placed/status", {}), RBAC),
]


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane where the chart was told to keep the condition."""
    with ControlPlane(binaries) as own:
        install_chart(own, "agent.nodeCondition=true")
        with_records(own.admin)
        own.admin.patch(f"{NODES}/node-a/status", {"status": {"addresses": ADDRESSES}})
        own.admin.patch(f"{NODES}/node-b/status", {"status": {"conditions": [OURS]}}, "strategic")
        for name in ("node-a", "node-b"):
            create_agent_pod(own, name)
        with own.service_account(NAMESPACE, AGENT) as agent:
            eventually(lambda: outcome(agent, conditions(OURS)) == D)
        yield own


@pytest.mark.parametrize("row", [row.parameter() for row in TABLE])
def test_sec4_agent_writes_one_condition_of_its_own_node(plane: ControlPlane, row: Row) -> None:
    """With a real token, bound to its pod, and with the chart's rights and policies."""
    pod = None if row.who == "nowhere" else f"agent-on-{row.who}"
    with plane.service_account(NAMESPACE, AGENT, pod) as agent:
        assert outcome(agent, row.request) == row.refused_by


def test_sec4_the_policy_and_nothing_else_refuses_them(plane: ControlPlane) -> None:
    """Without its binding RBAC lets an agent say anything of any node, so each refusal above is its doing."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gputopo-{D}"
    binding = plane.admin.get(path)
    plane.admin.delete(path)
    try:
        refused = [row for row in TABLE if row.refused_by == D]
        with plane.service_account(NAMESPACE, AGENT, "agent-on-node-a") as agent:
            eventually(lambda: [row.what for row in refused if outcome(agent, row.request) != ACCEPTED] == [])
    finally:
        del binding["metadata"]["resourceVersion"]
        plane.admin.post(path.rpartition("/")[0], binding)
        with plane.service_account(NAMESPACE, AGENT) as agent:
            eventually(lambda: outcome(agent, conditions(OURS)) == D)


def test_sec4_a_status_as_large_as_they_get_stays_within_the_cost_limit(plane: ControlPlane) -> None:
    """Fifty images of several names, fifty conditions, a hundred volumes: what the policy costs is bounded by the API server."""
    crowd = {
        "images": [
            {"names": [f"registry.example.com/{number}/{name}@sha256:{'0' * 64}" for name in range(10)]}
            for number in range(50)
        ],
        "conditions": [{"type": f"C{number}", "status": "False", "message": "m" * 200} for number in range(50)],
        "volumesInUse": [f"kubernetes.io/csi/{number}{'v' * 100}" for number in range(100)],
    }
    plane.admin.post(NODES, node("crowded"))
    plane.admin.patch(f"{NODES}/crowded/status", {"status": crowd}, "strategic")
    with plane.service_account(NAMESPACE, AGENT, create_agent_pod(plane, "crowded")) as agent:
        assert outcome(agent, conditions(OURS, name="crowded")) == ACCEPTED
        assert outcome(agent, conditions({"type": "C7", "status": "True"}, name="crowded")) == D


def test_the_api_server_finds_no_fault_in_the_policies(plane: ControlPlane) -> None:
    """It checks their expressions against the types that it knows, and warns of what can never hold."""
    found = plane.admin.list("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
    warnings = [each["status"].get("typeChecking", {}).get("expressionWarnings") for each in found if "status" in each]
    assert not any(warnings)


class TestTheAgentsOwnWay:
    """The agent's code against the API server, as its account."""

    def test_what_it_says_arrives_beside_what_others_say_and_once(self, plane: ControlPlane) -> None:
        """As kubectl shows it; only a change is written, and a new agent writes nothing that stands there already."""
        own, keeper = self.agent(plane, "told")
        keeper.show(sick(True))
        first = self.shown(plane, "told")
        assert (first["status"], first["reason"]) == ("False", "GPUsSick")
        assert "GPU 0 (GPU-0): xid 79" in first["message"]
        version = self.version(plane, "told")
        keeper.show(sick(True))
        again = KubernetesNode("told", plane.service_account_kubeconfig(NAMESPACE, AGENT, "agent-on-told"), None, 5.0)
        again.read()
        ConditionKeeper(again, lambda: 0.0).show(sick(True))
        assert self.version(plane, "told") == version
        own.read()
        keeper.show(sick(False))
        assert self.shown(plane, "told")["status"] == "True"
        assert "GPUsHealthy" in kubectl(plane, "describe", "node", "told")
        ready = [each for each in self.conditions(plane, "told") if each["type"] == "Ready"]
        assert [each["message"] for each in ready] == ["no kubelet"]

    def test_the_longest_message_is_within_what_the_policy_lets_through(self, plane: ControlPlane) -> None:
        """Sixteen GPUs with long reasons are cut short, and accepted."""
        _, keeper = self.agent(plane, "wordy")
        keeper.show(sick(True, gpus=24, reason="x" * 200))
        assert len(self.shown(plane, "wordy")["message"]) == MAX_MESSAGE_CHARACTERS

    def test_without_the_setting_the_agent_may_not(self, plane: ControlPlane) -> None:
        """The right is the setting's alone."""
        own, _ = self.agent(plane, "silent")
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gputopo-agent"
        granted = plane.admin.get(role)
        rules = [rule for rule in granted["rules"] if rule["resources"] != ["nodes/status"]]
        plane.admin.put(role, {**granted, "rules": rules})
        try:
            eventually(lambda: self.is_forbidden(own))
        finally:
            metadata = {key: text for key, text in granted["metadata"].items() if key != "resourceVersion"}
            plane.admin.put(role, {**granted, "metadata": metadata})
            eventually(lambda: not self.is_forbidden(own))

    @staticmethod
    def agent(plane: ControlPlane, name: str) -> tuple[KubernetesNode, ConditionKeeper]:
        plane.admin.post(NODES, node(name))
        pod = create_agent_pod(plane, name)
        own = KubernetesNode(name, plane.service_account_kubeconfig(NAMESPACE, AGENT, pod), None, 5.0)
        own.read()
        return own, ConditionKeeper(own, lambda: 0.0)

    @staticmethod
    def is_forbidden(own: KubernetesNode) -> bool:
        try:
            own.write_condition(OURS)
        except AgentApiError as error:
            return error.status == 403
        return False

    @staticmethod
    def conditions(plane: ControlPlane, name: str) -> list[Json]:
        found: list[Json] = plane.admin.get(f"{NODES}/{name}")["status"]["conditions"]
        return found

    def shown(self, plane: ControlPlane, name: str) -> Json:
        [ours] = [each for each in self.conditions(plane, name) if each["type"] == keys.GPUS_HEALTHY]
        return ours

    @staticmethod
    def version(plane: ControlPlane, name: str) -> str:
        version: str = plane.admin.get(f"{NODES}/{name}")["metadata"]["resourceVersion"]
        return version


def sick(is_sick: bool, gpus: int = 2, reason: str = "xid 79, needs a reset") -> NodeDiscovery:
    """Return a node whose GPUs are all sick, or all well."""
    well = discovery(gpus=gpus)
    if not is_sick:
        return well
    fallen = (replace(gpu, healthy=False, reasons=(reason,), sick_since=7) for gpu in well.status.gpus)
    return replace(well, status=replace(well.status, gpus=tuple(fallen)))
