"""What the chart installs, on the real API server: it is accepted, it may do its work and no more, and it places pods."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from agent.node.events import NAMESPACE as NAMESPACE_OF_EVENTS
from benchmarks.processes.process import free_port
from benchmarks.simulated.fleet import SimulatedNode, node_object
from tests.cluster.agent_pod import AGENT, create_agent_pod
from tests.cluster.api import Api, ApiError
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import SCHEDULER_POD, in_its_container
from tests.cluster.installation import install_chart
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import NODES, PODS, node
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS, helm
from tests.manifests.objects import Json, all_objects
from tests.manifests.rendered import FOLDER, NAMESPACE
from tests.nvml.library import FakeNvml, has_compiler, machine
from topology.annotations import keys
from topology.annotations.codec import decode_topology

IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"


@pytest.fixture(scope="module", params=["helm install", "kubectl apply -k"])
def installed(request: pytest.FixtureRequest, binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane and install gputopo into it, in each of the two ways."""
    with ControlPlane(binaries) as own:
        if request.param == "helm install":
            install_chart(own)
        else:
            kubectl(own, "apply", "--server-side", "-k", FOLDER)
        yield own


def may(own: ControlPlane, name: str, verb: str, resource: str, namespace: str = "default") -> bool:
    """Return what RBAC says of one of our accounts; `resource` is of the core group unless it says more."""
    resource, _, subresource = resource.partition("/")
    resource, _, group = resource.partition(".")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
    }
    spec = {"user": f"system:serviceaccount:{NAMESPACE}:{name}", "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = own.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    allowed: bool = answer["status"]["allowed"]
    return allowed


def test_every_object_is_stored(installed: ControlPlane) -> None:
    """Both ways install the same objects, and the API server knows every field of them."""
    stored = kubectl(installed, "get", "-k", FOLDER, "-o", "name").split()
    assert len(stored) == len(list(all_objects()))
    kubectl(
        installed, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-k", FOLDER
    )


def hold_to(own: ControlPlane, standard: str) -> None:
    """Have the namespace hold pods to a standard; it counts a moment later."""
    own.admin.patch(IN_NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": standard}}})


def is_let_in(own: ControlPlane, pod: Json) -> bool:
    """Whether the namespace's standard admits a pod."""
    try:
        own.admin.post(f"{IN_NAMESPACE}/pods", pod, dryRun="All")
    except ApiError as refusal:
        if 'violates PodSecurity "restricted' not in str(refusal):
            raise
        return False
    return True


def as_made(own: ControlPlane, workload: str) -> Json:
    """Return a pod as a controller makes it."""
    template: Json = own.admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{workload}")["spec"]["template"]
    return {**template, "metadata": {**template["metadata"], "name": "as-the-controller-makes-it"}}


def test_agent_is_let_into_the_namespace(installed: ControlPlane) -> None:
    """It has folders of the host, which only the `privileged` standard admits."""
    hold_to(installed, "privileged")
    agent = as_made(installed, f"daemonsets/{AGENT}")
    eventually(lambda: is_let_in(installed, agent))


def test_scheduler_meets_the_restricted_standard(installed: ControlPlane) -> None:
    """Kubernetes' own admission lets it into a `restricted` namespace, and would refuse one that asks for the host."""
    template = as_made(installed, f"deployments/{SCHEDULER_POD}")
    on_host = template | {"spec": {**template["spec"], "hostNetwork": True}}
    hold_to(installed, "restricted")
    try:
        eventually(lambda: not is_let_in(installed, on_host))
        assert is_let_in(installed, template)
    finally:
        hold_to(installed, "privileged")
        eventually(lambda: is_let_in(installed, on_host))


def test_agent_writes_its_annotations_and_sees_no_pod(installed: ControlPlane) -> None:
    """With a real token."""
    installed.admin.post(NODES, node_object(SimulatedNode("agents-own", "t4-4")))
    with installed.service_account(NAMESPACE, AGENT, create_agent_pod(installed, "agents-own")) as agent:
        agent.patch(f"{NODES}/agents-own", {"metadata": {"annotations": {keys.STATUS: "{}"}}})
        with pytest.raises(ApiError, match="403"):
            agent.list(PODS)


def test_agent_may_write_nodes_and_tell_of_them_where_such_events_are(installed: ControlPlane) -> None:
    """By every right that the API server counts out: nothing but nodes in other namespaces, its own among them."""
    nodes, events = ({"get", "patch", "watch"}, {"nodes"}), ({"create", "patch"}, {"events"})
    with installed.service_account(NAMESPACE, AGENT) as agent:
        assert core_rights(agent, NAMESPACE_OF_EVENTS) == [nodes, events]
        for namespace in (NAMESPACE, "kube-system"):
            assert core_rights(agent, namespace) == [nodes]


def core_rights(account: Api, namespace: str) -> list[tuple[set[str], set[str]]]:
    """Return verbs and resources, rule by rule, of what an account may do with objects of the core group."""
    review = account.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})
    rules = [rule for rule in review["status"]["resourceRules"] if rule["apiGroups"] == [""]]
    return sorted(((set(rule["verbs"]), set(rule["resources"])) for rule in rules), key=lambda rule: -len(rule[0]))


