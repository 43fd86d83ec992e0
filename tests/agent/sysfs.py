"""Build a pretend /sys: PCI functions below root complexes and bridges, RDMA devices, as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path


class SysTree:
    """Grows below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def pci(
        self,
        address: str,
        *,
        above: tuple[str, ...] = ("pci0000:00", "0000:00:01.0"),
        numa_node: int = -1,
        cpus: str = "",
        pci_class: int = 0x030200,
    ) -> Path:
        """Add a function below a root complex and bridges."""
        folder = self.root.joinpath("devices", *above, address)
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{numa_node}\n")
        (folder / "local_cpulist").write_text(f"{cpus}\n")
        (folder / "class").write_text(f"0x{pci_class:06x}\n")
        link = self.root / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        return folder

    def rdma(self, name: str, pci: Path) -> None:
        """Add an RDMA device on a PCI function."""
        folder = pci / "infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(pci)
        link = self.root / "class/infiniband" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
