"""Pods that ask for our GPUs and forgot their scheduler get ours, or their owner is warned; on the real API server."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cluster.api import Json
from tests.cluster.binaries import is_oldest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import GPU, NODES, PODS, container, node, pod
from tests.cluster.polling import eventually
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME

GROUP = "admissionregistration.k8s.io"
TEMPLATE = "templates/policies/scheduler_name.yaml"
DEFAULT = "default-scheduler"
MORE = "policies.schedulerName.resources={nvidia.com/mig-*,gputopo.dev/gpu-memory-gib}"
ELSEWHERE = ("kube-system", "gpu-operator", NAMESPACE)
DAEMON = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}]
needs_mutation = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no MutatingAdmissionPolicy")


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane that serves the policies of 1.34 and 1.35, too, with the namespaces of a GPU cluster."""
    flags = {} if is_oldest() else {"runtime-config": f"{GROUP}/v1beta1=true"}
    with ControlPlane(binaries, flags=flags) as own:
        for name in ("ml", "web", *ELSEWHERE[1:]):
            own.admin.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"team": name}}})
        own.admin.post(NODES, node("node-a", gpus=8))
        yield own


def chart(mode: str, *settings: str, kube: str = "v1.37.2", apis: tuple[str, ...] = ()) -> str:
    """Return what the chart gives for the name of the scheduler alone; skip without Helm."""
    words = [word for each in (f"policies.schedulerName.mode={mode}", *settings) for word in ("--set", each)]
    offered = [word for each in apis for word in ("--api-versions", each)]
    cluster = ("--namespace", NAMESPACE, "--kube-version", kube, *offered, "--set", "image.repository=gputopo")
    try:
        return helm("template", "gputopo", CHART, "--show-only", TEMPLATE, *cluster, *words)
    except HelmUnavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def in_force(plane: ControlPlane, rendered: str, takes: Json) -> Iterator[None]:
    """Have a policy in force, as `takes` shows, for the length of a `with` block."""
    kubectl(plane, "apply", "--server-side", "--validate=strict", "-f", "-", given=rendered)
    try:
        eventually(lambda: scheduler_of(plane, takes) == SCHEDULER_NAME or warned(plane, takes))
        yield
    finally:
        kubectl(plane, "delete", "-f", "-", given=rendered)
        eventually(lambda: scheduler_of(plane, takes) == DEFAULT and not warned(plane, takes))


def scheduler_of(plane: ControlPlane, asked: Json, namespace: str = "default") -> str:
    """Return the scheduler of a pod as the API server would store it."""
    stored = plane.admin.post(PODS.replace("default", namespace), asked, dryRun="All")
    name: str = stored["spec"]["schedulerName"]
    return name


def warned(plane: ControlPlane, asked: Json, namespace: str = "default") -> bool:
    """Whether kubectl prints a warning of ours when somebody creates an object."""
    command: list[str | Path] = [plane.binaries / "kubectl", "--kubeconfig", plane.kubeconfig()]
    command += ["create", "--dry-run=server", "--namespace", namespace, "-f", "-"]
    ended = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return f"asks for GPUs without spec.schedulerName: {SCHEDULER_NAME}" in ended.stderr


def asking(resource: str, amount: str = "1") -> list[Json]:
    """Return the one container of a pod that asks for a resource."""
    return [{**container(), "resources": {"limits": {resource: amount}}}]


