"""What managed clusters ask for beside Kubernetes: quotas for critical pods on GKE, and OpenShift's constraints."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.agent_pod import AGENT
from tests.cluster.api import ApiError
from tests.cluster.control_plane import ControlPlane, new_state
from tests.cluster.extender_process import SCHEDULER_POD
from tests.cluster.installation import install_chart
from tests.cluster.polling import eventually
from tests.cluster.test_manifests import IN_NAMESPACE, as_made, hold_to
from tests.manifests.rendered import NAMESPACE

REQUIRED = [
    "allowHostDirVolumePlugin",
    "allowHostIPC",
    "allowHostNetwork",
    "allowHostPID",
    "allowHostPorts",
    "allowPrivilegedContainer",
    "allowedCapabilities",
    "defaultAddCapabilities",
    "priority",
    "readOnlyRootFilesystem",
    "requiredDropCapabilities",
    "volumes",
]
"""By OpenShift's own definition of SecurityContextConstraints."""
CRITICAL = ["system-cluster-critical", "system-node-critical"]


def limited_as_on_gke(state: Path) -> dict[str, object]:
    """Return the flags of an API server that admits critical pods only where a ResourceQuota allows them."""
    limited = {
        "resource": "pods",
        "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": CRITICAL}],
    }
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [limited],
    }
    whole = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": plugin}],
    }
    file = state / "admission.json"
    file.write_text(json.dumps(whole))
    return {"admission-control-config-file": file}


@pytest.fixture
def gke(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane that limits critical pods."""
    state = new_state()
    with ControlPlane(binaries, flags=limited_as_on_gke(state), state=state) as own:
        own.start_controllers("resourcequota-controller")
        yield own


def refusal(own: ControlPlane, workload: str) -> str:
    """Return why the API server refuses a pod of a workload; empty: it does not."""
    try:
        own.admin.post(f"{IN_NAMESPACE}/pods", as_made(own, workload), dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


def is_admitted(own: ControlPlane, workload: str) -> bool:
    """Return whether the API server admits a pod of a workload."""
    return not refusal(own, workload)


def test_critical_pods_are_admitted_where_they_need_a_quota(gke: ControlPlane) -> None:
    """Without one, the API server would admit neither the agents nor the schedulers."""
    install_chart(gke)
    hold_to(gke, "privileged")
    for workload in (f"daemonsets/{AGENT}", f"deployments/{SCHEDULER_POD}"):
        assert "insufficient quota to match these scopes" in refusal(gke, workload)
    install_chart(gke, "criticalPods=12")
    for workload in (f"daemonsets/{AGENT}", f"deployments/{SCHEDULER_POD}"):
        eventually(partial(is_admitted, gke, workload), within_seconds=30)
    (quota,) = gke.admin.get(f"{IN_NAMESPACE}/resourcequotas")["items"]
    assert quota["spec"]["hard"] == {"pods": "12"}


def constraints_crd() -> dict[str, Any]:
    """Return a definition of OpenShift's kind; of its fields it has those that must be there."""
    schema = {
        "type": "object",
        "required": REQUIRED,
        "properties": {name: {"x-kubernetes-preserve-unknown-fields": True, "nullable": True} for name in REQUIRED},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": "SecurityContextConstraints", "plural": "securitycontextconstraints"}
    spec = {"group": "security.openshift.io", "scope": "Cluster", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "securitycontextconstraints.security.openshift.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {**spec, "names": {**names, "singular": "securitycontextconstraints"}},
    }


def may_use(own: ControlPlane, account: str, constraints: str) -> bool:
    """Return whether RBAC lets an account of ours use these constraints, which is what OpenShift asks."""
    attributes = {
        "verb": "use",
        "group": "security.openshift.io",
        "resource": "securitycontextconstraints",
        "name": constraints,
        "namespace": NAMESPACE,
    }
    spec = {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    allowed: bool = own.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]
    return allowed


def test_accounts_may_use_their_constraints_and_no_others(binaries: Path) -> None:
    """The agent one of its own, the scheduler OpenShift's `nonroot-v2`; nobody may use `privileged`."""
    kinds = "/apis/security.openshift.io/v1/securitycontextconstraints"
    definitions, definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", constraints_crd()
    with ControlPlane(binaries) as own:
        own.admin.post(definitions, definition)
        eventually(lambda: _is_established(own, f"{definitions}/{definition['metadata']['name']}"))
        install_chart(own, "openshift.enabled=true")
        (made,) = eventually(lambda: own.admin.get(kinds)["items"])  # its list may still be older than the object
        assert made["metadata"]["name"] == AGENT
        for account, own_constraints in ((AGENT, AGENT), (SCHEDULER_POD, "nonroot-v2")):
            eventually(partial(may_use, own, account, own_constraints))  # the authorizer hears of a role a moment later
            constraints = [AGENT, "nonroot-v2", "privileged"]
            assert [name for name in constraints if may_use(own, account, name)] == [own_constraints]


def _is_established(own: ControlPlane, definition: str) -> bool:
    conditions = own.admin.get(definition).get("status", {}).get("conditions") or ()  # null until it was looked at
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)
