"""Pods that request GPUs get the gate of the queue from the API server where an administrator wants that, and no others do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import msgspec
import pytest

from extender.cluster.objects.constraints import is_plain
from extender.cluster.objects.kinds import Pod
from tests.cluster.api import Json
from tests.cluster.binaries import is_oldest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import NODES, PODS, container, node, pod
from tests.cluster.polling import eventually
from tests.cluster.test_scheduler_name import DAEMON, GROUP, asking
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys

pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no MutatingAdmissionPolicy")

POLICY = "policies.planGate"
PLACEHOLDERS = "node-requests"
SETTINGS = (
    f"{POLICY}.enabled=true",
    "extender.config.queue.enabled=true",
    f"extender.autoscaling.namespace={PLACEHOLDERS}",
    "mig.profiles={1g.10gb,1g.10gb+me}",
)
OURS, THEIRS = {"name": keys.PLAN_GATE}, {"name": "kueue.x-k8s.io/admission"}
EXEMPT = ("kube-system", "gpu-operator", NAMESPACE)
CLAIM = {"name": "gpu", "resourceClaimName": "c"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"a": "b"}},
}
EPHEMERAL = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
VOLUMES: Mapping[str, Json] = {
    "scratch": {"emptyDir": {}},
    "claim": {"persistentVolumeClaim": {"claimName": "c"}},
    "ephemeral": {"ephemeral": {"volumeClaimTemplate": EPHEMERAL}},
}


def rendered(*settings: str, kube: str = "v1.37.2", apis: tuple[str, ...] = ()) -> str:
    """Return the policy as the chart gives it; skip without Helm."""
    sets = [word for setting in ("image.repository=gputopo", *SETTINGS, *settings) for word in ("--set", setting)]
    cluster = ("--namespace", NAMESPACE, "--kube-version", kube, *(f"--api-versions={api}" for api in apis))
    try:
        return helm("template", "gputopo", CHART, "--show-only", "templates/policies/plan_gate.yaml", *cluster, *sets)
    except HelmUnavailable as reason:
        pytest.skip(str(reason))


def gates(plane: ControlPlane, new: Json, namespace: str = "default") -> list[Json]:
    """Return the gates of a pod as the API server would store it."""
    stored = plane.admin.post(PODS.replace("default", namespace), new, dryRun="All")
    result: list[Json] = stored["spec"].get("schedulingGates", [])
    return result


def owned_by(kind: str) -> Json:
    """Return a pod with a GPU of this kind of owner."""
    return {**pod("p", 1), "metadata": {"name": "p", "ownerReferences": [{**DAEMON[0], "kind": kind}]}}


def annotated(key: str, text: str) -> Json:
    """Return a pod with a GPU and this annotation."""
    return {**pod("p", 1), "metadata": {"name": "p", "annotations": {key: text}}}


def volume(kind: str) -> Json:
    """Return a pod with a GPU and this kind of volume."""
    return pod("p", 1, volumes=[{"name": "v", **VOLUMES[kind]}])


CASES: Mapping[str, tuple[Json, list[Json]]] = {
    "requests a GPU": (pod("p", 1), [OURS]),
    "its init container requests one": (pod("p", initContainers=[container("first", gpus=1)]), [OURS]),
    "its second container requests one": (pod("p", containers=[container("a"), container("b", gpus=2)]), [OURS]),
    "requests a MIG slice": (pod("p", containers=asking("nvidia.com/mig-1g.10gb")), [OURS]),
    "requests a MIG slice with media": (pod("p", containers=asking("nvidia.com/mig-1g.10gb.me")), [OURS]),
    "requests a share": (pod("p", containers=asking(keys.SHARE_RESOURCE, "16")), [OURS]),
    "names a scheduler": (pod("p", 1, schedulerName="volcano"), [OURS]),
    "belongs to a Job": (owned_by("Job"), [OURS]),
    "has a gate of others": (pod("p", 1, schedulingGates=[THEIRS]), [THEIRS, OURS]),
    "claims to be a placeholder": (annotated(keys.PLACEHOLDER_FOR, "ml/train/0f3a"), [OURS]),
    "has scratch space": (volume("scratch"), [OURS]),
    "has the gate": (pod("p", 1, schedulingGates=[OURS]), [OURS]),
    "has the gate and one of others": (pod("p", 1, schedulingGates=[OURS, THEIRS]), [OURS, THEIRS]),
    "requests no GPU": (pod("p"), []),
    "requests none of them": (pod("p", containers=asking("nvidia.com/gpu", "0")), []),
    "requests a slice that is not served": (pod("p", containers=asking("nvidia.com/mig-2g.20gb")), []),
    "names its node": (pod("p", 1, nodeName="node-a"), []),
    "belongs to a DaemonSet": (owned_by("DaemonSet"), []),
    "has an affinity": (pod("p", 1, affinity={"nodeAffinity": {}}), []),
    "spreads": (pod("p", 1, topologySpreadConstraints=[SPREAD]), []),
    "has a resource claim": (pod("p", 1, resourceClaims=[CLAIM]), []),
    "has a volume claim": (volume("claim"), []),
    "has an ephemeral volume": (volume("ephemeral"), []),
}  # fmt: skip


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane that serves the policies of 1.34 and 1.35, too."""
    with ControlPlane(binaries, flags={"runtime-config": f"{GROUP}/v1beta1=true"}) as own:
        for name in ("ml", PLACEHOLDERS, *EXEMPT[1:]):
            own.admin.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"team": name}}})
        own.admin.post(NODES, node("node-a", gpus=8))
        yield own