CASES: Mapping[str, tuple[Json, str]] = {
    "asks for a GPU": (pod("p", 1), SCHEDULER_NAME),
    "only its init container asks": (pod("p", initContainers=[container("first", gpus=1)]), SCHEDULER_NAME),
    "its sidecar asks": (
        pod("p", initContainers=[{**container("beside", gpus=1), "restartPolicy": "Always"}]),
        SCHEDULER_NAME,
    ),
    "its second container asks": (pod("p", containers=[container("a"), container("b", gpus=2)]), SCHEDULER_NAME),
    "asks for a MIG slice": (pod("p", containers=asking("nvidia.com/mig-1g.10gb")), SCHEDULER_NAME),
    "asks for a share": (pod("p", containers=asking("gputopo.dev/gpu-memory-gib", "16")), SCHEDULER_NAME),
    "names the default scheduler": (pod("p", 1, schedulerName=DEFAULT), SCHEDULER_NAME),
    "is gated": (pod("p", 1, schedulingGates=[{"name": "example.com/wait"}]), SCHEDULER_NAME),
    "belongs to a job": (
        {**pod("p", 1), "metadata": {"name": "p", "ownerReferences": [{**DAEMON[0], "kind": "Job", "apiVersion": "batch/v1"}]}},
        SCHEDULER_NAME,
    ),
    "names ours": (pod("p", 1, schedulerName=SCHEDULER_NAME), SCHEDULER_NAME),
    "names another scheduler": (pod("p", 1, schedulerName="volcano"), "volcano"),
    "asks for no GPU": (pod("p"), DEFAULT),
    "asks for none of them": (pod("p", containers=asking(GPU, "0")), DEFAULT),
    "asks for another device": (pod("p", containers=asking("example.com/fpga")), DEFAULT),
    "asks for what only begins alike": (pod("p", containers=asking("nvidia.com/gpu.shared")), DEFAULT),
    "names its node": (pod("p", 1, nodeName="node-a"), DEFAULT),
    "belongs to a DaemonSet": ({**pod("p", 1), "metadata": {"name": "p", "ownerReferences": DAEMON}}, DEFAULT),
}  # fmt: skip


@needs_mutation
def test_selectors_say_which_namespaces_and_pods_it_is_about(plane: ControlPlane) -> None:
    """By their labels; what is exempt stays so."""
    prefix = "policies.schedulerName"
    chosen = (f"{prefix}.namespaceSelector.matchLabels.team=ml", f"{prefix}.objectSelector.matchLabels.kind=train")
    train, other = pod("p", 1, labels={"kind": "train"}), pod("p", 1, labels={"kind": "serve"})
    rendered = chart("set", *chosen)
    kubectl(plane, "apply", "--server-side", "--validate=strict", "-f", "-", given=rendered)
    try:
        eventually(lambda: scheduler_of(plane, train, "ml") == SCHEDULER_NAME)
        assert {scheduler_of(plane, train, each) for each in ("web", "default", "kube-system")} == {DEFAULT}
        assert scheduler_of(plane, other, "ml") == DEFAULT
    finally:
        kubectl(plane, "delete", "-f", "-", given=rendered)
        eventually(lambda: scheduler_of(plane, train, "ml") == DEFAULT)


