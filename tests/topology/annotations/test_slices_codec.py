"""MIG devices in the topology payload: small, bounded, and nothing to whoever does not know of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from topology.annotations.codec import decode_topology, encode_topology
from topology.errors import PayloadError
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.node.slices import Slice


def cut(gpus: int = 8, each: int = 7) -> NodeTopology:
    """Return an HGX H100 whose GPUs are cut into the smallest slices."""
    node = machine("hgx-h100")
    slices = tuple(
        Slice(gpu, f"MIG-{gpu:08x}-{number:04x}-5000-8000-000000000000", "1g.10gb", 10**10, number, 1, number + 7, 0)
        for gpu in range(gpus)
        for number in range(each)
    )
    return replace(node, slices=slices)


def test_node_of_56_slices_stays_small() -> None:
    """Eight GPUs cut into seven slices each: less than 100 bytes for one, 40 of which are its name."""
    more_bytes = len(encode_topology(cut())) - len(encode_topology(cut(gpus=0)))
    assert more_bytes < 56 * 100
    assert decode_topology(encode_topology(cut())) == cut()


def test_node_without_slices_is_written_as_before() -> None:
    """A cluster without MIG sees no other payload, nor another digest."""
    assert not {"slices", "mig_profiles"} & json.loads(encode_topology(machine("hgx-h100"))).keys()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"gpu": 31}, "$.slices[0]"),
        ({"uuid": "MIG-00000000-0001-5000-8000-000000000000"}, "$.slices[1].uuid"),
        ({"profile": "9g.100gb"}, "$.slices[0]"),
        ({"profile": "all of it"}, "$.slices[0].profile"),
        ({"gi": 900}, "$.slices[0].gi"),
        ({"gi": 200}, "$.slices[1]"),
    ],
)
def test_slice_that_cannot_be_is_refused(change: dict[str, Any], path: str) -> None:
    """The reader is told where."""
    payload = json.loads(encode_topology(cut(gpus=1)))
    payload["slices"][0] |= change
    with pytest.raises(PayloadError) as refused:
        decode_topology(json.dumps(payload))
    assert refused.value.path == path
