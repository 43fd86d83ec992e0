"""The parts that the chart puts together fit: programs, configurations, ports and paths are the ones our code has."""

from importlib.metadata import entry_points, metadata, version
from pathlib import Path

import pytest
import yaml

from agent import config as agent_config
from extender.config.document import ExtenderConfiguration
from extender.features.configuration import load as load_extender
from extender.kubectl.leader import PORT
from extender.web import health
from extender.web.routes import routes
from tests.manifests.helm import CHART
from tests.manifests.objects import Json, all_objects, containers, file_of, of_kind, pod_specs
from tests.manifests.rendered import FOLDER, NAMESPACE
from tests.release.numbers import chart_version
from topology.annotations import keys

SCHEDULER = yaml.safe_load(file_of("gputopo-scheduler", "scheduler.yaml"))
(EXTENDER,) = SCHEDULER["extenders"]
CLIENT = "nvidia.com/gpu.deploy.client"


@pytest.fixture
def extender_settings(tmp_path: Path) -> ExtenderConfiguration:
    file = tmp_path / "extender.yaml"
    file.write_text(file_of("gputopo-scheduler", "extender.yaml"))
    return load_extender(file, {}, {"health.host": "fd00::1"})


def test_scheduler_calls_the_verbs_that_the_extender_serves(extender_settings: ExtenderConfiguration) -> None:
    """Prefix and verbs make exactly the routes, on the address where they are served."""
    prefix = f"http://{extender_settings.listen.host}:{extender_settings.listen.port}"
    called = {
        f"{EXTENDER['urlPrefix']}/{EXTENDER[f'{verb}Verb']}" for verb in ("filter", "prioritize", "bind", "preempt")
    }
    assert called == {prefix + route.path for route in routes(extender_settings.limits)}


def test_scheduler_outwaits_the_extenders_binds(extender_settings: ExtenderConfiguration) -> None:
    """A bind that kube-scheduler gave up on could still commit."""
    assert EXTENDER["httpTimeout"] == "5s"
    assert extender_settings.scheduling.bind_deadline < 5


def test_extender_is_never_skipped_and_never_short_of_names(extender_settings: ExtenderConfiguration) -> None:
    """Not ignorable, names only, all nodes in view, GPUs and shares of them still counted by the scheduler itself."""
    managed = [extender_settings.scheduling.resource, keys.SHARE_RESOURCE]
    assert (EXTENDER["ignorable"], EXTENDER["nodeCacheCapable"]) == (False, True)
    assert SCHEDULER["percentageOfNodesToScore"] == 100
    assert EXTENDER["managedResources"] == [{"name": name, "ignoredByScheduler": False} for name in managed]


def test_better_gpus_outweigh_everything_that_default_plugins_can_say() -> None:
    """One point of ours is worth more than their highest sum: 100 for each of the weights 3, 2, 2, 2, 2, 1, 1, 1."""
    assert 10 * EXTENDER["weight"] > 100 * (3 + 2 + 2 + 2 + 2 + 1 + 1 + 1)


def test_scheduler_elects_a_leader_by_a_lease_of_its_own() -> None:
    """It never contends with the cluster's scheduler."""
    assert SCHEDULER["leaderElection"] == {
        "leaderElect": True, "resourceNamespace": NAMESPACE, "resourceName": "gputopo-scheduler"
    }  # fmt: skip


def test_agent_accepts_its_configuration(tmp_path: Path) -> None:
    """The file and the downward API's variables make a whole configuration."""
    file = tmp_path / "agent.yaml"
    file.write_text(file_of("gputopo-agent", "agent.yaml"))
    settings = agent_config.load(file, {"NODE_NAME": "n1", "GPUTOPO_HEALTH_HOST": "fd00::1"}, {})
    assert (settings.node_name, settings.health.host, settings.health.port) == ("n1", "fd00::1", 9410)


