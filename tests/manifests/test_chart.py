"""What the chart makes of values: it renders what was asked for, or refuses with advice."""

import re
from importlib.metadata import version
from typing import Any

import pytest
import yaml

from extender.cluster.objects.group_sizes import ROWS
from extender.config.defaults import QUEUE_LEASE
from tests.manifests.helm import CHART, HelmRefused, configuration, helm, render
from tests.manifests.rendered import outdated

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here")]


def images(rendered: str) -> set[str]:
    return set(re.findall(r"image: (\S+)", rendered))


def test_rendered_copy_is_what_the_chart_gives() -> None:
    """`make manifests` would change nothing."""
    assert outdated() == []


def test_chart_passes_helms_own_checks() -> None:
    """No error and no warning."""
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "-n", "x", "--set", "image.repository=gputopo")


def test_scheduler_has_the_version_of_the_cluster() -> None:
    """What a provider appends to the version is no part of the image's tag."""
    rendered = render(cluster="v1.30.4-eks-a737599")
    assert images(rendered) == {f"gputopo:{version('gputopo')}", "registry.k8s.io/kube-scheduler:v1.30.4"}


def test_digest_wins_over_tag() -> None:
    """A digest is exact, so the tag beside it says nothing more."""
    digest = f"sha256:{'0' * 64}"
    assert f"gputopo@{digest}" in images(render(f"image.digest={digest}", "image.tag=v9"))


def test_other_names_leave_the_label_by_which_our_pods_are_known() -> None:
    """The extender finds agents by it, and `kubectl gputopo` policies and pods that still write."""
    for rendered in (render(), render("nameOverride=wires", "fullnameOverride=wires", "monitoring.enabled=true")):
        assert set(re.findall(r"app\.kubernetes\.io/name: (\S+)", rendered)) == {"gputopo"}


def test_variables_of_the_user_reach_the_extender() -> None:
    """As text, whatever they look like."""
    rendered = render(
        "extender.env.OTEL_EXPORTER_OTLP_ENDPOINT=http://otel:4318", "extender.env.OTEL_TRACES_SAMPLER_ARG=0.1"
    )
    assert '- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://otel:4318"}' in rendered
    assert '- {name: OTEL_TRACES_SAMPLER_ARG, value: "0.1"}' in rendered


def test_settings_of_the_user_join_those_of_the_chart() -> None:
    """`extender.config` adds to the configuration that the chart writes."""
    assert re.search(
        r"scheduling:\n +bindDeadline: 3s\n +candidates: 4\n", render("extender.config.scheduling.candidates=4")
    )


@pytest.mark.parametrize("form", ["extender.service.enabled=false", "extender.service.enabled=true"])
def test_only_who_is_told_to_evict_may(form: str) -> None:
    """Off by default; switched on, the extender has the right and the setting, in both forms, and nobody else has either."""
    secrets = ("extender.service.serverSecret=s", "extender.service.clientSecret=c")
    assert "pods/eviction" not in render(form, *secrets)
    assert "evict: true" not in render(form, *secrets)
    rendered = render(form, *secrets, "extender.evictFromSickGpus=true")
    objects = [found for found in yaml.safe_load_all(rendered) if found]
    [role] = [found for found in objects if "pods/eviction" in str(found.get("rules"))]
    assert role["metadata"]["name"] == "gputopo-extender"
    assert {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]} in role["rules"]
    assert re.search(r"sickGpus:\n +evict: true\n", rendered)


def test_only_who_is_told_to_steer_queues_does() -> None:
    """Off by default; switched on, it takes no further right: `pods/status` is patched anyway, for fences."""
    without, rendered = render(), render("extender.steerQueues=true", "extender.config.steering.queue=50")
    assert "steering" not in without
    assert re.search(r"steering:\n +enabled: true\n +queue: 50\n", rendered)
    rules = [each["rules"] for each in yaml.safe_load_all(rendered) if each and "rules" in each]
    assert rules == [each["rules"] for each in yaml.safe_load_all(without) if each and "rules" in each]


def test_only_an_extender_with_a_queue_may_patch_pods() -> None:
    """Off by default; a gate is no part of the status, which it patches anyway."""
    right = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
    of_roles = [
        [rule for found in yaml.safe_load_all(rendered) if found for rule in found.get("rules") or ()]
        for rendered in (render(), render("extender.config.queue.enabled=true"))
    ]
    assert [rules.count(right) for rules in of_roles] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "rights"),
    [
        (["extender.config.queue.enabled=true"], 1),
        (["extender.config.queue.enabled=true", "extender.config.queue.evict=false"], 0),
        (["extender.config.queue.evict=true"], 0),
        (["extender.config.queue.enabled=true", "extender.evictFromSickGpus=true"], 1),
    ],
    ids=["queue", "queue-that-evicts-nobody", "no-queue", "both"],
)
def test_an_extender_with_a_queue_may_evict_unless_that_is_switched_off(settings: list[str], rights: int) -> None:
    """It ends half gangs."""
    right = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    objects = [found for found in yaml.safe_load_all(render(*settings)) if found]
    assert [rule for found in objects for rule in found.get("rules") or ()].count(right) == rights


