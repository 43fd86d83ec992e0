"""The cluster as a whole: what needs somebody, where, and what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import gpu_pod, join
from extender.cluster.objects.devices import ResourceSlice
from extender.cluster.objects.health_signs import HealthWords
from extender.cluster.objects.kinds import Node, NodeCondition, Pod
from extender.cluster.objects.kinds import NodeStatus as NodeHealth
from extender.cluster.state import ClusterState
from extender.config.health_words import HealthWord, WordKind
from extender.features.dra.claim_spec import OUR_CLASS
from extender.inspect.status import Finding, Status, status
from extender.kubectl.claim_holdings import recognise
from extender.telemetry.gauges import gauges_of
from tests.dra import gpu, read_slice, resource_slice
from tests.extender.builders import cluster, gpus, node, pod, running
from tests.extender.plugin import NODES, PODS, invoke, plugin
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, GpuStatus, LinkFault, Mode, NodeGpuStatus

PLUGIN = DevicePluginStatus(Mode.ENFORCE, ready=True)


def found(told: Status) -> dict[str, tuple[str, ...]]:
    return {finding.what: finding.nodes for finding in told.findings}


def test_a_cluster_where_all_is_well_needs_nobody() -> None:
    """It is counted all the same."""
    told = status(
        cluster(node("n1", status=encode_status(NodeGpuStatus(1, device_plugin=PLUGIN))), node("n2"), pod("p", 2))
    )
    assert told.findings == ()
    assert (told.nodes, told.gpus, told.free, told.pods, told.waiting) == (2, 16, 16, 1, 1)
    assert told.modes == {"enforce": 1, "unknown": 1}
    assert sum(told.machines.values()) == 2


def test_equal_troubles_are_one_finding_with_all_their_nodes() -> None:
    """Those of most nodes first, each with what helps."""
    sick = NodeGpuStatus(1, (GpuStatus(gpus("n3", 0)[0], healthy=False, reasons=("xid 79, needs a reset",)),))
    waits = NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.ENFORCE, ready=False, reasons=("not registered",)))
    told = status(
        cluster(
            node("n1", topology=None),
            node("n2", topology="{"),
            node("n3", status=encode_status(sick)),
            node("n4", status=encode_status(waits)),
        )
    )
    assert found(told)["a GPU takes no new pods: xid 79, needs a reset"] == ("n3",)
    assert found(told)["the device plugin is not ready: not registered"] == ("n4",)
    assert any(what.startswith("no GPU is given away: ") and "n2" in nodes for what, nodes in found(told).items())
    assert all(finding.remedy for finding in told.findings)


def test_of_a_cordoned_gpu_it_says_how_to_open_it() -> None:
    """By the command that does it; of a sick one, where that is explained."""
    cordoned = GpuStatus(gpus("n1", 0)[0], healthy=False, reasons=("cordoned: fan is loud (ann)",))
    sick = GpuStatus(gpus("n1", 1)[0], healthy=False, reasons=("xid 79",))
    findings = status(cluster(node("n1", status=encode_status(NodeGpuStatus(1, (cordoned, sick)))))).findings
    remedy_of = {finding.what.removeprefix("a GPU takes no new pods: "): finding.remedy for finding in findings}
    assert "uncordon-gpu" in remedy_of["cordoned: fan is loud (ann)"]
    assert "Handle sick GPUs" in remedy_of["xid 79"]


def test_nvlinks_that_are_down_are_one_finding() -> None:
    """However many, and on however many GPUs; the GPUs themselves are well."""
    faults = tuple(LinkFault(gpu, link, "inactive") for gpu in gpus("n1", 0, 1) for link in range(3))
    told = status(cluster(node("n1", status=encode_status(NodeGpuStatus(1, link_faults=faults))), node("n2")))
    assert list(found(told).values()) == [("n1",)]
    assert next(iter(found(told))).startswith("NVLinks are down")


def test_pods_that_hold_one_gpu_are_told() -> None:
    """Nobody but a person can end that."""
    (shared,) = gpus("n1", 0)
    told = status(cluster(node("n1"), running("a", "n1", shared), running("b", "n1", shared)))
    assert found(told)["two running pods hold one GPU"] == ("n1",)


def test_what_other_health_agents_say_needs_somebody() -> None:
    """Equal words are one finding, whatever their messages are; one that closes is the reason that stands there already."""
    state = ClusterState(health_words=HealthWords([HealthWord(WordKind.CONDITION, "GPUMissing", "True", closes=True)]))
    state.nodes.replaced([said("n1", "XIDErrors"), said("n2", "XIDErrors"), said("n3", "GPUMissing")])
    state.pods.replaced([])
    told = status(state)
    assert found(told)["another health agent says: condition XIDErrors=True"] == ("n1", "n2")
    assert found(told)["no GPU is given away: closed by condition GPUMissing=True"] == ("n3",)
    assert not any("says: condition GPUMissing" in what for what in found(told))
    assert all(finding.remedy for finding in told.findings)


def said(name: str, condition: str) -> Node:
    """Build a node of which another health agent says this."""
    conditions = [NodeCondition("Ready", "True"), NodeCondition(condition, "True", "R", f"on {name}")]
    return msgspec.structs.replace(node(name), status=NodeHealth(None, conditions))


def test_a_cluster_without_agents_says_so() -> None:
    """Where to begin."""
    (finding,) = status(cluster()).findings
    assert finding.remedy == "look at the agents' pods"


def test_pods_that_no_node_will_ever_do_for_need_somebody() -> None:
    """A misspelt annotation is never passed over; the first pods are named, and all are counted."""
    misspelt = [pod(f"p{number}", 1, wants={keys.USER_PREFIX + "required-afinity": "nvlink"}) for number in range(5)]
    (finding,) = status(cluster(node("n1"), pod("good", 1), *misspelt)).findings
    assert finding.what == "pods that wait and cannot be understood: 5 (ml/p0, ml/p1, ml/p2, …)"
    assert "why POD" in finding.remedy


def by(scheduler: str, asked: Pod) -> Pod:
    """Return a pod as one that this scheduler is for."""
    spec = msgspec.structs.replace(asked.spec, scheduler_name=scheduler)
    return msgspec.structs.replace(asked, spec=spec)


def test_pods_that_other_schedulers_have_placed_on_our_nodes_are_counted() -> None:
    """Both take what they count as free; not those that wait or have ended, or are where no agent is."""
    told = status(
        cluster(
            node("n1"),
            node("n2"),
            node("n3", topology=None),
            by("default-scheduler", running("a", "n2", *gpus("n2", 0))),
            by("default-scheduler", running("b", "n1", *gpus("n1", 0))),
            by("volcano", running("c", "n1", *gpus("n1", 1))),
            by("gputopo", running("d", "n1", *gpus("n1", 2))),
            by("default-scheduler", pod("waits")),
            by("default-scheduler", pod("ended", on="n1", phase="Succeeded", terminated=True)),
            by("default-scheduler", pod("elsewhere", on="n3", phase="Running")),
        )
    )
    assert told.placed_by_others == 3
    assert found(told)["pods with GPUs are placed by other schedulers: 3"] == ("n1", "n2")


def test_a_pod_of_another_scheduler_counts_until_it_has_gone() -> None:
    """Whatever is heard of it in between."""
    state = cluster(node("n1"), by("volcano", running("c", "n1", *gpus("n1", 1))))
    assert status(state).placed_by_others == gauges_of(state)["pods_of_other_schedulers"] == 1
    volcano = cluster(
        node("n1"), by("volcano", running("c", "n1", *gpus("n1", 1))), into=ClusterState(scheduler_names=["volcano"])
    )
    assert status(volcano).placed_by_others == 0
    state.pods.changed(by("volcano", running("c", "n1", *gpus("n1", 1), version=2)))
    assert status(state).placed_by_others == 1
    state.pods.deleted(by("volcano", running("c", "n1", *gpus("n1", 1), version=3)))
    assert status(state).placed_by_others == gauges_of(state)["pods_of_other_schedulers"] == 0


def test_a_node_whose_gpus_a_dra_driver_publishes_needs_no_device_plugin() -> None:
    """One that offers GPUs as well, and is not ready, is a finding."""
    plugin = DevicePluginStatus(Mode.OBSERVE, ready=False, reasons=("no device plugin serves nvidia.com/gpu",))
    bare = node("n1", status=encode_status(NodeGpuStatus(1, device_plugin=plugin)))
    offers = msgspec.structs.replace(bare, status=NodeHealth({"nvidia.com/gpu": "8"}, bare.status.conditions))
    published = read_slice(resource_slice("n1", [gpu(0, gpus("n1", 0)[0])]))

    def findings_with(of_node: Node, *slices: ResourceSlice) -> tuple[Finding, ...]:
        state = ClusterState()
        recognise(state, {OUR_CLASS: None})
        state.claims.slices.replaced(slices)
        state.claims.hear(True)
        return status(cluster(of_node, into=state)).findings

    assert findings_with(bare, published) == ()
    assert len(findings_with(bare)) == len(findings_with(offers, published)) == 1


async def test_the_plugin_names_the_pods_of_other_schedulers(tmp_path: Path) -> None:
    """And what to do about it."""
    result = await plugin(tmp_path, "status")
    assert result.exit_code == 1
    assert "pods with GPUs are placed by other schedulers: 1 " in result.stdout
    assert "policies.schedulerName" in result.stdout


@pytest.mark.slow
async def test_the_plugin_ends_with_a_no_where_something_needs_somebody(tmp_path: Path) -> None:
    """So that a script can ask; it is a yes once the misspelt pod is gone."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, NODES)
        for name, wants in (("waits", {}), ("odd", {keys.USER_PREFIX + "required-afinity": "nvlink"})):
            (await api.call("POST", PODS, gpu_pod(name, 1, wants, schedulerName="nobody"))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("status", "--scheduler-name", "nobody", "--kubeconfig", str(tmp_path / "kubeconfig"))
        before = await asyncio.to_thread(invoke, *here)
        (await api.call("DELETE", f"{PODS}/odd")).ok()
        after = await asyncio.to_thread(invoke, *here)
    assert (before.exit_code, after.exit_code) == (1, 0), before.output + after.output
    assert "cannot be understood: 1 (default/odd)" in before.stdout
    head, modes, *_, last = after.stdout.splitlines()
    assert head == "nodes: 2; GPUs: 12, 10 free; pods: 2, 1 waiting"
    assert modes.startswith("modes: ")
    assert last == "nothing needs you"
