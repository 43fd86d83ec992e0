"""Which versions and policies there are, and which of them need somebody."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from extender.inspect.control_plane import GUARDS, QUEUE_GUARD, ControlPlane, ExtenderInfo, PlannerInfo, PolicyInfo
from extender.inspect.status import Status, status
from extender.kubectl.status_lines import version_lines
from tests.extender.builders import cluster, node, pod
from tests.manifests.rendered import FOLDER
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import NodeGpuStatus

ALL_BOUND = tuple(PolicyInfo(name=f"gputopo-{guard}", actions=("Deny",)) for guard in GUARDS)


def told(
    agents: Mapping[str, str] | None = None, *, extender: str = "", steers: bool = False, **plane: object
) -> Status:
    """Return the status of nodes whose agents say these versions; `extender` is the version of one that was asked."""
    info = ExtenderInfo(version=extender, steers_queues=steers, policies_in_force=None) if extender else None
    nodes = [
        node(name, status=encode_status(NodeGpuStatus(1, agent_version=version)))
        for name, version in (agents or {"n1": "0.2.0"}).items()
    ]
    return status(cluster(*nodes), plane=ControlPlane(extender=info, **plane))


def found(told: Status) -> list[tuple[str, tuple[str, ...]]]:
    assert all(finding.remedy for finding in told.findings)
    return [(finding.what, finding.nodes) for finding in told.findings]


def test_versions_are_counted() -> None:
    """Agents that do not say theirs are counted, too; several drivers are nothing that anybody has to mend."""
    seen = told({"n1": "0.2.0", "n2": "0.2.0"}, api_server="v1.36.2", policies=ALL_BOUND, extender="0.2.0")
    assert seen.findings == ()
    assert (seen.agents, sum(seen.drivers.values()), sum(seen.cuda.values())) == ({"0.2.0": 2}, 2, 2)
    assert told({"n1": "", "n2": "0.2.0"}).agents == {"0.2.0": 1, "unknown": 1}


@pytest.mark.parametrize(
    ("agents", "extender", "what"),
    [
        ({"n1": "0.2.0", "n2": "0.10.0"}, "", "agents are 0.2.0, older than others, which are 0.10.0"),
        ({"n1": "", "n2": "0.2.0"}, "", "agents do not say their version, so they are older than others, which are 0.2.0"),
        ({"n1": "0.2.0.dev1"}, "0.2.0", "agents are 0.2.0.dev1, unlike the extender, which is 0.2.0"),
        ({"n1": "0.2.0"}, "0.3.0", "agents are 0.2.0, older than the extender, which is 0.3.0"),
        ({"n1": "0.3.0", "n2": "0.2.0"}, "0.2.0", "agents are 0.3.0, newer than the extender, which is 0.2.0"),
        ({"n1": ""}, "0.2.0", "agents do not say their version, so they are older than the extender, which is 0.2.0"),
    ],
)  # fmt: skip
def test_agents_of_another_version_are_told_with_their_nodes(agents: dict[str, str], extender: str, what: str) -> None:
    """Than the extender where one was asked, else than the newest of them; numbers count as numbers."""
    assert found(told(agents, extender=extender)) == [(what, ("n1",))]


def test_agents_that_all_say_nothing_are_compared_with_nothing() -> None:
    """As after an upgrade of the plugin alone."""
    assert told({"n1": "", "n2": ""}).findings == ()


@pytest.mark.parametrize(
    ("version", "steers", "what"),
    [
        ("v1.29.9-gke.1", False, ["the API server is v1.29.9-gke.1, older than 1.30"]),
        ("v1.30.14", False, []),
        ("v1.34.1", True, ["queues are planned ahead, which needs Kubernetes 1.35: the API server is v1.34.1"]),
        ("v1.35.0", True, []),
        (None, True, []),
        ("main", True, []),
    ],
)
def test_an_api_server_has_to_be_as_new_as_what_is_used_of_it(
    version: str | None, steers: bool, what: list[str]
) -> None:
    """Planning ahead counts where an extender says that it does; what is no version says nothing."""
    seen = told(api_server=version, extender="0.2.0", steers=steers)
    assert [each for each, _ in found(seen)] == what


@pytest.mark.parametrize(
    ("policies", "what"),
    [
        (ALL_BOUND, None),
        ((*ALL_BOUND, PolicyInfo(name="gputopo-scheduler-name", actions=("Warn",))), None),
        ((), "there are no admission policies: whoever may patch nodes or pods can forge our records"),
        (ALL_BOUND[1:], "admission policies are missing (agent-own-node)"),
        (
            (PolicyInfo(name=ALL_BOUND[0].name, actions=("Warn",)), *ALL_BOUND[1:]),
            "admission policies have no binding that acts, so they do nothing: gputopo-agent-own-node",
        ),
        (
            (*ALL_BOUND, PolicyInfo(name="gputopo-scheduler-name", actions=())),
            "admission policies have no binding that acts, so they do nothing: gputopo-scheduler-name",
        ),
    ],
)
def test_policies_that_are_missing_or_do_nothing_are_told(policies: tuple[PolicyInfo, ...], what: str | None) -> None:
    """One that guards has to deny; one that helps may warn."""
    seen = found(told(policies=policies))
    assert len(seen) == (what is not None)
    assert all(each.startswith(what or "") for each, _ in seen)


@pytest.mark.parametrize("listed", [None, ALL_BOUND])
def test_what_the_extender_tried_counts_whatever_is_listed(listed: tuple[PolicyInfo, ...] | None) -> None:
    """A policy that is bound may still let everything pass, for example by its selectors."""
    info = ExtenderInfo(version="0.2.0", steers_queues=False, policies_in_force=False)
    state = cluster(node("n1", status=encode_status(NodeGpuStatus(1, agent_version="0.2.0"))))
    (finding,) = status(state, plane=ControlPlane(extender=info, policies=listed)).findings
    assert "can forge our records" in finding.what


def test_the_guards_are_those_that_the_chart_installs() -> None:
    """Under any prefix; of the others it may do without."""
    rendered = re.findall(
        r"kind: ValidatingAdmissionPolicy\nmetadata:\n  name: (\S+)", (FOLDER / "policies.yaml").read_text()
    )
    guards = {name: PolicyInfo(name=name, actions=()).guards for name in rendered}
    assert sorted(guard for guard in guards.values() if guard) == sorted(GUARDS)
    assert [name for name, guard in guards.items() if guard is None] == ["gputopo-scheduled-pods"]


def test_what_is_not_known_is_said_with_how_to_learn_it() -> None:
    """Lines that people read; what is known stands there instead."""
    unasked = list(version_lines(told(policies_unknown="no right to list validatingadmissionpolicies")))
    assert unasked[3:] == [
        "extender: not known; --extender auto asks one",
        "API server: not known",
        "policies: not known (no right to list validatingadmissionpolicies); --extender auto asks an extender",
    ]
    asked = list(version_lines(told(extender="0.2.0", api_server="v1.36.2", policies=ALL_BOUND)))
    assert asked[1] == "agents: 0.2.0 on 1"
    assert asked[3:] == ["extender: 0.2.0", "API server: v1.36.2", "policies: 5 of 5 bound"]


PLANNER = PlannerInfo(namespace="gputopo-system", holder="host:8888", silent_seconds=3.0, lease_seconds=15.0)
GONE = PLANNER.model_copy(update={"silent_seconds": 600.0})
OF_QUEUE = PolicyInfo(name=f"gputopo-{QUEUE_GUARD}", actions=("Deny",))
WITHOUT_POLICY = (
    "the queue is planned without its admission policy (extender-pods): an extender's token can change any pod"
)
IDLE = "admission policies have no binding that acts, so they do nothing: gputopo-extender-pods"


@pytest.mark.parametrize(
    ("planners", "policies", "what"),
    [
        ((), ALL_BOUND, []),
        ((GONE,), ALL_BOUND, []),
        ((PLANNER,), ALL_BOUND, [WITHOUT_POLICY]),
        ((PLANNER,), (*ALL_BOUND, OF_QUEUE), []),
        ((PLANNER,), (*ALL_BOUND, OF_QUEUE.model_copy(update={"actions": ("Audit",)})), [IDLE]),
        ((PLANNER,), (), ["there are no admission policies: whoever may patch nodes or pods can forge our records"]),
        ((PLANNER,), None, []),
        (None, ALL_BOUND, []),
    ],
)
def test_where_a_queue_is_planned_its_policy_has_to_be_in_force(
    planners: tuple[PlannerInfo, ...] | None, policies: tuple[PolicyInfo, ...] | None, what: list[str]
) -> None:
    """The chart installs it with the queue only."""
    assert [each for each, _ in found(told(planners=planners, policies=policies))] == what


def queue_of(pods: int, **plane: object) -> Status:
    """Return the status of a cluster where pods wait in the queue."""
    gate = [{"name": keys.PLAN_GATE}]
    waiting = (pod(f"p{number}") for number in range(pods))
    queued = [replace(waits, spec=replace(waits.spec, scheduling_gates=gate)) for waits in waiting]
    state = cluster(node("n1", status=encode_status(NodeGpuStatus(1, agent_version="0.2.0"))), *queued)
    return status(state, plane=ControlPlane(**plane))


@pytest.mark.parametrize(
    ("planners", "who", "is_found"),
    [
        ((PLANNER,), "planned by gputopo-system/host:8888", False),
        ((GONE,), "nobody plans", True),
        ((), "nobody plans", True),
        (None, "not known who plans (no right to list leases)", False),
    ],
)
def test_pods_that_wait_in_a_queue_that_nobody_plans_are_told(
    planners: tuple[PlannerInfo, ...] | None, who: str, is_found: bool
) -> None:
    """With a few of their names; where nothing waits, nobody has to plan."""
    unknown = "" if planners is not None else "no right to list leases"
    seen = queue_of(5, planners=planners, planners_unknown=unknown)
    assert (seen.queued, list(version_lines(seen))[-1]) == (5, f"queue: 5 waiting; {who}")
    what = "pods wait in the queue and nobody plans: 5 (ml/p0, ml/p1, ml/p2, …)"
    assert [each for each, _ in found(seen)] == [what] * is_found
    assert found(queue_of(0, planners=planners)) == []


def test_nothing_is_said_of_a_queue_that_nobody_uses() -> None:
    """As where it is not enabled."""
    assert not [line for line in version_lines(queue_of(0, planners=())) if line.startswith("queue")]
