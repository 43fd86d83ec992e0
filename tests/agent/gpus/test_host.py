"""The kernel's view: PCI paths in nvidia-smi's words, RDMA devices, CPU; whatever is not there is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.gpus.host import Host, PciDevice, path_between
from tests.agent.conftest import Discover
from tests.agent.sysfs import SysTree
from topology.formats.matrix import print_matrix
from topology.node.links import PciePath

SWITCH = ("pci0000:16", "0000:16:01.0", "0000:17:00.0")
"""A root complex, its root port, and the upstream port of a PCIe switch."""


def device(*way: str, numa_node: int | None = None) -> PciDevice:
    """Return a function at the end of a way."""
    return PciDevice(way[-1], way, numa_node, None, None)


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        ((*SWITCH, "0000:18:00.0", "a"), (*SWITCH, "0000:18:08.0", "b"), PciePath.PIX),
        ((*SWITCH, "a"), (*SWITCH, "b"), PciePath.PIX),
        ((*SWITCH, "0000:18:00.0", "x", "y", "a"), (*SWITCH, "0000:18:08.0", "b"), PciePath.PXB),
        ((*SWITCH, "0000:18:00.0", "x", "a"), (*SWITCH, "0000:18:08.0", "b"), PciePath.PXB),
        ((*SWITCH, "0000:18:00.0", "a"), ("pci0000:16", "0000:16:02.0", "b"), PciePath.PHB),
    ],
)
def test_path_in_a_root_complex_counts_switches(
    first: tuple[str, ...], second: tuple[str, ...], path: PciePath
) -> None:
    """One switch is PIX, more are PXB, the host bridge is PHB."""
    assert path_between(device(*first), device(*second)) is path
    assert path_between(device(*second), device(*first)) is path


@pytest.mark.parametrize(
    ("first", "second", "path"), [(0, 0, PciePath.NODE), (0, 1, PciePath.SYS), (None, 1, None), (None, None, None)]
)
def test_path_between_root_complexes_is_their_numa_nodes(
    first: int | None, second: int | None, path: PciePath | None
) -> None:
    """An unknown node is never taken for the best or the worst."""
    assert path_between(device("pci0000:16", "a", numa_node=first), device("pci0000:97", "b", numa_node=second)) is path


def test_numa_node_of_minus_one_is_unknown(tmp_path: Path) -> None:
    """So says the kernel in virtual machines."""
    sys = SysTree(tmp_path)
    sys.pci("0000:07:00.0", numa_node=-1)
    found = Host(tmp_path).pci("00000000:07:00.0")
    assert found
    assert (found.address, found.numa_node, found.pci_class) == ("00000000:07:00.0", None, 0x030200)


def test_domains_beyond_sixteen_bits_are_found(tmp_path: Path) -> None:
    """NVML writes eight digits, the kernel as many as it takes."""
    SysTree(tmp_path).pci("10000:01:00.0")
    assert Host(tmp_path).pci("00010000:01:00.0") is not None


def test_rdma_devices_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Ten comes after nine; virtual functions and software devices are left out."""
    sys = SysTree(tmp_path)
    for number in (10, 9, 0):
        sys.rdma(f"mlx5_{number}", sys.pci(f"0000:{number + 16:02x}:00.0"))
    virtual = sys.pci("0000:10:00.2")
    (virtual / "physfn").symlink_to(tmp_path / "devices/pci0000:00/0000:00:01.0/0000:10:00.0")
    sys.rdma("mlx5_11", virtual)
    (tmp_path / "class/infiniband/rxe0").mkdir()
    assert [found.name for found in Host(tmp_path).rdma_devices()] == ["mlx5_0", "mlx5_9", "mlx5_10"]


def test_host_without_sysfs_knows_nothing_and_fails_nowhere(tmp_path: Path) -> None:
    """A container may hide all of it."""
    host = Host(tmp_path / "sys", tmp_path / "cpuinfo")
    assert (host.pci("00000000:07:00.0"), host.rdma_devices(), host.cpu()) == (None, (), (None, None))


@pytest.mark.parametrize(
    ("cpuinfo", "cpu"),
    [
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\nvendor_id\t: x\n", ("intel", "6/143")),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n", ("amd", "25/1")),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", ("power9", "POWER9")),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", ("arm", "0x41/0xd4f")),
        ("vendor_id : NewVendor\n", ("newvendor", None)),
        ("", (None, None)),
    ],
)
def test_cpu_is_told_in_the_words_of_the_bandwidth_model(
    cpuinfo: str, cpu: tuple[str | None, str | None], tmp_path: Path
) -> None:
    """The vendor decides the speed between sockets, family and model the Intel generation."""
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert Host(tmp_path, tmp_path / "cpuinfo").cpu() == cpu


def test_nics_are_placed_among_the_gpus(found: Discover, tmp_path: Path) -> None:
    """A DGX-1's four adapters, each below one of the PCIe switches, as nvidia-smi shows them."""
    sys = SysTree(tmp_path / "sys")
    for number, (root, node) in enumerate((("pci0000:00", 0), ("pci0000:00", 0), ("pci0000:80", 1), ("pci0000:80", 1))):
        bus = int(root[-2:], 16) + 5 + 4 * (number % 2)
        above = (root, f"0000:{root[-2:]}:0{number % 2 + 1}.0", f"0000:{bus:02x}:10.0")
        sys.rdma(f"mlx5_{number}", sys.pci(f"0000:{bus:02x}:00.0", above=above, numa_node=node))
        for gpu in (bus + 1, bus + 2):
            sys.pci(f"0000:{gpu:02x}:00.0", above=(*above[:2], f"0000:{bus:02x}:{gpu - bus:02x}.0"), numa_node=node)
    node_topology = found("dgx1v", Host(sys.root, tmp_path / "cpuinfo")).topology
    rows = [line.split() for line in print_matrix(node_topology, legend=False).splitlines()]
    assert [row[9:13] for row in rows[1:9]] == [
        *[["PIX", "PHB", "SYS", "SYS"]] * 2,
        *[["PHB", "PIX", "SYS", "SYS"]] * 2,
        *[["SYS", "SYS", "PIX", "PHB"]] * 2,
        *[["SYS", "SYS", "PHB", "PIX"]] * 2,
    ]
    assert [(nic.name, nic.device) for nic in node_topology.nics][:2] == [("NIC0", "mlx5_0"), ("NIC1", "mlx5_1")]


def test_more_nics_than_a_payload_holds_do_not_stop_it(found: Discover, tmp_path: Path) -> None:
    """The first 64 are enough; a topology that cannot be published would be none at all."""
    sys = SysTree(tmp_path / "sys")
    for number in range(70):
        sys.rdma(f"mlx5_{number}", sys.pci(f"0000:{number + 16:02x}:00.0"))
    assert len(found("dgx1v", Host(sys.root, tmp_path / "cpuinfo")).topology.nics) == 64


def test_kernel_fills_in_what_nvml_does_not_say(found: Discover, tmp_path: Path) -> None:
    """An old driver has no memory affinity, and a broken one no common ancestor: sysfs has both."""
    sys = SysTree(tmp_path / "sys")
    for bus in (0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A):
        sys.pci(f"0000:{bus:02x}:00.0", above=("pci0000:00", f"0000:00:{bus >> 4:02x}.0"), numa_node=bus >> 7)
    node = found("old_driver", Host(sys.root, tmp_path / "cpuinfo")).topology
    assert [gpu.numa_node for gpu in node.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