@pytest.mark.parametrize(
    "right",
    ["list nodes", "patch nodes/status", "update nodes", "get pods", "get nodes/proxy", "get secrets", "get events",
     "delete events", "create events kube-system", f"create events {NAMESPACE}", f"patch events {NAMESPACE}"],
)  # fmt: skip
def test_agent_may_not(installed: ControlPlane, right: str) -> None:
    """It needs none of this."""
    assert not may(installed, AGENT, *right.split())


@pytest.mark.parametrize(
    "right",
    ["patch pods", "update pods", "create pods", "create pods/exec", "get secrets", "list configmaps", "get nodes/proxy",
     "update nodes", "patch nodes/status", "delete nodes", "create serviceaccounts/token", "impersonate users", "list jobs.batch",
     "list jobsets.jobset.x-k8s.io"],
)  # fmt: skip
def test_scheduler_and_extender_may_not(installed: ControlPlane, right: str) -> None:
    """Their one account, with all that kube-scheduler itself needs, still cannot touch what a pod is or read secrets."""
    assert not may(installed, SCHEDULER_POD, *right.split())


def test_extenders_own_role_suffices_for_its_writes(installed: ControlPlane) -> None:
    """Without kube-scheduler's roles beside it."""
    installed.admin.post(f"{IN_NAMESPACE}/serviceaccounts", {"metadata": {"name": "extender-alone"}})
    bind_role(installed, "gputopo-extender", "extender-alone")
    needed = ["list nodes", "watch nodes", "get nodes", "patch nodes", "list pods", "watch pods", "get pods"]
    needed += ["patch pods/status", "create pods/binding", "create events"]
    eventually(lambda: may(installed, "extender-alone", *needed[0].split()))  # role bindings count a moment later
    assert [right for right in needed if not may(installed, "extender-alone", *right.split())] == []
    assert not may(installed, "extender-alone", "delete", "pods")


def bind_role(own: ControlPlane, role: str, name: str) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    own.admin.post(f"/apis/{group}/v1/clusterrolebindings", binding)


def test_examples_are_accepted(installed: ControlPlane) -> None:
    """Every one of them, with strict field validation."""
    examples = list((MANIFESTS / "examples").glob("*.yaml"))
    stored = kubectl(
        installed, "apply", "--server-side", "--dry-run=server", "-f", MANIFESTS / "examples", "-o", "name"
    )
    assert len(stored.split()) == len(examples)


def test_workloads_are_accepted(installed: ControlPlane) -> None:
    """Jobs, a Deployment and a Service among them, with strict field validation."""
    stored = kubectl(
        installed, "apply", "--server-side", "--dry-run=server", "-f", MANIFESTS / "workloads", "-o", "name"
    )
    kinds = sorted(name.partition("/")[0] for name in stored.split())
    assert kinds == ["deployment.apps", "job.batch", "job.batch", *["pod"] * 4, "service"]


