"""What is found around a kubelet, and what it means for the node."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.kubelet.surroundings import cdi_names, topology_policy
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode, write_cdi


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
    assert cdi_names(tmp_path, "nvidia.com/gpu") == {"GPU-a", "GPU-b", "GPU-c"}
    assert cdi_names(tmp_path / "nowhere", "nvidia.com/gpu") == frozenset()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("topologyManagerPolicy: single-numa-node\n", "single-numa-node"),
        ("kind: KubeletConfiguration\n", "none"),
        ("[", "none"),
    ],
)
def test_topology_policy_is_the_kubelets_own(tmp_path: Path, text: str, policy: str) -> None:
    """As far as its configuration can be read; `none` is the default."""
    (tmp_path / "config.yaml").write_text(text)
    assert topology_policy(tmp_path / "config.yaml") == policy
    assert topology_policy(tmp_path / "nowhere.yaml") == "none"
