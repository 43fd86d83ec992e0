"""NVLinks are promised only where links, fabric and peer access all say yes; everything less has a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.gpus.host import Host
from agent.gpus.nvlinks import Downgrade
from tests.agent.conftest import Discover
from tests.agent.sysfs import SysTree
from topology.node.links import PciePath
from topology.node.model import Link, NodeTopology
from topology.node.status import LinkFault

Described = Callable[..., Path]


def link(node: NodeTopology, a: int, b: int) -> Link:
    """Return the link between the GPUs with these indexes."""
    return node.pairs[node.positions[a], node.positions[b]]


@pytest.mark.parametrize(
    ("machine", "pair", "reason"),
    [
        ("fabric_not_ready", (0, 7), Downgrade.FABRIC_NOT_READY),
        ("fabric_failed", (1, 2), Downgrade.FABRIC_FAILED),
        ("mig_on", (1, 2), Downgrade.MIG),
        ("nvlink_denied", (0, 1), Downgrade.REGKEY),
        ("switch_partitions", (0, 2), Downgrade.NOT_SUPPORTED),
        ("geforce_4090", (0, 1), Downgrade.GPU),
        ("geforce_3090_bridge", (0, 2), Downgrade.CHIPSET),
        ("dead_bridge_links", (2, 3), Downgrade.LINK_DOWN),
        ("dead_switch_links", (0, 2), Downgrade.LINK_DOWN),
        ("dead_switch_links", (0, 5), Downgrade.LINK_DOWN),
        ("dgx1v", (0, 7), None),
        ("hgx_h100", (0, 7), None),
    ],
)
def test_a_downgraded_pair_says_why(
    machine: str, pair: tuple[int, int], reason: Downgrade | None, found: Discover
) -> None:
    """The reasons are a fixed vocabulary, and a pair that is worth its wires has none."""
    assert link(found(machine).topology, *pair).reason == reason


def test_links_alone_do_not_make_a_fabric(found: Discover, described: Described) -> None:
    """One GPU that the fabric has not taken in yet reads 18 active links like all others, and reaches nobody."""
    node = found(described("hgx_h100", "fabric 4 not-started", "p2p 4 0-7 nvlink OK")).topology
    assert [node.label(0, 4), node.label(4, 7), node.label(0, 7)] == ["SYS", "NODE", "NV18"]
    assert node.gpus[4].switch_links == 0


@pytest.mark.parametrize("health", ["2", "1 0x10", "1 0x8000"])
def test_gpu_that_the_fabric_does_not_carry_for_certain_is_joined_to_none(
    health: str, found: Discover, described: Described
) -> None:
    """Alone it works, and takes pods of one GPU; the others keep their links."""
    node = found(described("hgx_h100", f"health 4 {health}"))
    assert [node.topology.label(0, 4), node.topology.label(4, 7), node.topology.label(0, 7)] == ["SYS", "NODE", "NV18"]
    assert link(node.topology, 0, 4).reason == Downgrade.FABRIC_UNHEALTHY
    assert node.status.gpus[4].healthy


@pytest.mark.parametrize("health", ["3", "1 0x1"])
def test_fabric_with_less_bandwidth_still_joins(health: str, found: Discover, described: Described) -> None:
    """How much less it does not say; people are told."""
    assert found(described("hgx_h100", f"health 4 {health}")).topology.label(0, 4) == "NV18"


def test_platforms_without_fabric_information_count_as_ready(found: Discover, described: Described) -> None:
    """A100 answers NOT_SUPPORTED, later drivers say "no fabric": neither has to wait for one."""
    assert found(described("dgx_a100", "fabric 0-7 none")).topology.label(0, 7) == "NV12"
    assert found("dgx_a100").topology.label(0, 7) == "NV12"


def test_a_gpu_without_peer_access_to_anybody_is_off_the_switch(found: Discover, described: Described) -> None:
    """So reads a DGX A100 whose fabric manager does not run: PCIe everywhere, and peer access over PCIe stays what it is."""
    node = found(described("dgx_a100", "p2p 0-7 0-7 nvlink NS")).topology
    assert {node.label(i, j) for i in range(8) for j in range(i)} == {"PXB", "SYS"}
    assert link(node, 0, 1) == Link(0, 1, 0, node.path(0, 1), p2p=True, reason=Downgrade.NOT_SUPPORTED)


def test_direct_links_that_nvml_denies_leave_peer_access_over_pcie(found: Discover, described: Described) -> None:
    """NVLink is one question, reading and writing are others."""
    node = found(described("dead_bridge_links", "p2p 0 1 nvlink NS")).topology
    assert link(node, 0, 1) == Link(0, 1, 0, PciePath.NODE, p2p=True, reason=Downgrade.NOT_SUPPORTED)


def test_mig_keeps_the_wires_in_the_topology(found: Discover, described: Described) -> None:
    """MIG is a mode: the links are still there for whoever turns it off."""
    node = found(described("dgx1v", "gpu 0 mig on")).topology
    assert (link(node, 0, 3).nvlinks, node.label(0, 3), node.gpus[0].mig_enabled) == (2, "PHB", True)


def test_links_sleep_and_stay_links(found: Discover, described: Described) -> None:
    """Idle links of Blackwell go to sleep; traffic wakes them."""
    assert found(described("gb200_tray", "link 1 0-17 sleeping")).topology.label(0, 1) == "NV18"
    assert found(described("gb200_tray", "link 1 0-17 traffic-disabled")).topology.label(0, 1) == "NODE"


def test_link_down_on_one_side_only_is_down(found: Discover, described: Described) -> None:
    """Two ends that disagree: as many links as both ends see."""
    assert found(described("dgx1v", "link 0 2 inactive")).topology.label(0, 3) == "NV1"


def test_side_that_cannot_see_is_told_by_the_other(found: Discover, described: Described) -> None:
    """Without far ends on one GPU its neighbours still name it."""
    for function in ("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkState"):
        node = found(described("dgx1v", f"fail {function} 0 UNKNOWN")).topology
        assert node.matrix == found("dgx1v").topology.matrix, function


def test_unreadable_far_ends_are_switches(found: Discover, described: Described) -> None:
    """In a virtual machine neither id nor type can be read; that is how NCCL takes it, too."""
    for form in ("empty", "sentinel", "unreadable"):
        assert (
            found(described("vm_unreadable_ids", f"remote 0-3 0-11 {form}".replace("0-3", "0"))).topology.label(0, 1)
            == "NV12"
        )


def test_far_end_without_a_type_is_told_by_its_pci_class(found: Discover, described: Described, tmp_path: Path) -> None:
    """A driver too old for device types: the kernel knows that the far end is an NVSwitch or a CPU's bridge."""
    sys = SysTree(tmp_path / "sys")
    for bus in range(0xC0, 0xC6):
        sys.pci(f"0000:{bus:02x}:00.0", pci_class=0x068000)
    host = Host(sys.root, tmp_path / "cpuinfo")
    old = described("dgx_a100", "fail nvmlDeviceGetNvLinkRemoteDeviceType 0-7 FUNCTION_NOT_FOUND")
    assert found(old, host).topology.label(0, 7) == "NV12"
    for bridge in ("0004:00:00.0", "0004:00:01.0", "0004:00:02.0"):
        sys.pci(bridge, pci_class=0x068001)
    old = described("power9_ac922", "fail nvmlDeviceGetNvLinkRemoteDeviceType 0-3 FUNCTION_NOT_FOUND")
    assert [gpu.switch_links for gpu in found(old, host).topology.gpus] == [0, 0, 0, 0]


