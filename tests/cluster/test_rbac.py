"""SEC3: our accounts have exactly the rights that our programs use: each is needed by an operation, and there are no others.

The operations are the product's own code, aimed at objects that do not exist: whoever may gets a 404, whoever may not a 403.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.errors import ApiError as AgentApiError
from agent.node.kube import KubernetesNode
from extender.binding.intents import BindPod, FencePod, GetNode, GetPod, Intent, Refused, SwapLedger
from extender.cluster.objects.kinds import Pod
from extender.kubernetes.events import PodName, to_request, unsatisfied
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable
from tests.cluster.agent_pod import AGENT
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.cluster.polling import eventually
from tests.manifests.rendered import FOLDER, NAMESPACE

Right = tuple[str, str]
"""Verb and resource."""
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
EVENTS_ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/{AGENT}"
"""Events about nodes are in one namespace, and the agent's right to them is there."""
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
EXTENDER, NOBODY = "gputopo-extender", "nobody"
"""An account with the extender's role and without kube-scheduler's beside it, and one with no role."""


def intent(asked: Intent) -> Callable[[KubeApi], Awaitable[bool]]:
    """Return an operation of the protocol; it tells whether it was forbidden."""

    async def forbidden(api: KubeApi) -> bool:
        reply = await api.execute(asked, 5.0)
        return isinstance(reply, Refused) and reply.status == 403

    return forbidden


def lists(path: str) -> Callable[[KubeApi], Awaitable[bool]]:
    """Return the first half of keeping a cache."""
    return lambda api: denies(api.resource(path).list_page(None))


def watches(path: str) -> Callable[[KubeApi], Awaitable[bool]]:
    """Return the second half."""

    async def first_chunk(api: KubeApi) -> None:
        async with aclosing(api.resource(path).watch("0")) as stream:
            await anext(stream)

    return lambda api: denies(first_chunk(api))


async def denies(request: Awaitable[object]) -> bool:
    try:
        await request
    except Unavailable as refusal:
        if not refusal.denied:
            raise
        return True
    return False


async def tells(api: KubeApi) -> bool:
    """Post an event."""
    event = to_request(
        unsatisfied(PodName("default", "no-such", "u"), Counter(["why"])), now=datetime(2026, 1, 1, tzinfo=UTC)
    )
    status, _ = await api.send(event)
    return status == 403


EXTENDERS: Mapping[Right, Callable[[KubeApi], Awaitable[bool]]] = {
    ("list", "nodes"): lists("/api/v1/nodes"),
    ("watch", "nodes"): watches("/api/v1/nodes"),
    ("get", "nodes"): intent(GetNode("no-such")),
    ("patch", "nodes"): intent(SwapLedger("no-such", "u", "d", "old", "new", "1")),
    ("list", "pods"): lists("/api/v1/pods"),
    ("watch", "pods"): watches("/api/v1/pods"),
    ("get", "pods"): intent(GetPod("default", "no-such")),
    ("patch", "pods/status"): intent(FencePod("default", "no-such", "u", "1", "mark", Pod())),
    ("create", "pods/binding"): intent(BindPod("default", "no-such", "u", "1", "no-such", {})),
    ("create", "events"): tells,
}
AGENTS: Mapping[Right, Callable[[KubernetesNode], object]] = {
    ("get", "nodes"): KubernetesNode.read,
    ("patch", "nodes"): lambda own: own.write({}),
    ("watch", "nodes"): lambda own: next(own.follow(1), None),
    ("create", "events"): lambda own: own.post_event({"metadata": {"name": "no-such.1", "namespace": "default"}}),
    ("patch", "events"): lambda own: own.count_event("no-such.2", {"count": 2}),
}


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with gputopo installed and the two accounts above."""
    with ControlPlane(binaries) as own:
        kubectl(own, "apply", "--server-side", "-k", FOLDER)
        for name in (EXTENDER, NOBODY):
            own.admin.post(ACCOUNTS, {"metadata": {"name": name}})
        account = f"--serviceaccount={NAMESPACE}:{EXTENDER}"
        kubectl(own, "create", "clusterrolebinding", "extender-alone", f"--clusterrole={EXTENDER}", account)
        yield own


def forbidden_to_extender(own: ControlPlane) -> set[Right]:
    """Return the rights whose operation is forbidden to the extender now."""

    async def tried() -> set[Right]:
        async with KubeApi.from_kubeconfig(own.service_account_kubeconfig(NAMESPACE, EXTENDER)) as api:
            return {right for right, is_forbidden in EXTENDERS.items() if await is_forbidden(api)}

    return asyncio.run(tried())


def forbidden_to_agent(own: ControlPlane) -> set[Right]:
    """Return the rights whose operation is forbidden to the agent now."""
    node = KubernetesNode("no-such", own.service_account_kubeconfig(NAMESPACE, AGENT), None, 5.0)
    return {right for right, operation in AGENTS.items() if status(operation, node) == 403}


def status(operation: Callable[[KubernetesNode], object], node: KubernetesNode) -> int:
    """Return what the agent's error says, 200 without one."""
    try:
        operation(node)
    except AgentApiError as error:
        return error.status
    return 200