def test_an_extender_that_moves_pods_may_evict_them_watch_budgets_and_read_jobs() -> None:
    """It needs the queue, for whose pods the others move."""
    queue = ("extender.config.queue.enabled=true", "extender.config.queue.evict=false")
    rights = [
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]},
    ]
    counts = []
    for settings in (queue, (*queue, "extender.config.moves.enabled=true")):
        objects = [found for found in yaml.safe_load_all(render(*settings)) if found]
        rules = [rule for found in objects for rule in found.get("rules") or ()]
        counts.append([rules.count(right) for right in rights])
    assert counts == [[0, 0, 0], [1, 1, 1]]
    with pytest.raises(HelmRefused, match=r"moves.enabled needs extender.config.queue.enabled"):
        render("extender.config.moves.enabled=true")


def test_an_extender_that_preempts_for_claims_may_evict_pods_and_watch_budgets() -> None:
    """By default where it allocates claims at all."""
    queue = ("extender.config.queue.enabled=true", "extender.config.queue.evict=false")
    dra = (*queue, "extender.config.dra.enabled=true")
    rights = [
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]},
    ]
    for settings, expected in ((dra, [1, 1]), ((*dra, "extender.config.dra.preemption=false"), [0, 0])):
        objects = [item for item in yaml.safe_load_all(render(*settings)) if item]
        rules = [rule for item in objects for rule in item.get("rules") or ()]
        assert [rules.count(right) for right in rights] == expected


def test_only_an_extender_with_a_queue_may_hold_its_lease() -> None:
    """In the namespace that its configuration names, and no other Lease than the one that its code holds."""
    rendered = render("extender.config.queue.enabled=true", namespace="elsewhere")
    objects = {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(rendered) if found}
    role = objects["Role", "gputopo-extender-queue"]
    assert role["metadata"]["namespace"] == "elsewhere"
    [_, held] = role["rules"]
    assert (held["resourceNames"], held["verbs"]) == ([QUEUE_LEASE], ["get", "patch"])
    assert re.search(r"agents:\n +namespace: elsewhere\n", rendered)
    assert "gputopo-extender-queue" not in render()


def test_only_the_queue_has_the_policy_on_what_an_extender_writes_on_pods() -> None:
    """Where policies are installed; `tests/cluster/test_queue_policy.py` shows what it refuses."""
    queue, policy = "extender.config.queue.enabled=true", "name: gputopo-extender-pods"
    rendered = (render(), render(queue, "policies.enabled=false"), render(queue))
    assert [text.count(policy) for text in rendered] == [0, 0, 2]


def test_the_extender_has_a_right_to_read_budgets_where_it_cannot_have_kube_schedulers() -> None:
    """Beside kube-scheduler it has its account, and that right with it."""
    secrets = ("extender.service.serverSecret=s", "extender.service.clientSecret=c")
    right = {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]}
    for form, has_it in (("extender.service.enabled=false", False), ("extender.service.enabled=true", True)):
        roles = [each for each in yaml.safe_load_all(render(form, *secrets)) if each and each["kind"] == "ClusterRole"]
        [role] = [each for each in roles if each["metadata"]["name"] == "gputopo-extender"]
        assert (right in role["rules"]) is has_it


def test_only_who_is_told_to_read_claims_may() -> None:
    """Off by default: beside kube-scheduler its role has the right already. Nothing is ever written to them."""
    assert "resourceclaims" not in render()
    objects = [found for found in yaml.safe_load_all(render("extender.readResourceClaims=true")) if found]
    [role] = [found for found in objects if "resourceclaims" in str(found.get("rules"))]
    assert role["metadata"]["name"] == "gputopo-extender"
    added = [rule for rule in role["rules"] if rule["apiGroups"] == ["resource.k8s.io"]]
    assert [(rule["resources"], rule["verbs"]) for rule in added] == [
        (["resourceclaims", "resourceslices"], ["list", "watch"]),
        (["deviceclasses"], ["list"]),
    ]