def test_gpu_of_another_machine_is_no_peer(found: Discover, described: Described) -> None:
    """A far end that is a GPU which this machine does not see, as behind a container's or hypervisor's wall."""
    node = found(described("dgx1v", "gpu 7 pci 00000000:FF:00.0")).topology
    assert [node.label(3, 7), node.label(4, 7)] == ["SYS", "PHB"]


def test_bridges_to_the_cpu_are_not_counted(found: Discover) -> None:
    """A POWER9's three links to its CPU join no GPUs."""
    node = found("power9_ac922").topology
    assert [gpu.switch_links for gpu in node.gpus] == [0] * 4
    assert node.matrix[0] == ("X", "NV3", "SYS", "SYS")


def test_dead_links_are_faults_and_bare_bridges_are_none(found: Discover) -> None:
    """A link is a fault where another GPU of the model has it up; a card without its bridge has nothing wrong."""
    faults = found("dead_bridge_links").status.link_faults
    assert [(fault.gpu[:12], fault.link) for fault in faults] == [
        ("GPU-00000002", 10),
        ("GPU-00000002", 11),
        ("GPU-00000003", 10),
        ("GPU-00000003", 11),
    ]
    for machine in ("bare_bridges", "geforce_3090_bridge"):
        status = found(machine).status
        assert (status.link_faults, {gpu.reasons for gpu in status.gpus}) == ((), {()})


def test_links_that_are_down_on_every_gpu_are_not_there(found: Discover, described: Described) -> None:
    """A part of a chip's links may be wired nowhere on this board, and read inactive for ever."""
    assert found(described("dgx_a100", "bare 0-7 6")).status.link_faults == ()


def test_gpu_off_the_switch_says_so_once(found: Discover) -> None:
    """Twelve dead links are one fact about the GPU, and single ones are told by number."""
    status = found("dead_switch_links").status
    assert [gpu.reasons for gpu in status.gpus if gpu.reasons] == [("all nvlinks down",)]
    dead = [LinkFault("GPU-a1000000-0000-4000-8000-000000000002", number, "inactive") for number in (9, 10, 11)]
    assert list(status.link_faults) == dead


def test_a_denial_is_not_the_same_as_no_answer(found: Discover, described: Described) -> None:
    """A driver without the call does not say no; a call that fails does not say yes."""
    node = found(described("hgx_h100", "fail nvmlDeviceGetP2PStatus 0-7 FUNCTION_NOT_FOUND")).topology
    assert (node.label(0, 1), link(node, 0, 1).p2p) == ("NV18", None)
    node = found(described("hgx_h100", "fail nvmlDeviceGetP2PStatus 1 UNKNOWN")).topology
    assert (node.label(0, 1), link(node, 0, 1).reason) == ("NODE", Downgrade.NVML)
