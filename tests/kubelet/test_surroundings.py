"""What is found around a kubelet, and what it means for the node."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.config import KubeletSettings
from agent.kubelet.surroundings import alignment, cdi_devices, numa_nodes_of_cpus
from agent.plugin.alignment import Alignment
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode, write_cdi
from topology.node.alignment import Policy, Scope, TopologyManager


@pytest.mark.slow
async def test_nvidias_plugin_beside_ours_closes_the_node_until_it_is_gone(tmp_path: Path) -> None:
    """Both would serve one resource; which one has it is a matter of who registered last."""
    async with AgentOnNode(tmp_path) as node:
        rival = socket.socket(socket.AF_UNIX)
        rival.bind(str(node.kubelet.plugins / "nvidia-gpu.sock"))
        rival.listen()
        reason = "another device plugin serves nvidia.com/gpu: nvidia-gpu.sock"
        await until(lambda: reason in node.watch.last_look.plugin.reasons)
        assert not node.watch.last_look.plugin.ready
        rival.close()
        await node.ready()


async def test_observer_says_what_it_cannot_see(tmp_path: Path) -> None:
    """No device plugin, then one of ours; nothing is registered by the observer itself."""
    node = AgentOnNode(tmp_path, settings={"mode": "observe"})
    async with AsyncExitStack() as stack:
        stack.push_async_exit(node)
        await node.kubelet.start()
        await node.start_agent()
        await until(lambda: node.watch.last_look.plugin.reasons == ("no device plugin serves nvidia.com/gpu",))
        assert (node.kubelet.registrations, node.watch.last_look.held) == (0, {})
        node.kubelet.devices.listed(dict.fromkeys(node.gpus, True))
        await node.ready()


async def test_a_gpu_stays_withheld_while_its_plugin_starts_anew(tmp_path: Path) -> None:
    """It offers nothing then, which proves nothing; what it offers afterwards counts."""
    node = AgentOnNode(tmp_path, settings={"mode": "observe"})
    lost, *others = node.gpus
    async with AsyncExitStack() as stack:
        stack.push_async_exit(node)
        await node.kubelet.start()
        await node.start_agent()
        node.kubelet.devices.listed(dict.fromkeys(others, True))
        await until(lambda: lost in node.watch.last_look.withheld)
        node.kubelet.devices.listed({})
        await until(lambda: node.watch.last_look.plugin.reasons == ("no device plugin serves nvidia.com/gpu",))
        assert node.watch.last_look.withheld.keys() == {lost}
        node.kubelet.devices.listed(dict.fromkeys(node.gpus, True))
        await until(lambda: not node.watch.last_look.withheld)


def test_cdi_specs_are_read_in_either_form(tmp_path: Path) -> None:
    """YAML and JSON; whatever is broken names nothing."""
    write_cdi(tmp_path, ["GPU-a", "GPU-b"])
    (tmp_path / "more.json").write_text('{"kind":"nvidia.com/gpu","devices":[{"name":"GPU-c"},{"names":1},7]}')
    (tmp_path / "other.json").write_text('{"kind":"example.com/gpu","devices":[{"name":"GPU-d"}]}')
    (tmp_path / "broken.yaml").write_text("{")
    names = {"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-c", "example.com/gpu=GPU-d"}
    assert cdi_devices(tmp_path) == names
    assert cdi_devices(tmp_path / "nowhere") == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topologyManagerPolicy: single-numa-node\n", Alignment(Policy.SINGLE_NUMA_NODE, Scope.CONTAINER)),
        ("{topologyManagerPolicy: restricted, topologyManagerScope: pod}", Alignment(Policy.RESTRICTED, Scope.POD)),
        (
            "{topologyManagerPolicy: best-effort, cpuManagerPolicyOptions: {align-by-socket: 'true'}}",
            Alignment(Policy.BEST_EFFORT, Scope.CONTAINER, cpus_count=False),
        ),
        ("topologyManagerPolicy: none\n", None),
        ("kind: KubeletConfiguration\n", None),
        ("topologyManagerPolicy: [1]\n", None),
        ("[", None),
    ],
)
def test_alignment_is_the_kubelets_own(tmp_path: Path, text: str, expected: Alignment | None) -> None:
    """As far as its configuration can be read; none is the default."""
    (tmp_path / "config.yaml").write_text(text)
    assert alignment(kubelet_of(tmp_path / "config.yaml")) == expected
    assert alignment(kubelet_of(tmp_path / "nowhere.yaml")) is None


def test_an_alignment_that_we_are_told_counts_more_than_the_file(tmp_path: Path) -> None:
    """A kubelet may be told by flags, and an operator may want GPUs to have no say."""
    (tmp_path / "config.yaml").write_text("topologyManagerPolicy: single-numa-node\n")
    told = kubelet_of(tmp_path / "config.yaml", policy="restricted", scope="pod")
    assert alignment(told) == Alignment(Policy.RESTRICTED, Scope.POD)
    assert alignment(kubelet_of(tmp_path / "config.yaml", policy="none")) is None


def kubelet_of(file: Path, **topology_manager: str) -> KubeletSettings:
    """Return what the agent is configured to know of its kubelet."""
    return KubeletSettings.model_validate({"configFile": file, "topologyManager": topology_manager})


async def test_a_kubelet_that_aligns_learns_of_numa_nodes_and_no_other_does(tmp_path: Path) -> None:
    """Without alignment NUMA nodes would be of no use to it."""
    async with AgentOnNode(tmp_path / "plain") as node:
        assert node.kubelet.numa_nodes == {gpu: [] for gpu in node.gpus}
        assert node.watch.last_look.plugin.topology_manager is None
    async with AgentOnNode(tmp_path / "aligning", settings={"kubelet.topologyManager.policy": "restricted"}) as node:
        near = {gpu.uuid: [gpu.numa_node] for gpu in node.topology.gpus}
        assert node.kubelet.numa_nodes == near
        assert node.watch.last_look.plugin.topology_manager == TopologyManager(Policy.RESTRICTED)


def test_cpus_are_where_the_kernel_says(tmp_path: Path) -> None:
    """Ranges and single ones; what cannot be read is not known."""
    for numa_node, text in ((0, "0-2,8\n"), (1, "3-5\n"), (2, "x-y\n"), (3, "\n")):
        folder = tmp_path / "devices" / "system" / "node" / f"node{numa_node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(text)
    assert numa_nodes_of_cpus(tmp_path) == {0: 0, 1: 0, 2: 0, 8: 0, 3: 1, 4: 1, 5: 1}
    assert numa_nodes_of_cpus(tmp_path / "nowhere") == {}
