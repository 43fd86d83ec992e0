"""What is installed may do what it needs and nothing else: pods are locked down, rights are counted out one by one."""

from collections import Counter
from datetime import UTC, datetime
from typing import get_args

import pytest

from agent.node.events import NAMESPACE as NAMESPACE_OF_EVENTS
from extender.binding.intents import (
    AllocateClaim,
    AskForLook,
    BindPod,
    FencePod,
    GetClaim,
    GetNode,
    GetPod,
    GetPodVersion,
    MarkClaim,
    Nominate,
    OpenGate,
    Single,
    SwapLedger,
    WritePlacement,
)
from extender.cluster.objects.kinds import Pod
from extender.kubernetes.events import PodName, unsatisfied
from extender.kubernetes.events import to_request as event_request
from extender.kubernetes.rest import Request, to_request
from tests.manifests.objects import Json, containers, named, of_kind, pod_specs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OF_CLAIMS = {GetClaim, MarkClaim, AllocateClaim}
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch"}
INTENTS: list[Single] = [
    GetPod("team", "p"),
    GetPodVersion("team", "p"),
    GetNode("n"),
    SwapLedger("n", "uid", "digest", "old", "new", "7"),
    AskForLook("n", "uid", "7"),
    BindPod("team", "p", "uid", "7", "n", {}),
    FencePod("team", "p", "uid", "7", "mark", Pod()),
    WritePlacement("team", "p", "uid", "7", "{}"),
    Nominate("team", "p", "uid", "7", "n"),
]


def right(request: Request) -> tuple[str, str]:
    """Return the verb and resource that RBAC asks about for a request to the core group."""
    path = request.path.partition("?")[0].removeprefix("/api/v1/").split("/")
    resource, *rest = path[2:] if path[0] == "namespaces" else path
    return VERBS[request.method], "/".join([resource, *rest[1:]])


def rights(role: Json) -> set[tuple[str, str]]:
    """Return (verb, resource) of every rule; all of them are about the core group."""
    assert all(rule["apiGroups"] == [""] for rule in role["rules"])
    return {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("spec", pod_specs(), ids=lambda spec: spec["serviceAccountName"])
def test_pod_runs_as_nobody_without_the_host(spec: Json) -> None:
    """Non-root, the runtime's seccomp profile, no namespace of the host, and of its files two folders of the agent's."""
    security = spec["securityContext"]
    assert security["runAsNonRoot"] and security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(spec.get(shared) for shared in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"))
    of_host = [volume["hostPath"]["path"] for volume in spec["volumes"] if volume.keys() != {"name", "configMap"}]
    assert of_host == (
        ["/var/lib/kubelet/pod-resources", "/var/lib/gputopo"] if spec["serviceAccountName"] == "gputopo-agent" else []
    )


@pytest.mark.parametrize(
    "container", [c for spec in pod_specs() for c in containers(spec)], ids=lambda container: container["name"]
)
def test_container_gives_up_every_privilege(container: Json) -> None:
    """Read-only root, no capability, no escalation, a bound on its memory; the agent owns the kubelet's sockets."""
    owner = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0} if container["name"] == "agent" else {}
    assert container["securityContext"] == owner | {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


def test_extender_may_do_what_its_code_asks_for_and_no_more() -> None:
    """The role is the two watches (`ListPods` lists as they do), the intents of the protocol and the events, and nothing else.

    Only an extender with a queue opens gates, and only one with `dra` writes claims: other tests look at their roles.
    """
    assert {type(intent) for intent in INTENTS} == set(get_args(Single)) - {OpenGate, *OF_CLAIMS}
    event = event_request(unsatisfied(PodName("team", "p", "uid"), Counter(["why"])), now=NOW)
    watches = {(verb, resource) for verb in ("list", "watch") for resource in ("nodes", "pods")}
    assert rights(named("ClusterRole", "gputopo-extender")) == watches | set(
        map(right, [*map(to_request, INTENTS), event])
    )


def test_agent_may_read_and_patch_nodes_and_tell_of_them_and_nothing_else() -> None:
    """A stolen token of the agent shows no pod and no secret; events are its right where those about nodes are."""
    assert rights(named("ClusterRole", "gputopo-agent")) == {("get", "nodes"), ("patch", "nodes"), ("watch", "nodes")}
    role = named("Role", "gputopo-agent")
    assert role["metadata"]["namespace"] == NAMESPACE_OF_EVENTS
    assert rights(role) == {("create", "events"), ("patch", "events")}


def test_no_rule_has_a_wildcard() -> None:
    """`*` would grow with the cluster."""
    for role in of_kind("ClusterRole", "Role"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_only_kube_schedulers_own_roles_are_borrowed() -> None:
    """Every other binding is to a role of ours, and every subject is an account of ours."""
    bindings = of_kind("ClusterRoleBinding", "RoleBinding")
    ours = {role["metadata"]["name"] for role in of_kind("ClusterRole", "Role")}
    accounts = {account["metadata"]["name"] for account in of_kind("ServiceAccount")}
    borrowed = {"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}
    assert {binding["roleRef"]["name"] for binding in bindings} == ours | borrowed
    assert {subject["name"] for binding in bindings for subject in binding["subjects"]} == accounts


def test_tokens_are_mounted_only_where_they_are_used() -> None:
    """An account gives its token to no pod that does not ask for it."""
    assert all(account["automountServiceAccountToken"] is False for account in of_kind("ServiceAccount"))