@pytest.mark.parametrize("container", [c for spec in pod_specs() for c in containers(spec)], ids=lambda c: c["name"])
def test_probes_ask_for_paths_that_are_served(container: Json) -> None:
    """A probe names a declared port and a path that the program answers."""
    served = {route.path for route in health.routes()}
    ports = {port["name"] for port in container["ports"]}
    kinds = ("readinessProbe", "livenessProbe", *({"startupProbe"} & container.keys()))
    probes = [container[kind]["httpGet"] for kind in kinds]
    assert all(probe["path"] in served and probe["port"] in ports for probe in probes)


def test_the_plugin_finds_the_port_of_each_extender() -> None:
    """`--extender auto` forwards it by its name, also where it listens on loopback."""
    extenders = [c for spec in pod_specs() for c in containers(spec) if c["command"] == ["gputopo-extender"]]
    port = yaml.safe_load(file_of("gputopo-scheduler", "extender.yaml"))["listen"]["port"]
    assert [[p["containerPort"] for p in each["ports"] if p["name"] == PORT] for each in extenders] == [[port]]


def test_containers_run_programs_that_the_distribution_installs() -> None:
    """Every command but kube-scheduler's is a console script of ours."""
    ours = {
        script.name for script in entry_points(group="console_scripts") if script.dist and script.dist.name == "gputopo"
    }
    commands = {container["command"][0] for spec in pod_specs() for container in containers(spec)}
    assert commands - ours == {"kube-scheduler"}


def test_chart_and_distribution_have_one_version() -> None:
    """The image's default tag is the version of the code in it; Helm wants semantic versioning for the chart's own."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version("gputopo")
    assert chart["version"] == chart_version(version("gputopo"))


def test_artifact_hub_is_told_what_the_chart_is() -> None:
    """In its own words, each a text; the license is that of the code."""
    told = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    assert {type(each) for each in told.values()} == {str}
    assert told["artifacthub.io/license"] == metadata("gputopo")["License-Expression"]


def test_kustomization_names_every_file() -> None:
    """Nothing that was rendered is forgotten, and each object has a name of its own."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert {*kustomization["resources"], "kustomization.yaml"} == {file.name for file in FOLDER.iterdir()}
    names = [(found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"]) for found in all_objects()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("labels", "runs"),
    [
        ({"nvidia.com/gpu.present": "true"}, True),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, True),
        ({"nvidia.com/gpu.present": "true", CLIENT: "true"}, True),
        ({"feature.node.kubernetes.io/pci-10de.present": "true", CLIENT: "true"}, True),
        ({"nvidia.com/gpu.present": "true", CLIENT: "paused-for-driver-upgrade"}, False),
        ({"feature.node.kubernetes.io/pci-10de.present": "true", CLIENT: "paused-for-mig-change"}, False),
        ({"nvidia.com/gpu.present": "true", CLIENT: ""}, False),
        ({CLIENT: "true"}, False),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, True),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "true", CLIENT: "paused-for-mig-change"}, False),
        ({"feature.node.kubernetes.io/pci-0300_10de.present": "true", CLIENT: "true"}, True),
        ({"feature.node.kubernetes.io/pci-0302_1002.present": "true"}, False),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, True),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb", CLIENT: "paused-for-driver-upgrade"}, False),
    ],
)
def test_agent_leaves_while_the_gpu_operator_changes_the_driver(labels: dict[str, str], runs: bool) -> None:
    """It keeps the driver open, which could not be unloaded then; without such an operator it runs wherever there are GPUs.

    Stock Node Feature Discovery labels nodes by class and vendor, NVIDIA's configuration of it by vendor, GKE by accelerator.
    """
    (agent,) = of_kind("DaemonSet")
    affinity = agent["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert any(all(meets(labels, one) for one in term["matchExpressions"]) for term in terms) is runs


def meets(labels: dict[str, str], expression: Json) -> bool:
    """Whether labels meet one expression of a node selector term."""
    key = expression["key"]
    meanings = {
        "In": labels.get(key) in expression.get("values", ()),
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return meanings[expression["operator"]]