def test_installed_configuration_places_every_example(installed: ControlPlane) -> None:
    """The real scheduler and extender, configured by the ConfigMap and with the account's rights only, bind them all."""
    for number in range(6):
        installed.admin.post(NODES, node_object(SimulatedNode(f"hgx-{number}", "hgx-h100")))
    installed.admin.post(NODES, node_object(SimulatedNode("shared", "hgx-h100", shared_gpus=3)))
    with running(installed):
        kubectl(installed, "apply", "-f", MANIFESTS / "examples")
        eventually(lambda: all(pod["spec"].get("nodeName") for pod in installed.admin.list(PODS)))
        lease = installed.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{SCHEDULER_POD}")
    assert all(keys.PLACEMENT in pod["metadata"]["annotations"] for pod in installed.admin.list(PODS))
    assert lease["spec"]["holderIdentity"]


@contextmanager
def running(own: ControlPlane) -> Iterator[None]:
    """Run what the scheduler's pod would, as its account; only ports and the way to the API server are ours."""
    port, kubeconfig = free_port(), own.service_account_kubeconfig(NAMESPACE, SCHEDULER_POD)
    files = own.admin.get(f"{IN_NAMESPACE}/configmaps/{SCHEDULER_POD}")["data"]
    settings = {"listen.port": port, "kubernetes.kubeconfig": kubeconfig}
    extender = in_its_container(own.state, files["extender.yaml"], settings)
    configuration = yaml.safe_load(files["scheduler.yaml"].replace(":8888/", f":{port}/"))
    with extender.running():
        own.start_scheduler(configuration, kubeconfig)
        try:
            yield
        finally:
            own.stop_schedulers()


def test_installed_agent_publishes_its_node(installed: ControlPlane, tmp_path: Path) -> None:
    """The real agent, configured by the ConfigMap and with its account's rights only, on a pretend driver."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    installed.admin.post(NODES, node("hgx", gpus=8))
    with running_agent(installed, "hgx", FakeNvml(tmp_path).environment(machine("hgx_h100"))):
        written = eventually(lambda: annotations_of(installed, "hgx").get(keys.TOPOLOGY, ""))
    assert len(decode_topology(written)) == 8


@contextmanager
def running_agent(own: ControlPlane, name: str, driver: dict[str, str]) -> Iterator[None]:
    """Run what the agent's pod on that node would; the variables are those of the pod, but for the port."""
    port, file = free_port(), own.state / "agent.yaml"
    file.write_text(own.admin.get(f"{IN_NAMESPACE}/configmaps/{AGENT}")["data"]["agent.yaml"])
    variables = {"NODE_NAME": name, "GPUTOPO_HEALTH_HOST": "127.0.0.1", "GPUTOPO_HEALTH_PORT": port, **driver}
    environment = ["env", *(f"{key}={value}" for key, value in variables.items())]
    kubeconfig = own.service_account_kubeconfig(NAMESPACE, AGENT, create_agent_pod(own, name))
    program: list[str | Path] = [sys.executable, "-m", "agent", "--config", file, "--kubeconfig", kubeconfig]
    agent = Component("agent", [*environment, *program], own.state, f"http://127.0.0.1:{port}/readyz")
    with agent.running():
        yield


def annotations_of(own: ControlPlane, name: str) -> dict[str, str]:
    found: dict[str, str] = own.admin.get(f"{NODES}/{name}")["metadata"].get("annotations", {})
    return found


def test_uninstall_leaves_nothing(binaries: Path) -> None:
    """Nothing but the namespace, which Helm does not take away."""
    with ControlPlane(binaries) as own:
        install_chart(own)
        helm("uninstall", "gputopo", "--namespace", NAMESPACE, "--kubeconfig", own.kubeconfig())
        left = kubectl(own, "get", "-k", FOLDER, "--ignore-not-found", "-o", "name").split()
        assert left == [f"namespace/{NAMESPACE}"]
