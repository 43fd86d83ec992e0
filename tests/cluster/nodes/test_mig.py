"""MIG slices on real kubelets: planned, handed out exactly, recorded, and cut anew while pods come and go."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from extender.cluster.candidates.openness import MIG_STATE
from tests.cluster.api import Json
from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import Installation
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import AgentProcess, observing, ready_plugin
from tests.cluster.nodes.inside import seen_inside
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, wait_running
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.objects import NODES
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import decode_observed

SMALL, MEDIA, LARGE = (f"{keys.MIG_PREFIX}{profile}" for profile in ("1g.10gb", "1g.10gb.me", "3g.40gb"))


@pytest.fixture
def mig_cluster(node_plane: Installation) -> Iterator[GpuCluster]:
    """Lend the control plane with a scheduler that asks the extender about slices, too; take it before `nodes`."""
    with at_work(node_plane, more_resources=(SMALL, MEDIA, LARGE)) as lent:
        yield lent


@pytest.fixture
def programs_of_nvidia(built: Callable[[GoBuild], Path]) -> Path:
    """Return the folder of NVIDIA's programs."""
    return built(programs.NVIDIA)


def wants(name: str, resource: str, count: int = 1) -> Json:
    """Return a pod for our scheduler."""
    wanted = pod(name, 0, schedulerName=SCHEDULER_NAME)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {resource: str(count)}}
    return wanted


def serving(node: GpuNode, mode: str = "enforce", **enforce: str) -> AgentProcess:
    """Start our agent on a node with slices."""
    agent = AgentProcess(node, mode, sections={"enforce": {"deadline": "5s", **enforce}})
    agent.run()
    return agent


def planned(cluster: GpuCluster, name: str) -> set[str]:
    return set(cluster.placement(name).containers["main"])


def profiles(node: GpuNode) -> dict[str, str]:
    """Return slice → the GPU and profile that the node publishes of it."""
    slices = decode_topology(node.annotation(keys.TOPOLOGY) or "").slices
    return {each.uuid: f"{each.gpu}:{each.profile}" for each in slices}


def held(node: GpuNode) -> dict[str, set[str]]:
    """Return what each pod holds, as the kubelet says."""
    found: dict[str, set[str]] = {}
    for each in node.holdings():
        found.setdefault(each.pod, set()).update(each.ids)
    return found