def test_only_who_is_told_to_read_sizes_may() -> None:
    """Off by default; switched on, the extender has the setting, and may list and watch the kinds that it reads."""
    assert "jobsets" not in render()
    rendered = render("extender.config.groups.readSizes=true")
    assert configuration(rendered, "extender.yaml")["groups"] == {"readSizes": True}
    before, after = rights_of_extender(render()), rights_of_extender(rendered)
    read = {tuple(path.split("/")[2::2]) for row in ROWS for path in row.paths}
    added = {kind: verbs for kind, verbs in after.items() if kind not in before}
    assert added == {kind: ["list", "watch"] for kind in read}


def rights_of_extender(rendered: str) -> dict[tuple[str, ...], list[str]]:
    """Return group and resource → verbs."""
    objects = [found for found in yaml.safe_load_all(rendered) if found and found["kind"] == "ClusterRole"]
    [role] = [found for found in objects if found["metadata"]["name"] == "gputopo-extender"]
    return {
        (group, resource): rule["verbs"]
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_an_agent_may_write_its_nodes_status_only_if_it_is_to() -> None:
    """Off by default; switched on, it has the right and the setting, and it can only be switched on under the policies."""
    assert "nodes/status" not in str(role_of_agent(render()))
    assert configuration(render(), "agent.yaml")["publish"] == {"condition": False}
    rendered = render("agent.nodeCondition=true")
    assert {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]} in role_of_agent(rendered)["rules"]
    assert configuration(rendered, "agent.yaml")["publish"] == {"condition": True}
    with pytest.raises(HelmRefused, match=r"agent\.nodeCondition needs policies\.enabled"):
        render("agent.nodeCondition=true", "policies.enabled=false")


def role_of_agent(rendered: str) -> Any:
    """Return the ClusterRole of the agent."""
    objects = [found for found in yaml.safe_load_all(rendered) if found and found["kind"] == "ClusterRole"]
    [role] = [found for found in objects if found["metadata"]["name"] == "gputopo-agent"]
    return role


@pytest.mark.parametrize("form", ["extender.service.enabled=false", "extender.service.enabled=true"])
def test_measured_bandwidths_come_by_a_mount_and_take_no_right(form: str) -> None:
    """Off by default; switched on, the extender alone sees the ConfigMap, which may be missing, and no rule names ConfigMaps."""
    secrets = ("extender.service.serverSecret=s", "extender.service.clientSecret=c")
    assert "measured" not in render(form, *secrets)
    rendered = render(form, *secrets, "extender.measuredConfigMap=gpu-bandwidth")
    objects = [found for found in yaml.safe_load_all(rendered) if found]
    mounted = {
        container["name"]: mount
        for found in objects
        if found["kind"] == "Deployment"
        for container in [
            *found["spec"]["template"]["spec"].get("initContainers", ()),
            *found["spec"]["template"]["spec"]["containers"],
        ]
        for mount in container["volumeMounts"]
        if mount["name"] == "measured"
    }
    assert mounted == {"extender": {"name": "measured", "mountPath": "/etc/gputopo-measured", "readOnly": True}}
    volumes = [
        volume
        for found in objects
        if found["kind"] == "Deployment"
        for volume in found["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "measured"
    ]
    assert volumes == [{"name": "measured", "configMap": {"name": "gpu-bandwidth", "optional": True}}]
    assert re.search(r"measured:\n +file: /etc/gputopo-measured/measured.json\n", rendered)
    assert not [found for found in objects if "configmaps" in str(found.get("rules"))]


def test_gpus_can_be_asked_for_by_mounts() -> None:
    """For toolkits that ignore the variable in unprivileged pods."""
    rendered = render("agent.deviceListStrategy=volume-mounts")
    assert "mountPath: /var/run/nvidia-container-devices/all" in rendered
    assert "value: all" not in rendered


@pytest.mark.parametrize("shared", [True, False])
def test_agent_sees_the_nodes_processes_only_if_told_to(shared: bool) -> None:
    """Root among them could end any of them that is root's."""
    rendered = render(f"agent.hostPID={str(shared).lower()}")
    (agent,) = (found for found in yaml.safe_load_all(rendered) if found["kind"] == "DaemonSet")
    assert agent["spec"]["template"]["spec"].get("hostPID", False) is shared


@pytest.mark.parametrize("file", ["", "/etc/kubernetes/kubelet.json"])
def test_agent_has_the_kubelets_configuration_only_where_it_is_named(file: str) -> None:
    """A file that is not there would keep the agent from starting."""
    rendered = render(f"agent.kubeletConfig={file}")
    (agent,) = (found for found in yaml.safe_load_all(rendered) if found["kind"] == "DaemonSet")
    spec = agent["spec"]["template"]["spec"]
    named = {"name": "kubelet-config", "hostPath": {"path": file, "type": "File"}}
    mounted = {"name": "kubelet-config", "mountPath": "/var/lib/kubelet/config.yaml", "readOnly": True}
    assert (named in spec["volumes"]) is bool(file)
    assert (mounted in spec["containers"][0]["volumeMounts"]) is bool(file)


def test_enforcing_agent_has_the_folders_that_a_device_plugin_needs() -> None:
    """The kubelet's, the runtime's and one of its own; only sockets and journal are written."""
    rendered = render("agent.mode=enforce", "agent.kubeletDir=/var/lib/k0s/kubelet", "gpuResource=example.com/gpu")
    (agent,) = (found for found in yaml.safe_load_all(rendered) if found["kind"] == "DaemonSet")
    spec = agent["spec"]["template"]["spec"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] in paths}
    assert {mounts[name]["mountPath"]: path for name, path in paths.items()} == {
        "/var/lib/kubelet/pod-resources": "/var/lib/k0s/kubelet/pod-resources",
        "/var/lib/kubelet/device-plugins": "/var/lib/kubelet/device-plugins",  # a constant of the kubelet
        "/var/run/cdi": "/var/run/cdi",
        "/host/dev": "/dev",
        "/var/lib/gputopo": "/var/lib/gputopo",
    }
    assert {name for name, mount in mounts.items() if not mount.get("readOnly")} == {"device-plugins", "state"}
    settings = {"mode": "enforce", "resource": "example.com/gpu", "enforce": {"devFolder": "/host/dev"}}
    assert configuration(rendered, "agent.yaml").items() >= settings.items()


