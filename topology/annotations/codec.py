"""The topology of a node, to text and back; its status is in `status_codec`.

What most parts share is said once. `every_gpu` and `every_pair` hold what all have in common, `other_pairs` and
`other_nic_pairs` the path of all pairs that are not listed. A whole 8-GPU machine fits into 4 KiB that way and stays
readable. `null` and absence mean "unknown". Pairs that carry NVLinks of their own are always listed. On nodes of more
than `ALL_LISTED` GPUs `near` holds groups of GPUs all of whose pairs are that near. 2,556 pairs of 72 GPUs would not fit.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from topology.annotations.payload import Schema, Text, Uuid, known, read, write
from topology.annotations.slices_codec import Profile, Slices, decode_slices, encode_slices
from topology.errors import PayloadError
from topology.node.links import PciePath
from topology.node.model import MAX_GPUS, MAX_NICS, MAX_NVLINKS, Gpu, Link, Nic, NodeTopology, NvlinkDomain

ALL_LISTED = 24
"""GPUs up to which nothing is said in groups: extenders that do not read `near` close larger nodes."""

Index = Annotated[int, Field(ge=0, le=1023)]
NumaNode = Annotated[int, Field(ge=0, le=4095)]
Links = Annotated[int, Field(ge=0, le=MAX_NVLINKS)]
Path = Literal["INTERNAL", "PIX", "PXB", "PHB", "NODE", "SYS"]


class _GpuTraits(Schema):
    """What GPUs of one node usually have in common."""

    numa_affinity: Text | None = None
    cpu_affinity: Text | None = None
    compute_capability: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$")] | None = None
    switch_links: Links = 0
    pcie_generation: Annotated[int, Field(ge=1, le=15)] | None = None
    pcie_width: Annotated[int, Field(ge=1, le=64)] | None = None
    mig_enabled: bool = False
    ecc_enabled: bool | None = None
    memory_numa_node: NumaNode | None = None


class _Gpu(_GpuTraits):
    uuid: Uuid
    index: Index
    model: Text
    memory_bytes: Annotated[int, Field(ge=0, le=2**50)] | None = None
    pci: Uuid | None = None
    numa_node: NumaNode | None = None


class _PairTraits(Schema):
    """What pairs of one node usually have in common."""

    p2p: bool | None = None


class _Pair(_PairTraits):
    path: Path | None = None
    reason: Text | None = None


class _Link(_Pair):
    a: Index
    b: Index
    nvlinks: Links = 0


class _Nic(Schema):
    name: Text
    device: Text | None = None
    pci: Uuid | None = None
    numa_node: NumaNode | None = None
    paths: dict[Path, list[Index]] = Field(default_factory=dict)


class _Domain(Schema):
    cluster_uuid: Uuid
    clique_id: Annotated[int, Field(ge=0, le=2**32 - 1)]


NicPair = Annotated[list[Annotated[int, Field(ge=0, lt=MAX_NICS)]], Field(min_length=2, max_length=2)]
"""Places in `nics`, the lower one first."""


Near = Annotated[list[Index], Field(min_length=2, max_length=MAX_GPUS)]
"""Indexes of GPUs all of whose pairs are at most so far apart; beyond that they are as `other_pairs` has it."""


class _Topology(Schema):
    gpus: list[_Gpu] = Field(max_length=MAX_GPUS)
    every_gpu: _GpuTraits = _GpuTraits()
    every_pair: _PairTraits = _PairTraits()
    links: list[_Link] = Field(default_factory=list)
    near: dict[Path, list[Near]] = Field(default_factory=dict)
    other_pairs: _Pair | None = None
    nics: list[_Nic] = Field(default_factory=list, max_length=MAX_NICS)
    nic_pairs: dict[Path, list[NicPair]] = Field(default_factory=dict)
    other_nic_pairs: Path | None = None
    domain: _Domain | None = None
    driver_version: Text | None = None
    cuda_version: Text | None = None
    cpu_vendor: Text | None = None
    cpu_model: Text | None = None
    mig_profiles: dict[Text, Profile] = Field(default_factory=dict, max_length=MAX_GPUS)
    slices: Slices = Field(default_factory=list)


def encode_topology(node: NodeTopology) -> str:
    """Return the canonical text: equal topologies give equal texts, whatever the order of their links.

    Raises `PayloadError` for a value that `decode_topology` would refuse, or a text beyond the 32 KiB cap.
    """
    shared = _shared_traits(node.gpus)
    payload: dict[str, Any] = {"gpus": [_encode_gpu(gpu, shared) for gpu in node.gpus]}
    if shared:
        payload["every_gpu"] = _spelled(shared)
    payload |= _encode_links(node) | _encode_nics(node)
    if node.domain:
        payload["domain"] = {"cluster_uuid": node.domain.cluster_uuid, "clique_id": node.domain.clique_id}
    payload |= known({key: getattr(node, key) for key in ("driver_version", "cuda_version", "cpu_vendor", "cpu_model")})
    payload |= encode_slices(node.slices)
    return write(_Topology, payload)


def decode_topology(text: str | bytes) -> NodeTopology:
    """Return the topology, its links by index and only those that carry something; raises `PayloadError`."""
    payload = read(_Topology, text)
    shared = payload.every_gpu.model_dump(exclude_unset=True)
    gpus = tuple(_decode_gpu(shared | gpu.model_dump(exclude_unset=True)) for gpu in payload.gpus)
    # The model checks the listed links under the positions that the payload gives them, before the others join them.
    listed = NodeTopology(gpus, tuple(_decode_link(link, payload) for link in payload.links))
    _check_near(payload)
    return NodeTopology(
        gpus=gpus,
        links=_all_links(listed, payload),
        nics=_decode_nics(payload),
        domain=NvlinkDomain(**payload.domain.model_dump()) if payload.domain else None,
        driver_version=payload.driver_version,
        cuda_version=payload.cuda_version,
        cpu_vendor=payload.cpu_vendor,
        cpu_model=payload.cpu_model,
        slices=decode_slices(payload.mig_profiles, payload.slices),
    )


def digest(text: str) -> str:
    """Return 32 hex digits that stand for a payload's text.

    >>> digest('{"v":1}')
    'afbf9d0f3560b0fd7795e81c42a0a79e'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_TRAITS = tuple(_GpuTraits.model_fields)