def without(role: Json, right: Right) -> Json:
    """Return a role less one right."""
    verb, resource = right
    rules = [
        {**rule, "verbs": [other for other in rule["verbs"] if (other, *rule["resources"]) != (verb, resource)]}
        for rule in role["rules"]
    ]
    return {**role, "rules": [rule for rule in rules if rule["verbs"]]}


def check_removal(own: ControlPlane, path: str, right: Right, forbidden: Callable[[ControlPlane], set[Right]]) -> None:
    """See that without one right of a role exactly the operation that is for it is forbidden, and with it none."""
    role = own.admin.get(path)
    own.admin.put(path, without(role, right))
    try:
        eventually(lambda: forbidden(own) == {right})
    finally:
        del role["metadata"]["resourceVersion"]
        own.admin.put(path, role)
    eventually(lambda: not forbidden(own))


@pytest.mark.parametrize("right", EXTENDERS, ids=" ".join)
def test_sec3_extender_needs(plane: ControlPlane, right: Right) -> None:
    """Taking one right away forbids one operation, so none is spare and none stands in for another."""
    check_removal(plane, f"{ROLES}/{EXTENDER}", right, forbidden_to_extender)


@pytest.mark.parametrize("right", AGENTS, ids=" ".join)
def test_sec3_agent_needs(plane: ControlPlane, right: Right) -> None:
    """The same for the agent."""
    path = EVENTS_ROLE if right[1] == "events" else f"{ROLES}/{AGENT}"
    check_removal(plane, path, right, forbidden_to_agent)


def test_sec3_agent_says_nothing_of_what_is_in_other_namespaces(plane: ControlPlane) -> None:
    """Its right to events ends where those about nodes are."""
    with plane.service_account(NAMESPACE, AGENT) as api, pytest.raises(ApiError) as refusal:
        api.post("/api/v1/namespaces/kube-system/events", {}, dryRun="All")
    assert refusal.value.code == 403


@pytest.mark.parametrize(("name", "operations"), [(EXTENDER, EXTENDERS), (AGENT, AGENTS)], ids=[EXTENDER, AGENT])
def test_sec3_api_server_counts_the_same_rights(
    plane: ControlPlane, name: str, operations: Mapping[Right, object]
) -> None:
    """A SelfSubjectRulesReview lists what the operations need, beside what every account may."""
    assert rules(plane, name) - rules(plane, NOBODY) == {(verb, "", resource) for verb, resource in operations}


def rules(own: ControlPlane, name: str) -> set[tuple[str, str, str]]:
    """Return verb, API group and resource of every rule that the API server counts out to an account."""
    with own.service_account(NAMESPACE, name) as api:
        review = api.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    return {
        (verb, group, resource)
        for rule in review["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize(("name", "operations"), [(EXTENDER, EXTENDERS), (AGENT, AGENTS)], ids=[EXTENDER, AGENT])
def test_sec3_everything_else_is_forbidden(plane: ControlPlane, name: str, operations: Mapping[Right, object]) -> None:
    """Every verb on every resource that the API server serves is tried, and answered with 403 if it is not listed."""
    beyond = permitted(plane, name) - permitted(plane, NOBODY)
    assert beyond == {(verb, "v1", resource) for verb, resource in operations}


def permitted(own: ControlPlane, name: str) -> set[tuple[str, str, str]]:
    """Return verb, group version and resource of every request that was not forbidden to an account."""
    requests = list(every_request(own.admin))
    assert len(requests) > 500
    with own.service_account(NAMESPACE, name) as api, ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda request: is_permitted(api, request[0], *request[3:]), requests)
        return {request[:3] for request, answer in zip(requests, answers, strict=True) if answer}


def every_request(admin: Api) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield verb, group version, resource, collection and object of everything that can be asked of the API server."""
    groups = [group["preferredVersion"]["groupVersion"] for group in admin.get("/apis")["groups"]]
    for version in ["v1", *groups]:
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        for resource in admin.get(root)["resources"]:
            plural, slash, subresource = resource["name"].partition("/")
            collection = f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"
            for verb in resource["verbs"]:
                yield verb, version, resource["name"], collection, f"{collection}/no-such{slash}{subresource}"


def is_permitted(api: Api, verb: str, collection: str, item: str) -> bool:
    """Ask for one thing, without consequences; whatever else is wrong with the request, a 403 comes first."""
    creates_below = item.count("/") > collection.count("/") + 1
    try:
        match verb:
            case "get":
                api.get(item)
            case "list":
                api.get(collection, limit="1")
            case "watch":
                next(api.watch(collection, 1), None)
            case "create":
                api.post(item if creates_below else collection, {}, dryRun="All")
            case "update":
                api.put(item, {}, dryRun="All")
            case "patch":
                api.patch(item, {}, dryRun="All")
            case "delete":
                api.delete(item, dryRun="All")
            case "deletecollection":
                api.delete(collection, dryRun="All", labelSelector="no=such")
    except ApiError as error:
        return error.code != 403
    return True