def test_monitoring_is_off_by_default_and_selected_by_the_labels_of_the_user() -> None:
    """Its kinds of objects are not in every cluster, and Prometheus takes those only that it selects."""
    assert "monitoring.coreos.com" not in render()
    objects = yaml.safe_load_all(render("monitoring.enabled=true", "monitoring.labels.release=prometheus"))
    labelled = [found["kind"] for found in objects if found["metadata"]["labels"].get("release") == "prometheus"]
    assert sorted(labelled) == ["PodMonitor", "PrometheusRule"]


def test_dcgm_exporters_names_are_installed_where_they_are_asked_for() -> None:
    """They would be other people's series in a cluster that has DCGM exporter and these agents, too."""
    assert "DCGM_FI_DEV_GPU_UTIL" not in render("monitoring.enabled=true")
    asked = ("monitoring.dcgmNames=true", "monitoring.labels.release=prometheus")
    assert "DCGM_FI_DEV_GPU_UTIL" not in render(*asked)
    objects = yaml.safe_load_all(render("monitoring.enabled=true", *asked))
    (rules,) = (found for found in objects if found["metadata"]["name"] == "gputopo-dcgm-names")
    assert rules["spec"] == yaml.safe_load((CHART / "files/dcgm_names.yaml").read_text())
    assert rules["metadata"]["labels"]["release"] == "prometheus"