_UNSAID = {field.name: None if field.default is MISSING else field.default for field in fields(Gpu)}


def _shared_traits(gpus: tuple[Gpu, ...]) -> dict[str, Any]:
    if len(gpus) < 2:
        return {}
    first = {name: getattr(gpus[0], name) for name in _TRAITS}
    return {
        name: value
        for name, value in first.items()
        if value != _UNSAID[name] and all(getattr(gpu, name) == value for gpu in gpus)
    }


def _encode_gpu(gpu: Gpu, shared: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: getattr(gpu, name) for name in _TRAITS if name not in shared}
    return {
        # The contract with other readers: these six are always there.
        "uuid": gpu.uuid,
        "index": gpu.index,
        "model": gpu.model,
        "memory_bytes": gpu.memory_bytes,
        "pci": gpu.pci,
        "numa_node": gpu.numa_node,
    } | _spelled({name: value for name, value in own.items() if value != _UNSAID[name]})


def _spelled(traits: dict[str, Any]) -> dict[str, Any]:
    if "compute_capability" in traits:
        traits["compute_capability"] = "{}.{}".format(*traits["compute_capability"])
    return traits


def _decode_gpu(said: dict[str, Any]) -> Gpu:
    if (capability := said.get("compute_capability")) is not None:
        major, minor = capability.split(".")
        said["compute_capability"] = (int(major), int(minor))
    return Gpu(**said)


def _facts(link: Link) -> dict[str, Any]:
    path = None if link.path is None else link.path.name
    return known({"path": path, "p2p": link.p2p, "reason": link.reason})


def _encode_links(node: NodeTopology) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    pairs = list(node.pairs.values())
    p2p = {link.p2p for link in pairs}
    if len(pairs) > 1 and len(p2p) == 1 and None not in p2p:
        payload["every_pair"] = {"p2p": pairs[0].p2p}
        pairs = [replace(link, p2p=None) for link in pairs]
    plain = [_facts(link) for link in pairs if not link.nvlinks]
    folded: dict[str, Any] = {}
    near: dict[str, list[list[int]]] = {}
    if all(plain):  # only when something is known of every pair may some be left out
        folded = dict(next(iter(Counter(tuple(facts.items()) for facts in plain).most_common(1)), ((), 0))[0])
        near = _near(node, folded) if len(node) > ALL_LISTED else {}
    said = {pair: folded | {"path": name} for name, pair in _pairs_of(near)}
    payload["links"] = [
        {"a": link.a, "b": link.b} | ({"nvlinks": link.nvlinks} if link.nvlinks else {}) | _facts(link)
        for link in pairs
        if link.nvlinks or _facts(link) != said.get((link.a, link.b), folded)
    ]
    return payload | ({"near": near} if near else {}) | ({"other_pairs": folded} if folded else {})


