"""What is written of a node of 72 GPUs: it fits, and is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.strategies.large import nearly_regular, nvswitch, pcie_tree
from topology.annotations.codec import decode_topology, encode_topology
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import (
    Claim,
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    decode_ledger,
    decode_observed,
    decode_placement,
    encode_ledger,
    encode_observed,
    encode_placement,
)
from topology.annotations.status_codec import decode_status, encode_status
from topology.errors import PayloadError
from topology.node.links import Affinity, PciePath
from topology.node.model import MAX_NICS, Nic, NodeTopology
from topology.node.status import GpuStatus, NodeGpuStatus

UUIDS = [gpu.uuid for gpu in nvswitch(72).gpus]
NAMES = "n" * 60, "p" * 120, "c" * 40
"""Of namespace, pod and container: longer than most."""
POD = "c0ffee00-0000-4000-8000-{:012d}"


def reported(node: NodeTopology, count: int) -> NodeTopology:
    """Return the node with so many NICs, each beside a GPU, and with peer access within switches only."""
    nics = tuple(
        Nic(
            f"NIC{i}",
            f"mlx5_{i}",
            f"0000:{i:02x}:00.0",
            0,
            tuple((g.index, beside(node, i, g.index)) for g in node.gpus),
        )
        for i in range(count)
    )
    links = tuple(replace(link, p2p=link.path is PciePath.PIX) for link in node.links)
    return replace(node, nics=nics, links=links, driver_version="570.124.06", cuda_version="12.8")


def beside(node: NodeTopology, i: int, j: int) -> PciePath:
    return PciePath.PIX if i == j else node.path(i, j)


@pytest.mark.parametrize(
    ("node", "nics"),
    [(nvswitch(72), 64), (nvswitch(72, numa_nodes=2), 64), (nvswitch(72, numa_nodes=36), 64), (pcie_tree(4, 9, 2), 36)],
)
def test_a_topology_of_72_gpus_fits(node: NodeTopology, nics: int, figure: Callable[[str], None]) -> None:
    """With NICs, NUMA nodes and peer access; equal topologies are equal texts."""
    found = reported(node, nics)
    text = encode_topology(found)
    figure(f"72 GPUs and {nics} NICs: {len(text)} bytes")
    assert decode_topology(text) == found
    assert encode_topology(decode_topology(text)) == text
    assert len(encode_topology(node)) < MAX_BYTES / 2


@pytest.mark.slow
@given(nearly_regular(most=72))
def test_groups_of_groups_are_read_as_they_were_written(node: NodeTopology) -> None:
    """Whatever pairs are exceptions; nodes of up to 24 GPUs say nothing in groups, which extenders of before can read."""
    try:
        text = encode_topology(node)
    except PayloadError:
        assert len(node) > 24
        return
    assert decode_topology(text) == node
    assert ("near" in json.loads(text)) <= (len(node) > 24)


@pytest.mark.parametrize(
    ("near", "path"),
    [
        ({"PIX": [[0, 1], [1, 2]]}, "$.near.PIX"),
        ({"PIX": [[0, 0]]}, "$.near.PIX"),
        ({"NODE": [[0, 7]]}, "$.near.NODE"),
        ({"NODE": [[0]]}, "$.near.NODE[0]"),
        ({"NEAR": [[0, 1]]}, "$.near.NEAR"),
    ],
)
def test_groups_that_cannot_be_are_refused_with_their_path(near: dict[str, Any], path: str) -> None:
    """Nobody is in two groups of one kind, so groups cost no more than there are pairs."""
    gpus = [{"uuid": f"u{i}", "index": i, "model": "x"} for i in range(3)]
    with pytest.raises(PayloadError) as caught:
        decode_topology(json.dumps({"v": 1, "gpus": gpus, "near": near}))
    assert caught.value.path.startswith(path)


def test_the_nearest_group_counts_and_what_is_listed_before_any() -> None:
    """What no group has is as all other pairs."""
    document = json.loads(encode_topology(pcie_tree(4, 9, 2)))
    document["links"] = [{"a": 0, "b": 1, "path": "PXB"}]
    node = decode_topology(json.dumps(document))
    assert [node.path(0, j) for j in (1, 2, 4, 71)] == [PciePath.PXB, PciePath.PIX, PciePath.NODE, PciePath.SYS]


def test_records_of_72_single_gpus_fit() -> None:
    """Each claimed by a pod of its own, held by it, and sick."""
    namespace, name, container = NAMES
    claims = (
        Claim(uuid, POD.format(i), namespace, name, container, "123456789", exact=True) for i, uuid in enumerate(UUIDS)
    )
    ledger = Ledger(7, tuple(sorted(claims, key=lambda claim: claim.gpu)), POD.format(0))
    assert decode_ledger(encode_ledger(ledger)) == ledger
    observed = Observed(dict.fromkeys(UUIDS, Holder(*NAMES)), 7, dict.fromkeys(UUIDS, 3), "123")
    assert decode_observed(encode_observed(observed)) == observed
    placement = PlacementRecord(
        {"main": tuple(UUIDS)}, Affinity.NVLINK, nics=tuple(f"mlx5_{i}" for i in range(MAX_NICS))
    )
    assert decode_placement(encode_placement(placement)) == placement
    sick = (GpuStatus(uuid, healthy=False, reasons=("fell off the bus",), sick_since=1_700_000_000) for uuid in UUIDS)
    status = NodeGpuStatus(7, tuple(sick))
    assert decode_status(encode_status(status)) == status
