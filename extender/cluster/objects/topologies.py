"""What topology payloads say, read once for all nodes whose texts differ in nothing but the UUIDs of their GPUs.

A cluster has thousands of nodes and a handful of kinds of machine. To read a text takes milliseconds, to see that another node's
said the same takes microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from weakref import WeakValueDictionary

from extender.cluster.objects.published_parts import PublishedParts
from topology.annotations.codec import decode_topology, digest
from topology.annotations.payload import check_size
from topology.errors import PayloadError
from topology.node.model import NodeTopology
from topology.node.nics import nics_by_gpu, nics_of
from topology.node.slices import Slice, overlaps
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import TopologyClasses

_UUID = re.compile(r'"uuid":"(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"')
"""As NVML has it, where it stands as a GPU's own: in a string quotes are escaped, so none is found inside of one."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class TopologyKind:
    """What texts say that differ in the UUIDs alone."""

    topology_class: TopologyClass
    devices: tuple[int | str, ...]
    """What pods can get, by position: which of the UUIDs in the text it has, or what it is called in all of them."""
    domain: str | None
    nics: tuple[tuple[str, ...], ...]
    overlaps: tuple[tuple[int, ...], ...] = ()
    """For each slice those that cannot be had beside it, where DRA publishes them."""

    @classmethod
    def of(cls, node: NodeTopology, uuids: list[str], classes: TopologyClasses) -> TopologyKind:
        """Return it by one of these texts, in which these UUIDs stand."""
        place = {uuid: number for number, uuid in enumerate(uuids)}
        domain = f"{node.domain.cluster_uuid}.{node.domain.clique_id}" if node.domain else None
        return cls(
            classes.of(node), tuple(place.get(device, device) for device in node.devices), domain, nics_by_gpu(node)
        )

    def named(self, uuids: list[str]) -> tuple[str, ...]:
        """Return the devices of the node in whose text these UUIDs stand."""
        return tuple(device if isinstance(device, str) else uuids[device] for device in self.devices)


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """What a topology payload comes down to: the GPUs by name, and the class that plans for them."""

    devices: tuple[str, ...]
    """What pods can get, by position: the GPUs, then the MIG slices."""
    digest: str
    """Of the text."""
    kind: TopologyKind
    overlaps: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """MIG slice that is made on demand → the others that cannot be had beside it."""

    @property
    def topology_class(self) -> TopologyClass:
        """The class that plans for them."""
        return self.kind.topology_class

    @property
    def uuids(self) -> tuple[str, ...]:
        """The GPUs by position."""
        return self.devices[: len(self.kind.nics)]

    @property
    def slices(self) -> dict[str, str]:
        """MIG slice → its GPU."""
        node = self.topology_class.node
        places = zip(self.devices[len(node) :], node.slices, strict=True)
        return {uuid: self.devices[node.positions[mig_slice.gpu]] for uuid, mig_slice in places}

    @property
    def domain(self) -> str | None:
        """The NVLink domain across nodes, as GPU Feature Discovery's label has it: `CLUSTER.CLIQUE`."""
        return self.kind.domain

    @property
    def nics(self) -> tuple[tuple[str, ...], ...]:
        """RDMA devices under the PCIe switch of each GPU, by position."""
        return self.kind.nics

    @property
    def memory_gib(self) -> dict[str, int]:
        """GPU → its whole memory."""
        gpus = self.topology_class.node.gpus
        return {uuid: (gpu.memory_bytes or 0) >> 30 for uuid, gpu in zip(self.uuids, gpus, strict=True)}

    def nics_near(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return the RDMA devices under the switches of these GPUs, in their order."""
        return nics_of(self.nics[self.uuids.index(gpu)] for gpu in gpus)


class Topologies:
    """Reads topology payloads; `classes` compiles those that are of a new kind."""

    def __init__(self, classes: TopologyClasses) -> None:
        self._classes = classes
        self._kinds: WeakValueDictionary[bytes, TopologyKind] = WeakValueDictionary()
        """By what their texts have in common; those that some node still is of."""
        self._cut: WeakValueDictionary[tuple[TopologyKind, tuple[Slice, ...]], TopologyKind] = WeakValueDictionary()
        """The same with slices that a DRA driver publishes."""

    def read(self, text: str) -> NodeGpus:
        """Return what a text says; raises `PayloadError`."""
        check_size(text)
        between, uuids = (parts := _UUID.split(text))[::2], parts[1::2]
        common = '"uuid"'.join(between) if len(set(uuids)) == len(uuids) else text
        key = sha256(common.encode()).digest()
        kind = self._kinds.get(key)
        devices = kind.named(uuids) if kind else ()
        if kind is None or len(set(devices)) < len(devices):  # no node has one UUID twice: whoever reads says so
            node = decode_topology(text)
            kind = self._kinds[key] = TopologyKind.of(node, uuids, self._classes)
            devices = node.devices
        return NodeGpus(devices, digest(text), kind)

    def with_parts(self, gpus: NodeGpus, parts: PublishedParts) -> NodeGpus:
        """Return the same with the MIG slices that a DRA driver publishes, and no others; none where there are too many."""
        slices, uuids = parts.cut_out_of(gpus.kind.topology_class.node, gpus.uuids)
        try:
            kind = self._kind_with(gpus.kind, slices)
        except PayloadError:
            kind, uuids = self._kind_with(gpus.kind, ()), ()
        overlaps = {
            uuid: frozenset(uuids[i] for i in others)
            for uuid, others, each in zip(uuids, kind.overlaps, kind.topology_class.node.slices, strict=True)
            if each.on_demand
        }
        return NodeGpus((*gpus.uuids, *uuids), gpus.digest, kind, overlaps)

    def _kind_with(self, kind: TopologyKind, slices: tuple[Slice, ...]) -> TopologyKind:
        known = self._cut.get((kind, slices))
        if known is None:
            topology_class = self._classes.of(replace(kind.topology_class.node, slices=slices))
            known = replace(kind, topology_class=topology_class, devices=(), overlaps=overlaps(slices))
            self._cut[kind, slices] = known
        return known