def _near(node: NodeTopology, folded: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    """Return the groups of GPUs that are this near to each other, nearest first, where it is groups that they come in."""
    found: dict[str, list[list[int]]] = {}
    for path in PciePath:
        if path.name == folded.get("path"):
            break
        within = [[i] for i in range(len(node))]
        for (i, j), link in node.pairs.items():
            if link.path is not None and link.path <= path:
                within[i].append(j)
                within[j].append(i)
        groups = dict.fromkeys(tuple(sorted(each)) for each in within if len(each) > 1)
        if sum(map(len, groups)) == len(set().union(*groups)):
            found |= {path.name: [[node.indexes[i] for i in group] for group in groups]} if groups else {}
    return found


def _pairs_of(near: Mapping[Any, Sequence[Sequence[int]]]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the pairs of the groups with their paths, farthest first, as the nearest counts."""
    for path in sorted(PciePath, reverse=True):
        for group in near.get(path.name, ()):
            for pair in combinations(sorted(group), 2):
                yield path.name, pair


def _decode_link(link: _Link, payload: _Topology) -> Link:
    p2p = payload.every_pair.p2p if link.p2p is None else link.p2p
    return Link(link.a, link.b, link.nvlinks, _path(link.path), p2p, link.reason)


def _all_links(node: NodeTopology, payload: _Topology) -> tuple[Link, ...]:
    other = payload.other_pairs or _Pair()
    path, p2p = _path(other.path), payload.every_pair.p2p if other.p2p is None else other.p2p
    listed = {(link.a, link.b): link for link in node.links}
    pairs = combinations((gpu.index for gpu in node.gpus), 2)
    near = {pair: PciePath[name] for name, pair in _pairs_of(payload.near)}
    every = (listed.get(pair) or Link(*pair, 0, near.get(pair, path), p2p, other.reason) for pair in pairs)
    return tuple(link for link in every if not link.is_unknown)


def _check_near(payload: _Topology) -> None:
    known = {gpu.index for gpu in payload.gpus}
    for name, groups in payload.near.items():
        grouped = [index for group in groups for index in group]
        if not known.issuperset(grouped):
            raise PayloadError(f"$.near.{name}", "a GPU that is not listed")
        if len(set(grouped)) < len(grouped):
            raise PayloadError(f"$.near.{name}", "the same GPU twice")


def _path(name: Path | None) -> PciePath | None:
    return None if name is None else PciePath[name]


def _grouped(paths: Iterable[tuple[Any, PciePath]]) -> dict[str, list[Any]]:
    """Near to far, so that the nearest stands first."""
    groups: dict[PciePath, list[Any]] = {}
    for other, path in paths:
        groups.setdefault(path, []).append(other)
    return {path.name: groups[path] for path in sorted(groups)}


def _encode_nics(node: NodeTopology) -> dict[str, Any]:
    if not node.nics:
        return {}
    place = {nic.name: position for position, nic in enumerate(node.nics)}
    pairs = {
        (min(place[nic.name], place[other]), max(place[nic.name], place[other])): path
        for nic in node.nics
        for other, path in nic.nic_paths
    }
    folded = _most_common_path(node, pairs)
    nics = []
    for nic in node.nics:
        said = {"name": nic.name, "device": nic.device, "pci": nic.pci, "numa_node": nic.numa_node}
        paths = _grouped((index, path) for index, path in sorted(nic.paths) if path != folded)
        nics.append(known(said) | ({"paths": paths} if paths else {}))
    payload: dict[str, Any] = {"nics": nics}
    if listed := _grouped((list(pair), path) for pair, path in sorted(pairs.items()) if path != folded):
        payload["nic_pairs"] = listed
    if folded is not None:
        payload["other_nic_pairs"] = folded.name
    return payload


def _most_common_path(node: NodeTopology, pairs: Mapping[tuple[int, int], PciePath]) -> PciePath | None:
    """Only when every path from a NIC to a GPU or NIC is known may some be left out."""
    count = len(node.nics)
    known = Counter(path for nic in node.nics for _, path in nic.paths) + Counter(pairs.values())
    if not known or known.total() != count * len(node.gpus) + count * (count - 1) // 2:
        return None
    return min(known, key=lambda path: (-known[path], path))


def _decode_nics(payload: _Topology) -> tuple[Nic, ...]:
    between: list[dict[int, PciePath]] = [{} for _ in payload.nics]
    for name, pairs in payload.nic_pairs.items():
        for first, second in pairs:
            here = f"$.nic_pairs.{name}"
            if not first < second < len(payload.nics):
                raise PayloadError(here, "a pair names two listed NICs, the first one first")
            if second in between[first]:
                raise PayloadError(here, "the same pair twice")
            between[first][second] = between[second][first] = PciePath[name]
    return tuple(_decode_nic(payload, position, between[position]) for position in range(len(payload.nics)))


def _decode_nic(payload: _Topology, position: int, between: dict[int, PciePath]) -> Nic:
    nic = payload.nics[position]
    paths: dict[int, PciePath] = {}
    for name, indexes in nic.paths.items():
        for index in indexes:
            if index in paths:
                raise PayloadError(f"$.nics[{position}].paths.{name}", "the same GPU twice")
            paths[index] = PciePath[name]
    if (rest := _path(payload.other_nic_pairs)) is not None:
        paths = {gpu.index: rest for gpu in payload.gpus} | paths
        between = dict.fromkeys(range(len(payload.nics)), rest) | between
    nic_paths = tuple((payload.nics[at].name, path) for at, path in sorted(between.items()) if at != position)
    return Nic(nic.name, nic.device, nic.pci, nic.numa_node, tuple(sorted(paths.items())), nic_paths)