def test_the_agent_is_told_what_to_tell_and_where_dcgm_exporter_would_answer() -> None:
    """By values of the chart, beside further settings; at the node's own address."""
    rendered = render("agent.metrics.gpus=always", "agent.metrics.holders=true", "agent.config.metrics.interval=30s")
    assert configuration(rendered, "agent.yaml")["metrics"] == {"gpus": "always", "holders": True, "interval": "30s"}
    (agent,) = (found for found in yaml.safe_load_all(rendered) if found["kind"] == "DaemonSet")
    environment = {each["name"]: each for each in agent["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment["GPUTOPO_METRICS_DCGM_HOST"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}


def test_a_holders_namespace_and_pod_stay_its_own_when_they_are_scraped() -> None:
    """Prometheus would put the agent's in their place; and series of a node have its name."""
    objects = yaml.safe_load_all(render("monitoring.enabled=true"))
    (monitor,) = (found for found in objects if found["kind"] == "PodMonitor")
    (agents,) = (each for each in monitor["spec"]["podMetricsEndpoints"] if each["port"] == "health")
    assert agents["honorLabels"] is True
    assert [each["targetLabel"] for each in agents["relabelings"]] == ["node"]


def test_single_replica_needs_no_disruption_budget() -> None:
    """A budget for one pod would block every drain, or mean nothing."""
    assert "PodDisruptionBudget" in render()
    assert "PodDisruptionBudget" not in render("scheduler.replicas=1")


SERVICE = (
    "extender.service.enabled=true",
    "extender.service.serverSecret=server",
    "extender.service.clientSecret=client",
)


def test_service_form_speaks_nothing_but_mutual_tls() -> None:
    """kube-scheduler verifies a CA and shows a certificate, the extender asks for one, and nobody is called in the plain."""
    rendered = render(*SERVICE)
    (extender,) = configuration(rendered, "scheduler.yaml")["extenders"]
    assert extender["urlPrefix"] == "https://gputopo-extender.gputopo-system.svc:8888/v1/extender"
    assert extender["enableHTTPS"] and extender["tlsConfig"]["insecure"] is False
    assert all(extender["tlsConfig"][file] for file in ("caFile", "certFile", "keyFile"))
    assert configuration(rendered, "extender.yaml")["tls"].keys() == {"certFile", "keyFile", "clientCaFile"}
    assert "http://" not in rendered


def test_service_form_gives_the_extender_an_account_of_its_own() -> None:
    """Its rights are not kube-scheduler's, and the policies know it by that account only."""
    objects = list(yaml.safe_load_all(render(*SERVICE)))
    (binding,) = (found for found in objects if (found["kind"], found["metadata"]["name"]) == EXTENDERS_BINDING)
    assert [subject["name"] for subject in binding["subjects"]] == ["gputopo-extender"]
    policies = yaml.safe_dump_all(found for found in objects if found["kind"] == "ValidatingAdmissionPolicy")
    assert "gputopo-system:gputopo-extender'" in policies and "gputopo-system:gputopo-scheduler'" not in policies


def test_service_form_keeps_to_the_restricted_standard() -> None:
    """Both deployments, as in the other form; the only further volumes are the certificates."""
    deployments = [found for found in yaml.safe_load_all(render(*SERVICE)) if found["kind"] == "Deployment"]
    assert [len(found["spec"]["template"]["spec"]["containers"]) for found in deployments] == [1, 1]
    for spec in (found["spec"]["template"]["spec"] for found in deployments):
        assert "initContainers" not in spec
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["fsGroup"] == 65532
        assert [volume.keys() - {"name"} for volume in spec["volumes"]] == [{"configMap"}, {"secret"}]
        assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


COMPONENT = "app.kubernetes.io/component"
EVERYBODY: dict[str, Any] = {}
Rules = set[tuple[str, str]]


def let_in(*settings: str) -> dict[str, Rules]:
    """Return component → (port, who may reach it), as the NetworkPolicies of its pods say, each of them a workload's."""
    objects = list(yaml.safe_load_all(render(*settings)))
    policies = [found["spec"] for found in objects if found["kind"] == "NetworkPolicy"]
    pods = [found["spec"]["selector"] for found in objects if found["kind"] in ("DaemonSet", "Deployment")]
    assert all(policy["podSelector"] in pods and policy["policyTypes"] == ["Ingress"] for policy in policies)
    return {
        policy["podSelector"]["matchLabels"][COMPONENT]: {
            (port["port"], who(peer))
            for rule in policy["ingress"] or ()
            for port in rule["ports"]
            for peer in rule.get("from") or [EVERYBODY]
        }
        for policy in policies
    }


def who(peer: dict[str, Any]) -> str:
    """Return a peer's component, if it is one of our own namespace, or its namespace."""
    if peer == EVERYBODY:
        return "everybody"
    (selector,) = peer.values()
    labels = selector["matchLabels"]
    name: str = labels[COMPONENT] if "podSelector" in peer else labels["kubernetes.io/metadata.name"]
    return name


def test_strangers_reach_no_port_of_ours() -> None:
    """In both forms only who scrapes and, where the verbs have a port, kube-scheduler; the kubelet needs no rule."""
    agent = {("health", "monitoring")}
    assert let_in() == {
        "agent": agent,
        "scheduler": {("scheduler", "monitoring"), ("extender-health", "monitoring")},
    }
    assert let_in(*SERVICE) == {
        "agent": agent,
        "scheduler": {("scheduler", "monitoring")},
        "extender": {("extender-health", "monitoring"), ("extender", "scheduler")},
    }


def test_without_scrapers_the_ports_are_closed_and_not_open() -> None:
    """A NetworkPolicy takes an empty `from` for everybody."""
    assert let_in("networkPolicy.scrapers=null") == {"agent": set(), "scheduler": set()}
    service = let_in("networkPolicy.scrapers=null", *SERVICE)
    assert service == {"agent": set(), "scheduler": set(), "extender": {("extender", "scheduler")}}


def test_scrapers_are_whom_the_user_names() -> None:
    """And the policies can be left out."""
    name = r"networkPolicy.scrapers[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name=observability"
    assert let_in(name)["agent"] == {("health", "observability")}
    assert let_in("networkPolicy.enabled=false", *SERVICE) == {}


EXTENDERS_BINDING = ("ClusterRoleBinding", "gputopo-extender")


def test_policies_can_be_left_out() -> None:
    """All of them, or the one that restrains how pods are created."""
    assert "ValidatingAdmissionPolicy" not in render("policies.enabled=false")
    rendered = render("policies.gpuPodsNeedAScheduler=false")
    assert "gputopo-scheduled-pods" not in rendered and "gputopo-pod-allocations" in rendered


def kinds_of_policies(*settings: str, cluster: str = "v1.37.2") -> list[str]:
    """Return the kinds of the policy about the name of the scheduler, and of its binding."""
    objects = [each for each in yaml.safe_load_all(render(*settings, cluster=cluster)) if each]
    return [each["kind"] for each in objects if each["metadata"]["name"] == "gputopo-scheduler-name"]


def test_nobodys_scheduler_is_named_unless_one_asks_for_that() -> None:
    """It may be asked for with or without the other policies, and speaks of the resource and the name that are configured."""
    mode = "policies.schedulerName.mode"
    mutating = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
    warning = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert kinds_of_policies() == []
    assert kinds_of_policies(f"{mode}=warn") == warning
    assert kinds_of_policies(f"{mode}=auto") == kinds_of_policies(f"{mode}=set") == mutating
    assert kinds_of_policies(f"{mode}=auto", cluster="v1.35.0") == warning
    assert kinds_of_policies(f"{mode}=set", "policies.enabled=false") == mutating
    rendered = render(f"{mode}=set", "gpuResource=amd.com/gpu", "schedulerName=mine")
    assert "name == 'amd.com/gpu'" in rendered and "Object.spec{schedulerName: 'mine'}" in rendered
    with pytest.raises(HelmRefused, match=r"serves no MutatingAdmissionPolicy: that is in Kubernetes 1\.36"):
        render(f"{mode}=set", cluster="v1.35.0")


def test_the_extender_knows_the_scheduler_that_asks_it() -> None:
    """To count the pods of others; who has more such schedulers names them all."""
    scheduling = configuration(render("schedulerName=mine"), "extender.yaml")["scheduling"]
    assert scheduling["schedulerNames"] == ["mine"]
    more = render("extender.config.scheduling.schedulerNames={mine,theirs}")
    assert configuration(more, "extender.yaml")["scheduling"]["schedulerNames"] == ["mine", "theirs"]


def test_policies_speak_of_the_resource_and_the_users_that_are_configured() -> None:
    """As CEL that the API server can read."""
    names = ("gpuResource=amd.com/gpu", "policies.mayNameNodes={validator}", "policies.extenderUsers={mine}")
    rendered = render(*names)
    assert "['amd.com/gpu', 'gputopo.dev/gpu-memory-gib'].exists(name, name in container" in rendered
    assert "request.userInfo.username in ['validator']" in rendered
    assert "['system:serviceaccount:gputopo-system:gputopo-scheduler', 'mine']" in rendered


def test_notes_print_the_stanza_of_the_configuration() -> None:
    """What a scheduler of one's own needs is word for word what ours has."""
    said = helm("install", "gputopo", CHART, "-n", "x", "--dry-run=client", "--set", "image.repository=gputopo")
    configured, noted = re.findall(r"^( *)extenders:\n((?:\1 .*\n?)+)", said, re.MULTILINE)
    assert yaml.safe_load(configured[1]) == yaml.safe_load(noted[1])


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("image.repository=", "build one from the Containerfile"),
        ("image.digest=latest", "does not match pattern"),
        ("schedulerName=default-scheduler", "Choose another name"),
        ("scheduler.image.tag=v1.38.0", "must have the minor version of the API server"),
        ("scheduler.image.tag=v1.34.1", "must have the minor version of the API server"),
        ("scheduler.httpTimeoutSeconds=2", "minimum: got 2, want 5"),
        ("extender.bindDeadlineSeconds=5", "must be longer than extender.bindDeadlineSeconds"),
        ("extender.config.listen.host=0.0.0.0", "/extender/config/listen"),
        ("extender.config.tls.certFile=x", "/extender/config/tls"),
        ("extender.config.agents.namespace=x", "/extender/config/agents/namespace"),
        ("extender.service.enabled=true", "without certificates on both sides"),
        ("policies.exemptGroups={it's}", "does not match pattern"),
        ("policies.schedulerName.mode=always", "/policies/schedulerName/mode"),
        ("policies.schedulerName.resources={nvidia.com/*x}", "does not match pattern"),
        ("agent.metrics.gpus=sometimes", "/agent/metrics/gpus"),
        ("agent.config.metrics.holders=true", "/agent/config/metrics/holders"),
        ("agent.privileged=true", "additional properties 'privileged' not allowed"),
    ],
)
def test_misuse_is_refused_with_advice(setting: str, advice: str) -> None:
    """Nothing is installed that could not work."""
    with pytest.raises(HelmRefused, match=re.escape(advice)):
        render(setting)