def test_a_label_selects_the_namespaces(plane: ControlPlane) -> None:
    """Others are left alone."""
    policy = rendered(f"{POLICY}.namespaceSelector.matchLabels.team=ml")
    kubectl(plane, "apply", "--server-side", "--validate=strict", "-f", "-", given=policy)
    try:
        eventually(lambda: gates(plane, pod("p", 1), "ml") == [OURS])
        assert gates(plane, pod("p", 1)) == []
    finally:
        kubectl(plane, "delete", "-f", "-", given=policy)
        eventually(lambda: gates(plane, pod("p", 1), "ml") == [])


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def mutating(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[ControlPlane]:
    """Have the policy in force, by the API of 1.36 and by that of 1.34."""
    old = {"kube": "v1.34.0", "apis": (f"{GROUP}/v1beta1/MutatingAdmissionPolicy",)}
    policy = rendered(**(old if request.param == "v1beta1" else {}))  # type: ignore[arg-type]
    assert f"apiVersion: {GROUP}/{request.param}\nkind: MutatingAdmissionPolicy\n" in policy
    kubectl(plane, "apply", "--server-side", "--validate=strict", "-f", "-", given=policy)
    eventually(lambda: gates(plane, pod("p", 1)) == [OURS])
    yield plane
    kubectl(plane, "delete", "-f", "-", given=policy)
    eventually(lambda: gates(plane, pod("p", 1)) == [])


@pytest.mark.parametrize(("new", "expected"), CASES.values(), ids=CASES)
def test_pods_that_the_queue_plans_get_its_gate(mutating: ControlPlane, new: Json, expected: list[Json]) -> None:
    """Once, after the gates that they have; no other pod gets it."""
    assert gates(mutating, new) == expected


@pytest.mark.parametrize("namespace", EXEMPT)
def test_pods_of_exempt_namespaces_get_no_gate(mutating: ControlPlane, namespace: str) -> None:
    """Of the system, of NVIDIA's operator and of the chart."""
    assert gates(mutating, pod("p", 1), namespace) == []


def test_placeholders_get_no_gate(mutating: ControlPlane) -> None:
    """They stand for pods of the queue; what else is in their namespace gets the gate."""
    assert gates(mutating, annotated(keys.PLACEHOLDER_FOR, "ml/train/0f3a"), PLACEHOLDERS) == []
    assert gates(mutating, pod("p", 1), PLACEHOLDERS) == [OURS]


def test_the_policy_and_the_queue_agree_which_pods_are_planned(mutating: ControlPlane) -> None:
    """A pod with a gate that the queue does not plan would wait in vain; of random pods there is none."""
    random = Random(11)
    for _ in range(100):
        spec: Json = {}
        if random.random() < 0.3:
            spec["affinity"] = random.choice(({}, {"podAntiAffinity": {}}))
        if random.random() < 0.3:
            spec["topologySpreadConstraints"] = random.choice(([], [SPREAD]))
        if random.random() < 0.3:
            spec["resourceClaims"] = random.choice(([], [CLAIM]))
        kinds = random.sample(sorted(VOLUMES), random.randrange(3))
        spec["volumes"] = [{"name": kind, **VOLUMES[kind]} for kind in kinds]
        stored = mutating.admin.post(PODS, pod("p", 1, **spec), dryRun="All")
        plain = is_plain(msgspec.convert(stored, Pod, strict=False))
        assert (OURS in stored["spec"].get("schedulingGates", [])) is plain, spec