def test_container_gets_exactly_the_planned_slice(mig_cluster: GpuCluster, nodes: Nodes, real_runtime: Runtime) -> None:
    """Whole GPUs and four kinds of slices from one agent; plan, ledger, kubelet, environment and device nodes agree."""
    node = nodes.one("mig_mixed", real_runtime)
    serving(node)
    node.wait_allocatable(6)
    eventually(lambda: [node.allocatable(each) for each in (SMALL, MEDIA, LARGE)] == [8, 1, 1])
    asked = {"large": LARGE, "media": MEDIA, "small": SMALL, "small2": SMALL, "gpu": "nvidia.com/gpu"}
    for name, resource in asked.items():  # one by one: GPU 7 is the fullest once its large slice is gone
        mig_cluster.submit(wants(name, resource))
        wait_running(mig_cluster, name)
    devices = decode_topology(node.annotation(keys.TOPOLOGY) or "").devices
    for name in asked:
        plan = planned(mig_cluster, name)
        view = seen_inside(node, name)
        assert held(node)[name] == plan == mig_cluster.claims(node.name, name)
        assert set(view.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == plan
        positions = {devices.index(each) for each in plan}
        assert view.devices == {f"/dev/nvidia{at}" if at < 8 else f"/dev/nvidia-cap{at - 8}" for at in positions}
    of = profiles(node)
    assert {of[next(iter(planned(mig_cluster, name)))] for name in ("media", "large")} == {"7:1g.10gb+me", "7:3g.40gb"}
    # GPU 7 is the fullest: its one small slice goes first.
    assert sorted(of[each] for name in ("small", "small2") for each in planned(mig_cluster, name)) == [
        "6:1g.10gb",
        "7:1g.10gb",
    ]


def test_slices_stand_for_gpus_where_the_strategy_is_single(mig_cluster: GpuCluster, nodes: Nodes) -> None:
    """Pods ask for `nvidia.com/gpu`, and get a slice each; nobody is told that the node has no GPUs."""
    node = nodes.one("mig_single")
    serving(node, migStrategy="single")
    node.wait_allocatable(14)
    mig_cluster.submit(wants("one", "nvidia.com/gpu"), wants("two", "nvidia.com/gpu", 2))
    wait_running(mig_cluster, "one", "two")
    assert {name: len(held(node)[name]) for name in ("one", "two")} == {"one": 1, "two": 2}
    assert all(held(node)[name] == planned(mig_cluster, name) for name in ("one", "two"))
    (started,) = [each for each in node.started() if each.pod == "two"]
    assert set(started.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == planned(mig_cluster, "two")


def test_slices_cut_anew_are_planned_anew(mig_cluster: GpuCluster, nodes: Nodes) -> None:
    """As the MIG manager does it: label, new slices with new UUIDs, label; pods wait meanwhile, and claims do not stay."""
    node = nodes.one("mig_mixed")
    serving(node)
    eventually(lambda: node.allocatable(SMALL) == 8)
    mig_cluster.submit(*(wants(f"p{number}", SMALL) for number in range(8)))
    wait_running(mig_cluster, *(f"p{number}" for number in range(8)))
    before = set(profiles(node))
    label(node, "pending")
    mig_cluster.submit(wants("late", LARGE, 2))
    eventually(lambda: mig_cluster.why_pending("late"))
    for number in range(8):
        mig_cluster.delete(f"p{number}")
    eventually(lambda: not held(node), within_seconds=60)
    text = node.machine.description.read_text()
    kept = [line for line in text.splitlines() if not line.startswith("slice ")]
    node.machine.description.write_text(
        "\n".join([*kept, "slice 6,7 3g.40gb 0 MIG-new-a%", "slice 6,7 3g.40gb 4 MIG-new-b%", ""])
    )
    eventually(lambda: set(profiles(node)).isdisjoint(before) and node.allocatable(LARGE) == 4, within_seconds=60)
    # A claim that stayed longer than its pod would decide which GPU is the fullest.
    eventually(lambda: not mig_cluster.ledger(node.name).claims, within_seconds=60)
    label(node, "success")
    wait_running(mig_cluster, "late", within_seconds=60)
    assert held(node)["late"] == planned(mig_cluster, "late") == {"MIG-new-a6", "MIG-new-b6"}
    eventually(lambda: {claim.name for claim in mig_cluster.ledger(node.name).claims} == {"late"}, within_seconds=60)


def label(node: GpuNode, state: str) -> None:
    node.plane.admin.patch(f"{NODES}/{node.name}", {"metadata": {"labels": {MIG_STATE: state}}})


@pytest.mark.parametrize(("strategy", "machine"), [("mixed", "mig_mixed"), ("single", "mig_single")])
def test_nvidias_plugin_is_observed_whatever_its_strategy(
    strategy: str, machine: str, mig_cluster: GpuCluster, nodes: Nodes, programs_of_nvidia: Path
) -> None:
    """What it offers is published and planned, what it hands out is recorded, and what it does not offer is refused."""
    node = nodes.one(machine)
    environment = {"MIG_STRATEGY": strategy}
    node.run("nvidia-device-plugin", programs_of_nvidia / "nvidia-device-plugin", **environment)
    observing(node)
    eventually(lambda: said(node) == strategy)
    # Nine: NVIDIA's plugin (v0.19.3) takes a `1g.10gb+me` for a `1g.10gb`, too, because its patterns are not anchored.
    resource, count = (SMALL, 9) if strategy == "mixed" else ("nvidia.com/gpu", 14)
    eventually(lambda: node.allocatable(resource) == count)
    names = [f"p{number}" for number in range(4)]
    mig_cluster.submit(*(wants(name, resource) for name in names))
    wait_running(mig_cluster, *names)
    eventually(lambda: all(held(node)[name] == recorded(node, name) for name in names))
    eventually(
        lambda: all(mig_cluster.claims(node.name, name) == held(node)[name] for name in names), within_seconds=60
    )
    if strategy == "mixed":
        mig_cluster.submit(wants("gpus", "nvidia.com/gpu", 6))
        wait_running(mig_cluster, "gpus")


def said(node: GpuNode) -> str:
    """Return the strategy that the node's agent tells."""
    plugin = ready_plugin(node)
    return plugin.mig if plugin else ""


def recorded(node: GpuNode, name: str) -> set[str]:
    """Return what the node's agent saw with a pod."""
    observed = decode_observed(node.annotation(keys.OBSERVED) or "")
    return {device for device, holder in observed.gpus.items() if holder.name == name}