def test_default_namespace_is_refused() -> None:
    """Whoever forgets `--namespace` gets told."""
    with pytest.raises(HelmRefused, match="--namespace gputopo-system --create-namespace"):
        render(namespace="default")


def test_older_kubernetes_is_refused() -> None:
    """The protocol needs what 1.30 repaired."""
    with pytest.raises(HelmRefused, match=r"requires kubeVersion: >=1\.30"):
        render(cluster="v1.29.9")


def test_profiles_that_pods_may_ask_for_reach_the_extender() -> None:
    """Under the names of NVIDIA's device plugin, `+` as `.`; none unless somebody lists them."""
    managed = re.compile(r"- name: (nvidia\.com/\S+)\n +ignoredByScheduler: false")
    assert managed.findall(render()) == ["nvidia.com/gpu"]
    asked = render("mig.profiles={1g.10gb,1g.10gb+me}")
    assert managed.findall(asked) == ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me"]
    with pytest.raises(HelmRefused):
        render("mig.profiles={nvidia.com/mig-1g.10gb}")


def test_agent_gets_a_capability_only_where_it_looks_for_slices() -> None:
    """NVML tells the profile of a slice to SYS_ADMIN; the API server refuses that beside a ban on more privileges."""

    def agent(*settings: str) -> dict[str, Any]:
        found = (each for each in yaml.safe_load_all(render(*settings)) if each and each["kind"] == "DaemonSet")
        container: dict[str, Any] = next(found)["spec"]["template"]["spec"]["containers"][0]
        return container

    assert agent()["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    cut = agent("mig.enabled=true")
    assert cut["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert "allowPrivilegeEscalation" not in cut["securityContext"]
    assert {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in cut["env"]


def test_agent_gets_at_cgroups_only_where_it_holds_shares_by_them() -> None:
    """In mode `enforce`, with GPUs to share; a node without either gives it no more than before."""

    def agent(*settings: str) -> dict[str, Any]:
        found = (each for each in yaml.safe_load_all(render(*settings)) if each and each["kind"] == "DaemonSet")
        spec: dict[str, Any] = next(found)["spec"]["template"]["spec"]
        return spec

    def gets(spec: dict[str, Any]) -> tuple[bool, bool]:
        container = spec["containers"][0]
        folder = {"name": "cgroups", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}} in spec["volumes"]
        mounted = {"name": "cgroups", "mountPath": "/sys/fs/cgroup"} in container["volumeMounts"]
        assert folder == mounted
        return folder, container["securityContext"]["capabilities"].get("add") == ["SYS_ADMIN"]

    on = ("agent.mode=enforce", "agent.sharing.gpus=2")
    assert gets(agent(*on)) == (True, True)
    for less in (on[:1], on[1:], (*on, "agent.sharing.cgroups=false")):
        assert gets(agent(*less)) == (False, False)


def test_settings_of_sharing_reach_the_agent() -> None:
    """As its configuration spells them; the defaults share nothing."""

    def sharing(*settings: str) -> Any:
        found = (each for each in yaml.safe_load_all(render(*settings)) if each and each["kind"] == "ConfigMap")
        texts = [each["data"]["agent.yaml"] for each in found if "agent.yaml" in each["data"]]
        return yaml.safe_load(texts[0])["sharing"]

    assert sharing() == {"gpus": "none", "limits": "required", "mps": "off", "mpsFolder": "/run/gputopo/mps"}
    wanted = ("agent.sharing.gpus=2", "agent.sharing.limits=preferred", "agent.sharing.mps.enabled=true")
    assert sharing(*wanted, "agent.config.sharing.reserveGib=2") == {
        "gpus": 2,
        "limits": "preferred",
        "mps": "on",
        "mpsFolder": "/run/gputopo/mps",
        "reserveGib": 2,
    }
    with pytest.raises(HelmRefused):
        render("agent.config.sharing.gpus=2")


def test_daemons_of_mps_are_no_part_of_the_agents_pods() -> None:
    """Whoever restarts one ends the work of its clients, so an upgrade of ours leaves them alone."""
    with pytest.raises(HelmRefused, match=r"mps\.enabled"):
        render("agent.sharing.mps.daemon=true")
    found = yaml.safe_load_all(render("agent.sharing.mps.enabled=true", "agent.sharing.mps.daemon=true"))
    sets = {each["metadata"]["name"]: each["spec"] for each in found if each and each["kind"] == "DaemonSet"}
    mps = next(spec for name, spec in sets.items() if name.endswith("-mps"))
    assert mps["updateStrategy"] == {"type": "OnDelete"}
    assert mps["template"]["spec"]["automountServiceAccountToken"] is False
    agent = next(spec for name, spec in sets.items() if name.endswith("-agent"))["template"]["spec"]
    assert {"name": "mps", "mountPath": "/run/gputopo/mps", "readOnly": True} in agent["containers"][0]["volumeMounts"]
    assert {each["hostPath"]["path"] for each in mps["template"]["spec"]["volumes"]} == {
        "/run/gputopo/mps",
        "/run/gputopo/mps/shm",
    }


def pod_specs(*settings: str) -> dict[str, dict[str, Any]]:
    """Return the pod spec of each workload by its component."""
    objects = (item for item in yaml.safe_load_all(render(*settings)) if item)
    return {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]["spec"]
        for item in objects
        if item["kind"] in ("DaemonSet", "Deployment")
    }


def test_every_pod_selects_linux_beside_what_the_user_selects() -> None:
    """The image has no other form, and nodes of other systems are in many clusters."""
    mps = ("agent.sharing.mps.enabled=true", "agent.sharing.mps.daemon=true")
    specs = pod_specs(*SERVICE, *mps, "agent.nodeSelector.pool=gpu", "scheduler.nodeSelector.pool=system")
    linux = {"kubernetes.io/os": "linux"}
    gpu, system = {"pool": "gpu", **linux}, {"pool": "system", **linux}
    selectors = {component: spec["nodeSelector"] for component, spec in specs.items()}
    assert selectors == {"agent": gpu, "mps": gpu, "scheduler": system, "extender": system}


def test_driver_of_the_node_is_mounted_where_no_toolkit_does() -> None:
    """Then the agent opens the device nodes by itself, which only a privileged container may."""
    (plain,) = pod_specs()["agent"]["containers"]
    assert "privileged" not in plain["securityContext"]
    spec = pod_specs("agent.driverDir=/home/kubernetes/bin/nvidia", "agent.deviceListStrategy=volume-mounts")["agent"]
    (agent,) = spec["containers"]
    assert agent["securityContext"]["privileged"] is True
    assert agent["securityContext"]["readOnlyRootFilesystem"] is True
    assert "capabilities" not in agent["securityContext"]
    environment = {each["name"]: each.get("value") for each in agent["env"]}
    assert environment["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert not [name for name in environment if name.startswith("NVIDIA_")]
    assert {"name": "driver", "mountPath": "/usr/local/nvidia", "readOnly": True} in agent["volumeMounts"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert (paths["driver"], paths["dev"]) == ("/home/kubernetes/bin/nvidia", "/dev")
    assert "all-gpus" not in paths
    with pytest.raises(HelmRefused, match=r"agent\.driverDir"):
        render("agent.driverDir=/x", "agent.sharing.mps.enabled=true", "agent.sharing.mps.daemon=true")


def test_agents_selinux_type_is_the_users_and_openshifts_by_itself() -> None:
    """Elsewhere the runtime chooses it."""

    def options(*settings: str) -> Any:
        return pod_specs(*settings)["agent"]["containers"][0]["securityContext"].get("seLinuxOptions")

    assert options() is None
    assert options("openshift.enabled=true") == {"type": "spc_t"}
    assert options("openshift.enabled=true", "agent.seLinuxOptions.type=gpu_t") == {"type": "gpu_t"}
    assert options("agent.seLinuxOptions.type=spc_t") == {"type": "spc_t"}


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ((), {"allowPrivilegedContainer": False, "allowedCapabilities": [], "allowPrivilegeEscalation": False}),
        (
            ("mig.enabled=true", "agent.hostPID=true"),
            {"allowHostPID": True, "allowedCapabilities": ["SYS_ADMIN"], "allowPrivilegeEscalation": True},
        ),
        (
            ("agent.driverDir=/run/nvidia/driver",),
            {"allowPrivilegedContainer": True, "requiredDropCapabilities": [], "allowPrivilegeEscalation": True},
        ),
    ],
)
def test_constraints_allow_the_agent_what_its_pods_have(settings: tuple[str, ...], allowed: dict[str, Any]) -> None:
    """OpenShift would admit no pod that has more, and the pods' account could make pods that have as much."""
    objects = [each for each in yaml.safe_load_all(render("openshift.enabled=true", *settings)) if each]
    (made,) = (each for each in objects if each["kind"] == "SecurityContextConstraints")
    plain = {"allowHostPID": False, "requiredDropCapabilities": ["ALL"], "users": [], "groups": []}
    assert {name: made[name] for name in plain | allowed} == plain | allowed
    (agent,) = (each for each in objects if each["kind"] == "DaemonSet")
    kinds = {kind for volume in agent["spec"]["template"]["spec"]["volumes"] for kind in volume if kind != "name"}
    assert kinds | {"projected"} == set(made["volumes"])


def test_nothing_of_openshift_or_gke_is_installed_elsewhere() -> None:
    """API servers refuse kinds that they do not know, and a quota would count everybody's pods."""
    assert "security.openshift.io" not in render()
    assert "ResourceQuota" not in render()