@pytest.fixture
def warning(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Have those warned whom nothing is done for: what 1.30 to 1.33 can do."""
    with in_force(plane, chart("auto", MORE, kube="v1.30.14"), pod("p", 1)):
        yield plane


def of_template(kind: str, version: str, asked: Json) -> Json:
    """Return a workload of such pods."""
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": asked["spec"]}
    spec: Json = {"template": template, **({} if kind == "Job" else {"selector": {"matchLabels": labels}})}
    if kind == "Job":
        template["spec"] = {**asked["spec"], "restartPolicy": "Never"}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def test_a_warning_changes_nothing_and_nobody_is_warned_for_nothing(warning: ControlPlane) -> None:
    """It speaks of those whose scheduler would be set elsewhere."""
    assert scheduler_of(warning, pod("p", 1)) == DEFAULT
    for what, (asked, name) in CASES.items():
        is_set = name == SCHEDULER_NAME and what != "names ours"
        assert warned(warning, asked) is is_set, what


def test_where_pods_cannot_be_changed_their_owner_is_warned(warning: ControlPlane) -> None:
    """Of pods, and of what people write in their place; not in the system's namespaces, and not of another scheduler's."""
    gpu, other = pod("p", 1), pod("p", 1, schedulerName="volcano")
    assert warned(warning, gpu) and not warned(warning, other)
    assert not warned(warning, gpu, "kube-system")
    for kind, version in (("Deployment", "apps/v1"), ("StatefulSet", "apps/v1"), ("Job", "batch/v1")):
        assert warned(warning, of_template(kind, version, gpu)), kind
        assert not warned(warning, of_template(kind, version, other)), kind
        assert not warned(warning, of_template(kind, version, pod("p"))), kind


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def mutating(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[ControlPlane]:
    """Have pods mutated, by the API of 1.36 and by that of 1.34."""
    old = {"kube": "v1.34.0", "apis": (f"{GROUP}/v1beta1/MutatingAdmissionPolicy",)}
    rendered = chart("auto", MORE, **(old if request.param == "v1beta1" else {}))  # type: ignore[arg-type]
    assert f"apiVersion: {GROUP}/{request.param}\nkind: MutatingAdmissionPolicy\n" in rendered
    with in_force(plane, rendered, pod("p", 1)):
        yield plane


@needs_mutation
@pytest.mark.parametrize(("asked", "expected"), CASES.values(), ids=CASES)
def test_who_forgot_a_scheduler_gets_ours(mutating: ControlPlane, asked: Json, expected: str) -> None:
    """And nobody else."""
    assert scheduler_of(mutating, asked) == expected


@needs_mutation
@pytest.mark.parametrize("namespace", ELSEWHERE)
def test_pods_of_the_system_are_left_alone(mutating: ControlPlane, namespace: str) -> None:
    """In a namespace beside it they are not."""
    assert scheduler_of(mutating, pod("p", 1), namespace) == DEFAULT
    assert scheduler_of(mutating, pod("p", 1), "ml") == SCHEDULER_NAME


@needs_mutation
def test_a_pod_that_is_there_stays_as_it_is(mutating: ControlPlane) -> None:
    """Its scheduler cannot be changed; it can be debugged and labelled all the same."""
    mutating.admin.post(PODS, pod("there", 1, schedulerName="volcano"))
    try:
        debugger = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "example.test/none"}]}}
        mutating.admin.patch(f"{PODS}/there/ephemeralcontainers", debugger, "strategic")
        labelled = mutating.admin.patch(f"{PODS}/there", {"metadata": {"labels": {"a": "b"}}})
        assert labelled["spec"]["schedulerName"] == "volcano"
    finally:
        mutating.admin.delete(f"{PODS}/there")


@needs_mutation
def test_random_pods_fare_as_the_rule_says(mutating: ControlPlane) -> None:
    """The rule, written down once more in Python."""
    random = Random(15)
    for number in range(100):
        asked, namespace = some_pod(random, number), random.choice(("default", "ml", "kube-system"))
        assert scheduler_of(mutating, asked, namespace) == ruled(asked, namespace), (asked, namespace)


def some_pod(random: Random, number: int) -> Json:
    """Make a pod up."""
    containers = [some_container(random, f"c{at}") for at in range(random.randrange(1, 4))]
    before = [some_container(random, f"i{at}") for at in range(random.randrange(0, 3))]
    spec: Json = {"initContainers": before} if before else {}
    if name := random.choice(("", "", "", DEFAULT, SCHEDULER_NAME, "volcano")):
        spec["schedulerName"] = name
    if random.random() < 0.1:
        spec["nodeName"] = "node-a"
    made = pod(f"p{number}", containers=containers, **spec)
    if random.random() < 0.2:
        made["metadata"]["ownerReferences"] = [{**DAEMON[0], "kind": random.choice(("DaemonSet", "ReplicaSet"))}]
    return made


def some_container(random: Random, name: str) -> Json:
    """Make a container up, which asks for nothing in most cases."""
    resources: Json = {}
    if random.random() < 0.4:
        resource = random.choice((GPU, "nvidia.com/mig-2g.20gb", "nvidia.com/gpux", "example.com/gpu", "cpu"))
        resources = {"limits": {resource: random.choice(("0", "1", "2k"))}}
    return {**container(name), "resources": resources}


def ruled(asked: Json, namespace: str) -> str:
    """Return the scheduler that a pod should have."""
    spec: Any = asked["spec"]
    name = str(spec.get("schedulerName", DEFAULT))
    owners = [owner["kind"] for owner in asked["metadata"].get("ownerReferences", ())]
    if name != DEFAULT or "nodeName" in spec or "DaemonSet" in owners or namespace == "kube-system":
        return name
    limits = [each["resources"].get("limits", {}) for each in (*spec["containers"], *spec.get("initContainers", ()))]
    ours = (
        amount for each in limits for key, amount in each.items() if key == GPU or key.startswith("nvidia.com/mig-")
    )
    return SCHEDULER_NAME if any(amount != "0" for amount in ours) else DEFAULT
