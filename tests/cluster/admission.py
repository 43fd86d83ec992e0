"""Requests as rows of a truth table: who asks for what, and which admission policy has to refuse it.

Every request is a dry run: it passes authorization and admission as any other, and changes nothing. A row is right when the
API server names the very policy that is expected, or accepts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import NODES, PODS, Json, node, pod
from topology.annotations import keys

Request = Callable[[Api], Json]

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

ACCEPTED = "accepted"
RBAC = "RBAC"


@dataclass(frozen=True)
class Row:
    """One line of the table; `refused_by` is the name of a policy without `gputopo-`, or one of the words above."""

    who: str
    what: str
    request: Request
    refused_by: str = ACCEPTED

    def parameter(self) -> Any:
        """Return it for `pytest.mark.parametrize`."""
        return pytest.param(self, id=f"{self.who.rpartition(':')[2]} {self.what}")


def outcome(api: Api, request: Request) -> str:
    """Say which policy refused a request, or which of the words above applies."""
    try:
        request(api)
    except ApiError as error:
        if error.code != 403:
            raise
        _, _, policy = str(error).partition("ValidatingAdmissionPolicy 'gputopo-")
        return policy.partition("'")[0] or RBAC
    return ACCEPTED


def create_pod(annotations: Mapping[str, str] | None = None, gpus: int = 0, **spec: object) -> Request:
    """Create a pod in the default namespace."""
    body = pod("new", gpus, annotations, None, **spec)
    return lambda api: api.post(PODS, body, dryRun="All")


def annotate_pod(name: str, annotations: Mapping[str, str | None] | None, subresource: str = "") -> Request:
    """Set annotations of a pod; `None` removes one, or all."""
    body = {"metadata": {"annotations": annotations}}
    return lambda api: api.patch(f"{PODS}/{name}{subresource}", body, dryRun="All")


def debug_pod(name: str, annotations: Mapping[str, str]) -> Request:
    """Add a container for debugging to a pod, as `kubectl debug` does, and annotations with it."""
    debugger = {"name": "debugger", "image": "example.test/none"}
    body = {"metadata": {"annotations": annotations}, "spec": {"ephemeralContainers": [debugger]}}
    return lambda api: api.patch(f"{PODS}/{name}/ephemeralcontainers", body, "strategic", dryRun="All")


def bind(name: str, annotations: Mapping[str, str] | None = None, *, old_way: bool = False) -> Request:
    """Bind a pod to the first node; the old way is to create a Binding, the new one a subresource of the pod."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-a"},
    }
    path = PODS.replace("/pods", "/bindings") if old_way else f"{PODS}/{name}/binding"
    return lambda api: api.post(path, body, dryRun="All")


def create_node(annotations: Mapping[str, str] | None = None) -> Request:
    """Create a node."""
    return lambda api: api.post(NODES, node("node-new", annotations=annotations), dryRun="All")


def annotate_node(annotations: Mapping[str, str | None], name: str = "node-a", subresource: str = "") -> Request:
    """Set annotations of a node; `None` removes one."""
    return change_node({"metadata": {"annotations": annotations}}, name, subresource)


def change_node(body: Mapping[str, Any], name: str = "node-a", subresource: str = "") -> Request:
    """Change anything of a node."""
    return lambda api: api.patch(f"{NODES}/{name}{subresource}", dict(body), dryRun="All")


def with_records(api: Api) -> None:
    """Create what the requests are about: two nodes with all of our annotations, a placed pod and a waiting one."""
    for name in ("node-a", "node-b"):
        api.post(NODES, node(name, 8, {keys.TOPOLOGY: "{}", keys.STATUS: "{}", keys.LEDGER: "{}"}))
    api.post(PODS, pod("placed", 1, {keys.PLACEMENT: "{}"}, nodeName="node-a"))
    api.post(PODS, pod("waiting", 1, schedulerName="gputopo"))


def unbind_policies(plane: ControlPlane) -> None:
    """Take every admission policy out of force."""
    plane.admin.delete(BINDINGS)


def put_in_force(plane: ControlPlane) -> None:
    """Bind every policy that is not bound."""
    bound = {found["metadata"]["name"] for found in plane.admin.list(BINDINGS)}
    for name in {found["metadata"]["name"] for found in plane.admin.list(POLICIES)} - bound:
        spec = {"policyName": name, "validationActions": ["Deny"]}
        plane.admin.post(BINDINGS, {"metadata": {"name": name}, "spec": spec})
