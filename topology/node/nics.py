"""Which RDMA devices stand under the PCIe switch of each GPU."""

from __future__ import annotations

from collections.abc import Iterable

from topology.node.links import PciePath
from topology.node.model import NodeTopology


def nics_by_gpu(node: NodeTopology) -> tuple[tuple[str, ...], ...]:
    """Return the kernel's names of the nearest RDMA devices under each GPU's own switch, by position; there may be none.

    >>> from topology.formats.catalog import machine
    >>> nics_by_gpu(machine("hgx-h100"))[:2]
    (('mlx5_0',), ('mlx5_1',))
    """
    near: dict[int, dict[PciePath, list[str]]] = {gpu.index: {} for gpu in node.gpus}
    for nic in node.nics:
        for index, path in nic.paths:
            if path <= PciePath.PXB:
                near[index].setdefault(path, []).append(nic.device or nic.name)
    return tuple(tuple(by_path[min(by_path)]) if by_path else () for by_path in near.values())


def rails(node: NodeTopology) -> tuple[int, ...]:
    """Return for each GPU the mask of those that share a nearest RDMA device with it, itself among them; 0: it has none.

    >>> from topology.formats.catalog import machine
    >>> [bin(gpus) for gpus in rails(machine("dgx-1v"))[:3]]
    ['0b11', '0b11', '0b1100']
    """
    near = [frozenset(nics) for nics in nics_by_gpu(node)]
    return tuple(sum(1 << i for i, theirs in enumerate(near) if mine & theirs) for mine in near)


def nics_of(nics: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return each of these devices once, in the order in which GPUs name them first.

    >>> nics_of([("mlx5_2",), ("mlx5_0",), ("mlx5_2",)])
    ('mlx5_2', 'mlx5_0')
    """
    return tuple(dict.fromkeys(name for names in nics for name in names))
