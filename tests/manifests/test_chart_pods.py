"""What the chart makes of the values that clusters require of every chart: labels, accounts, environments, volumes, budgets."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import MODULE, kubernetes_version
from tests.manifests.helm import CHART, HelmRefused, helm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here")]

SERVICE = {"enabled": True, "serverSecret": "server", "clientSecret": "client"}
ALL = {
    "image": {"repository": "gputopo"},
    "commonLabels": {"team": "ml"},
    "imagePullSecrets": [{"name": "registry"}],
    "criticalPods": 5,
    "openshift": {"enabled": True},
    "monitoring": {
        "enabled": True,
        "dcgmNames": True,
        "dashboards": {"labels": {"dashboards": "yes"}, "annotations": {"grafana_folder": "GPUs"}},
    },
    "extender": {
        "service": SERVICE,
        "autoscaling": {"enabled": True},
        "serviceAccount": {"name": "extends", "annotations": {"by": "us"}},
        "containerSecurityContext": {"seLinuxOptions": {"type": "extender_t"}},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
    },
    "scheduler": {
        "podAnnotations": {"audit": "yes"},
        "podLabels": {"mesh": "no"},
        "serviceAccount": {"name": "schedules", "annotations": {"by": "us"}},
        "securityContext": {"fsGroup": 7, "runAsUser": 1000},
        "containerSecurityContext": {"runAsGroup": 8},
        "extraEnv": [{"name": "GODEBUG", "value": "x=1"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/certs"}],
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}},
        ],
        "updateStrategy": {"type": "Recreate"},
        "revisionHistoryLimit": 0,
        "podDisruptionBudget": {"minAvailable": "50%"},
    },
    "agent": {
        "podAnnotations": {"audit": "yes"},
        "podLabels": {"mesh": "no"},
        "serviceAccount": {"name": "watches", "annotations": {"by": "us"}},
        "securityContext": {"fsGroupChangePolicy": "OnRootMismatch"},
        "containerSecurityContext": {"appArmorProfile": {"type": "Unconfined"}},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 3,
        "mode": "enforce",
        "sharing": {"mps": {"enabled": True, "daemon": True}},
    },
}
"""Something for each of the values, in the form that has most objects."""


def sets(values: dict[str, Any]) -> list[str]:
    """Return values as options of Helm."""
    return [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]


@cache
def rendered(values: str, cluster: str) -> str:
    """Return what Helm gives for values as JSON."""
    options = ("-n", "gputopo-system", "--kube-version", cluster, "--skip-tests")
    return helm("template", "gputopo", CHART, *options, *sets(json.loads(values)))


def render(values: dict[str, Any], cluster: str = kubernetes_version()) -> list[dict[str, Any]]:
    """Return the objects."""
    return [item for item in yaml.safe_load_all(rendered(json.dumps(values), cluster)) if item]


def with_own(**values: Any) -> dict[str, Any]:
    """Return values that are enough to render, and these."""
    return {"image": {"repository": "gputopo"}, **values}


def workload(objects: list[dict[str, Any]], name: str) -> Any:
    """Return the Deployment or DaemonSet of a component."""
    kinds = ("Deployment", "DaemonSet")
    [item] = (item for item in objects if item["kind"] in kinds and item["metadata"]["name"] == f"gputopo-{name}")
    return item["spec"]


def pod(objects: list[dict[str, Any]], name: str) -> Any:
    """Return the pod spec of a component."""
    return workload(objects, name)["template"]["spec"]


def selectors(value: Any) -> Iterator[dict[str, str]]:
    """Yield every set of labels by which something is selected."""
    if isinstance(value, dict):
        for name, below in value.items():
            if name in ("matchLabels", "selector"):
                yield below
            yield from selectors(below)
    elif isinstance(value, list):
        for below in value:
            yield from selectors(below)


def test_common_labels_are_on_all_objects_and_pods_and_in_no_selector() -> None:
    """A selector of a Deployment cannot change, so an upgrade with another label would fail."""
    objects = render(ALL)
    assert [item["metadata"]["name"] for item in objects if item["metadata"]["labels"].get("team") != "ml"] == []
    workloads = [item["spec"] for item in objects if item["kind"] in ("Deployment", "DaemonSet")]
    assert len(workloads) == 4
    assert all(spec["template"]["metadata"]["labels"]["team"] == "ml" for spec in workloads)
    assert not any({"team", "mesh"} & labels.keys() for labels in selectors(objects))


@pytest.mark.parametrize("component", ["scheduler", "extender", "agent"])
def test_pods_have_the_labels_and_annotations_of_the_user(component: str) -> None:
    """Beside those of the chart."""
    template = workload(render(ALL), component)["template"]["metadata"]
    assert template["labels"]["mesh"] == "no"
    assert template["labels"]["app.kubernetes.io/component"] == component
    assert template["annotations"]["audit"] == "yes"
    assert "checksum/config" in template["annotations"]


def test_labels_by_which_pods_are_known_cannot_be_replaced() -> None:
    """The extender and `kubectl gputopo` find pods by them."""
    for values in ({"commonLabels": {"app.kubernetes.io/name": "x"}}, {"agent": {"podLabels": {"helm.sh/chart": "x"}}}):
        with pytest.raises(HelmRefused, match="invalid propertyName"):
            render(with_own(**values))


def test_labels_of_single_objects_win_over_the_common_ones() -> None:
    """An object with a label twice would not be valid."""
    labels = {"team": "dashboards", "release": "prometheus"}
    monitoring = {"enabled": True, "dcgmNames": True, "labels": labels, "dashboards": {"labels": labels}}
    agent = {"podLabels": labels}
    text = rendered(json.dumps(with_own(commonLabels={"team": "ml"}, monitoring=monitoring, agent=agent)), "v1.36.2")
    objects = [item["metadata"] for item in yaml.safe_load_all(text) if item]
    theirs = [item["name"] for item in objects if item["labels"]["team"] == "dashboards"]
    assert sorted(theirs) == ["gputopo", "gputopo", "gputopo-dashboards", "gputopo-dcgm-names"]
    assert not re.search(r"^( +team: ).*\n\1", text, re.MULTILINE)
    assert re.search(r"^ {8}team: dashboards$", text, re.MULTILINE)


def test_annotations_by_which_pods_are_restarted_cannot_be_replaced() -> None:
    """A pod would keep its configuration."""
    with pytest.raises(HelmRefused, match="invalid propertyName"):
        render(with_own(agent={"podAnnotations": {"checksum/config": "x"}}))


def test_accounts_have_the_names_and_annotations_of_the_user_wherever_they_are_named() -> None:
    """Workloads, bindings, policies and constraints speak of the same accounts."""
    objects = render(ALL)
    accounts = {item["metadata"]["name"]: item["metadata"] for item in objects if item["kind"] == "ServiceAccount"}
    assert accounts.keys() == {"schedules", "extends", "watches"}
    assert all(account["annotations"] == {"by": "us"} for account in accounts.values())
    names = [pod(objects, component)["serviceAccountName"] for component in ("scheduler", "extender", "agent")]
    assert names == ["schedules", "extends", "watches"]
    subjects = {subject["name"] for item in objects for subject in item.get("subjects", ())}
    assert subjects == accounts.keys()
    assert set(re.findall(r"system:serviceaccount:gputopo-system:([\w-]+)", str(objects))) == {"extends", "watches"}


def test_accounts_that_exist_are_not_created() -> None:
    """Their rights are given all the same."""
    existing = {"serviceAccount": {"create": False, "name": "mine"}}
    objects = render(with_own(scheduler=existing))
    assert [item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"] == ["gputopo-agent"]
    assert pod(objects, "scheduler")["serviceAccountName"] == "mine"
    with pytest.raises(HelmRefused, match="must not have the same account"):
        render(with_own(scheduler=existing, agent=existing))


def test_containers_have_the_variables_and_mounts_of_the_user() -> None:
    """Of volumes of their pods, also in the sidecar."""
    beside = {**ALL, "extender": {**ALL["extender"], "service": {"enabled": False}}}  # type: ignore[dict-item]
    for values, components in ((ALL, ("scheduler", "extender", "agent")), (beside, ("scheduler", "agent"))):
        for component in components:
            spec = pod(render(values), component)
            volumes = [volume["name"] for volume in spec["volumes"]]
            assert "ca" in volumes and len(volumes) == len({*volumes})
            for container in [*spec.get("initContainers", ()), *spec["containers"]]:
                assert {env["name"] for env in container["env"]} & {"HTTPS_PROXY", "GODEBUG", "TZ"}
                assert {mount["name"] for mount in container["volumeMounts"]} <= {*volumes}
                assert "ca" in {mount["name"] for mount in container["volumeMounts"]}


def test_security_contexts_join_those_of_the_chart() -> None:
    """A setting of the user replaces the chart's, and the others stay."""
    objects = render(ALL)
    scheduler, extender, agent = (pod(objects, component) for component in ("scheduler", "extender", "agent"))
    for spec in (scheduler, extender):
        context = spec["securityContext"]
        assert (context["fsGroup"], context["runAsUser"], context["runAsNonRoot"]) == (7, 1000, True)
    assert agent["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    contexts = [spec["containers"][0]["securityContext"] for spec in (scheduler, extender, agent)]
    assert all(context["readOnlyRootFilesystem"] for context in contexts)
    assert contexts[0]["runAsGroup"] == 8
    assert contexts[1]["seLinuxOptions"] == {"type": "extender_t"}
    assert contexts[2]["appArmorProfile"] == {"type": "Unconfined"}
    assert contexts[2]["seLinuxOptions"] == {"type": "spc_t"}


def test_openshift_admits_the_volumes_that_the_user_adds() -> None:
    """Its constraints list the kinds of volumes."""
    [constraints] = (item for item in render(ALL) if item["kind"] == "SecurityContextConstraints")
    assert constraints["volumes"] == ["configMap", "hostPath", "projected", "secret"]


def test_constraints_of_spread_are_about_the_pods_unless_they_say_otherwise() -> None:
    """A constraint without a selector counts no pods."""
    for component in ("scheduler", "extender"):
        [own, given] = pod(render(ALL), component)["topologySpreadConstraints"]
        assert own["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
        assert own["topologyKey"] == "zone"
        assert given["labelSelector"] == {}


def test_updates_go_on_as_the_user_says() -> None:
    """And nothing is said where the user says nothing."""
    objects = render(ALL)
    for component in ("scheduler", "extender"):
        spec = workload(objects, component)
        assert (spec["strategy"], spec["revisionHistoryLimit"]) == ({"type": "Recreate"}, 0)
    agent = workload(objects, "agent")
    assert (agent["updateStrategy"], agent["revisionHistoryLimit"]) == ({"type": "OnDelete"}, 3)
    plain = render(with_own())
    assert "strategy" not in workload(plain, "scheduler") and "revisionHistoryLimit" not in workload(plain, "scheduler")
    assert workload(plain, "agent")["updateStrategy"] == {"rollingUpdate": {"maxUnavailable": "10%"}}


def test_budgets_say_how_many_pods_stay_or_may_be_away() -> None:
    """Or do not exist."""
    budgets = [item["spec"] for item in render(ALL) if item["kind"] == "PodDisruptionBudget"]
    assert [(budget["minAvailable"], "maxUnavailable" in budget) for budget in budgets] == [("50%", False)] * 2
    [plain] = (item["spec"] for item in render(with_own()) if item["kind"] == "PodDisruptionBudget")
    assert plain["maxUnavailable"] == 1 and "minAvailable" not in plain
    none = with_own(scheduler={"podDisruptionBudget": {"enabled": False}})
    assert not [item for item in render(none) if item["kind"] == "PodDisruptionBudget"]


def test_dashboards_have_the_labels_and_annotations_of_the_user() -> None:
    """Grafana's sidecar looks for a label, and puts them into the folder that an annotation names."""
    [dashboards] = (item["metadata"] for item in render(ALL) if item["metadata"]["name"] == "gputopo-dashboards")
    assert dashboards["labels"]["dashboards"] == "yes"
    assert dashboards["annotations"] == {"grafana_folder": "GPUs"}


def test_rendering_twice_is_identical() -> None:
    """Otherwise Argo CD would show a difference after each sync."""
    first, second = (helm("template", "gputopo", CHART, "-n", "x", *sets(ALL)) for _ in "12")
    assert first == second


def newest_pinned() -> str:
    """Return the newest Kubernetes that the tests' control plane can be."""
    pinned = [kubernetes_version(file.stem) for file in MODULE.glob("*.mod")]
    return max(pinned, key=lambda version: [int(part) for part in version.removeprefix("v").split(".")])


def test_the_newest_scheduler_of_the_chart_is_the_newest_of_the_tests() -> None:
    """The pins of the tests' control plane say which that is."""
    [newest] = re.findall(r'"gputopo\.newestTested" -}}(\S+?){{', (CHART / "templates/_helpers.tpl").read_text())
    assert newest == newest_pinned()


@pytest.mark.parametrize(
    ("cluster", "tag"),
    [
        ("v1.30.4", "v1.30.4"),
        ("v1.36.1-gke.7", "v1.36.1"),
        ("v1.37.0", "v1.37.2"),  # what Helm says without a cluster
        ("v1.37.3", "v1.37.3"),
        ("v1.38.1", "v1.37.2"),  # kube-scheduler may be one minor version older
    ],
)
def test_a_minor_version_newer_than_the_tested_ones_is_never_rendered(cluster: str, tag: str) -> None:
    """A cluster that is newer than the newest tested version gets that one."""
    image = pod(render(with_own(), cluster), "scheduler")["containers"][0]["image"]
    assert image == f"registry.k8s.io/kube-scheduler:{tag}"


def test_without_a_cluster_the_newest_tested_scheduler_is_rendered() -> None:
    """Helm then says a version of its own."""
    text = helm("template", "gputopo", CHART, "-n", "x", "--set", "image.repository=gputopo")
    assert f"registry.k8s.io/kube-scheduler:{newest_pinned()}\n" in text


@pytest.mark.parametrize(("cluster", "tag"), [("v1.39.0", ""), ("v1.38.0", "v1.38.0")])
def test_an_untested_version_has_to_be_allowed(cluster: str, tag: str) -> None:
    """By a value, which the refusal names."""
    scheduler = {"image": {"tag": tag}}
    with pytest.raises(HelmRefused, match=r"scheduler\.allowUntestedVersion=true"):
        render(with_own(scheduler=scheduler), cluster)
    objects = render(with_own(scheduler={**scheduler, "allowUntestedVersion": True}), cluster)
    assert pod(objects, "scheduler")["containers"][0]["image"].endswith(cluster)
