"""Topologies that differ in UUIDs alone are read once, and say just what they would say by themselves."""

from __future__ import annotations

import gc
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.objects import topologies as module
from extender.cluster.objects.topologies import Topologies
from tests.strategies.topologies import topologies
from topology.annotations.codec import decode_topology, digest, encode_topology
from topology.errors import PayloadError
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.node.nics import nics_by_gpu
from topology.placement.topology_classes import TopologyClasses


def renamed(node: NodeTopology, seed: int) -> NodeTopology:
    """Return it with other UUIDs, which NVML might have made."""
    uuids = [f"GPU-{UUID(int=(seed << 64) + each)}" for each in range(len(node.gpus))]
    return replace(node, gpus=tuple(replace(gpu, uuid=uuid) for gpu, uuid in zip(node.gpus, uuids, strict=True)))


@pytest.mark.slow
@given(topologies(), st.integers(1, 2**32), st.integers(1, 2**32))
def test_the_second_of_a_kind_says_what_it_says_by_itself(node: NodeTopology, one: int, other: int) -> None:
    """GPUs, slices, class, domain and NICs, whatever else the topology has."""
    classes = TopologyClasses()
    read = Topologies(classes).read
    first = read(encode_topology(renamed(node, one)))
    text = encode_topology(renamed(node, other))
    second, alone = read(text), decode_topology(text)
    assert second.kind is first.kind
    assert second.devices == alone.devices
    assert second.uuids == tuple(gpu.uuid for gpu in alone.gpus)
    assert second.topology_class is classes.of(alone)
    assert second.nics == nics_by_gpu(alone)
    assert second.domain == (f"{alone.domain.cluster_uuid}.{alone.domain.clique_id}" if alone.domain else None)
    assert second.digest == digest(text)


def test_a_text_of_a_known_kind_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what makes thousands of nodes cheap."""
    read = Topologies(TopologyClasses()).read
    first = read(encode_topology(machine("hgx-h100", host="a")))
    monkeypatch.setattr(module, "decode_topology", None)
    assert read(encode_topology(machine("hgx-h100", host="b"))).kind is first.kind


def test_one_uuid_twice_is_refused_also_where_the_kind_is_known() -> None:
    """Spelled alike or not: a reader sees through JSON's escapes."""
    node = machine("dgx-a100", host="a")
    text = encode_topology(node)
    one, other = node.gpus[0].uuid, node.gpus[1].uuid
    escaped = text.replace(f'"{other}"', f'"\\u0047{other[1:]}"')
    read = Topologies(TopologyClasses()).read
    known = read(text), read(escaped)
    assert known[0].devices == known[1].devices
    for twice in (text.replace(other, one), escaped.replace(one, other)):
        with pytest.raises(PayloadError, match="the same UUID twice"):
            read(twice)


def test_a_uuid_elsewhere_in_the_text_is_not_taken_for_a_gpus_own() -> None:
    """Keys that this version does not know may hold anything, even what a GPU is called."""
    read = Topologies(TopologyClasses()).read
    one, other = (machine("dgx-a100", host=host) for host in ("a", "b"))
    elsewhere = (one.gpus[0].uuid, machine("dgx-a100", host="c").gpus[0].uuid)
    texts = [
        f'{encode_topology(node)[:-1]},"later":{{"uuid":"{uuid}"}}}}'
        for node, uuid in zip((one, other), elsewhere, strict=True)
    ]
    known = [read(text) for text in texts]
    assert [each.devices for each in known] == [one.devices, other.devices]


def test_a_kind_that_no_node_is_of_is_forgotten() -> None:
    """A node whose topology changes all the time leaves nothing behind."""
    classes = TopologyClasses()
    read = Topologies(classes).read
    found = read(encode_topology(machine("dgx-a100")))
    assert len(classes) == 1
    del found
    gc.collect()
    assert len(classes) == 0
