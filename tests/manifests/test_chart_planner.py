"""What the chart makes without a kube-scheduler of its own: extenders that plan the queue for the cluster's scheduler."""

import re
from typing import Any

import pytest
import yaml

from tests.manifests.helm import CHART, HelmRefused, configuration, helm, render
from tests.manifests.test_chart import SERVICE, let_in, rights_of_extender

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here")]

ALONE = "scheduler.enabled=false"
PLANNER = (ALONE, "extender.config.queue.enabled=true")


def objects(*settings: str) -> list[dict[str, Any]]:
    """Return what the chart renders."""
    return [item for item in yaml.safe_load_all(render(*settings)) if item]


def installed(*settings: str) -> list[dict[str, Any]]:
    """Return what an installation creates, without hooks."""
    return [item for item in objects(*settings) if "helm.sh/hook" not in item["metadata"].get("annotations", {})]


def test_the_planner_runs_without_a_kube_scheduler() -> None:
    """One Deployment, without Service and certificates; nothing has kube-scheduler's image or account."""
    rendered = installed(*PLANNER)
    [deployment] = (item for item in rendered if item["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert deployment["metadata"]["name"] == "gputopo-extender" and deployment["spec"]["replicas"] == 2
    assert [container["name"] for container in spec["containers"]] == ["extender"]
    assert [volume["name"] for volume in spec["volumes"]] == ["config"]
    assert not [item for item in rendered if item["kind"] == "Service"]
    accounts = {item["metadata"]["name"] for item in rendered if item["kind"] == "ServiceAccount"}
    assert accounts == {"gputopo-agent", "gputopo-extender"}
    assert not re.search(r"image: \S+kube-scheduler", render(*PLANNER))


def test_the_planner_has_the_queues_rights_and_binds_no_pods() -> None:
    """Neither kube-scheduler's rights nor the extender's right to bind; the policies know its account."""
    rights = rights_of_extender(render(*PLANNER))
    beside = rights_of_extender(render("extender.config.queue.enabled=true"))
    assert rights == {right: verbs for right, verbs in beside.items() if right != ("", "pods/binding")}
    bindings = [item for item in installed(*PLANNER) if item["kind"] == "ClusterRoleBinding"]
    assert {item["roleRef"]["name"] for item in bindings} == {"gputopo-agent", "gputopo-extender"}


def test_the_planner_counts_the_pods_of_the_clusters_scheduler_as_its_own() -> None:
    """Other names of schedulers may be set; the notes and `helm test` name the same one."""
    assert configuration(render(*PLANNER), "extender.yaml")["scheduling"]["schedulerNames"] == ["default-scheduler"]
    mine = render(*PLANNER, "extender.config.scheduling.schedulerNames={mine}")
    assert configuration(mine, "extender.yaml")["scheduling"]["schedulerNames"] == ["mine"]
    sets = [word for setting in ("image.repository=gputopo", *PLANNER) for word in ("--set", setting)]
    said = helm("install", "gputopo", CHART, "-n", "x", "--dry-run=client", *sets)
    assert "kubectl gputopo status --scheduler-name default-scheduler\n" in said
    assert "- --scheduler-name=default-scheduler\n" in said
    assert "schedulingGates: [{name: gputopo.dev/plan}]" in said and "KubeSchedulerConfiguration" not in said


def test_only_scrapers_reach_the_planner() -> None:
    """It serves filter and bind on loopback only."""
    assert let_in(*PLANNER) == {"agent": {("health", "monitoring")}, "extender": {("extender-health", "monitoring")}}


def test_a_kube_scheduler_of_ones_own_can_ask_extenders_of_a_service() -> None:
    """They bind its pods. Its certificate is in no secret of the chart, and the user's NetworkPolicy admits it."""
    service = (ALONE, *SERVICE[:2])
    assert ("", "pods/binding") in rights_of_extender(render(*service))
    assert let_in(*service)["extender"] == {("extender-health", "monitoring")}
    assert not re.search(r"image: \S+kube-scheduler", render(*service))


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ((ALONE,), "set extender.config.queue.enabled=true"),
        ((*PLANNER, "extender.steerQueues=true"), "extender.steerQueues needs a kube-scheduler"),
        ((*PLANNER, "policies.schedulerName.mode=set"), "policies.schedulerName.mode needs scheduler.enabled"),
    ],
)
def test_what_needs_a_scheduler_of_ours_is_refused_without_it(settings: tuple[str, ...], advice: str) -> None:
    """With advice."""
    with pytest.raises(HelmRefused, match=re.escape(advice)):
        render(*settings)


def test_clusters_newer_than_the_tested_kube_scheduler_can_have_the_planner() -> None:
    """There is no image whose version has to match."""
    assert "gputopo-extender" in render(*PLANNER, cluster="v1.40.0")


GATE = ("policies.planGate.enabled=true", "extender.config.queue.enabled=true")


def test_nobody_gets_the_gate_unless_it_is_switched_on() -> None:
    """Where the API server can add it; `tests/cluster/test_plan_gate.py` shows to which pods. It fails open."""
    assert not [item for item in objects(GATE[1]) if item["metadata"]["name"] == "gputopo-plan-gate"]
    policy, binding = (item for item in objects(*GATE) if item["metadata"]["name"] == "gputopo-plan-gate")
    assert (policy["kind"], binding["spec"]) == ("MutatingAdmissionPolicy", {"policyName": "gputopo-plan-gate"})
    assert policy["spec"]["failurePolicy"] == "Ignore"
    with pytest.raises(HelmRefused, match=r"planGate needs an API server with MutatingAdmissionPolicy"):
        render(*GATE, cluster="v1.35.0")
    with pytest.raises(HelmRefused, match=r"planGate needs extender\.config\.queue\.enabled"):
        render(GATE[0])


def test_only_an_uninstallation_of_a_queue_opens_gates() -> None:
    """By hooks, after the deletion. The Job has our image, and its account no other right than to list and patch pods."""
    queue = "extender.config.queue.enabled=true"
    assert "open-gates" not in render()
    assert "open-gates" not in render(queue, "extender.openGatesOnUninstall=false")
    hooks = [item for item in objects(queue) if item["metadata"]["name"] == "gputopo-open-gates"]
    assert {item["metadata"]["annotations"]["helm.sh/hook"] for item in hooks} == {"post-delete"}
    kinds = {item["kind"]: item for item in hooks}
    assert kinds.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert kinds["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]}]
    spec = kinds["Job"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "gputopo-open-gates"
    assert [container["command"] for container in spec["containers"]] == [["kubectl-gputopo", "queue", "open", "--all"]]
    assert all(image.startswith("gputopo:") for image in (container["image"] for container in spec["containers"]))
