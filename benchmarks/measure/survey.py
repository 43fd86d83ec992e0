"""Which machines of a cluster are to be measured, on which idle node, and which of their sets: pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from extender.cluster.node_view import NodeView
from topology.annotations.codec import decode_topology
from topology.bandwidth.measured import kind_of
from topology.bandwidth.predict import Bandwidth, Wiring, predict
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology
from topology.placement.measured_sets import kinds_of_sets

SIZES = range(2, 9)
_PLAIN_UUID = re.compile(r"[A-Za-z0-9-]{1,96}")
"""What is written into a shell script; all UUIDs of NVIDIA's are such."""


@dataclass(frozen=True, slots=True)
class Target:
    """One node, which stands for all machines of its kind."""

    node: str
    kind: str
    topology: NodeTopology
    sets: tuple[tuple[int, ...], ...]
    """Positions, in the order in which they are measured."""
    predicted: Mapping[tuple[int, ...], Bandwidth]

    @property
    def description(self) -> str:
        """How many GPUs of which models."""
        models = sorted({gpu.model for gpu in self.topology.gpus})
        return f"{len(self.topology)} x {', '.join(models)}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kind of machine that is not measured now, and why."""

    kind: str
    node: str
    """One of them."""
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be done."""

    targets: tuple[Target, ...]
    skipped: tuple[Skipped, ...]


def survey(views: Iterable[NodeView], *, known: Collection[str], max_jobs: int, max_sets: int) -> Survey:
    """Choose one idle node of each kind of machine, by name, and its sets; the kinds in `known` need no measuring."""
    by_kind: dict[str, list[tuple[NodeView, NodeTopology]]] = {}
    for view in sorted(views, key=lambda view: view.name):
        if view.payloads.topology.text is not None and view.payloads.topology.problem is None and len(view.uuids) > 1:
            topology = decode_topology(view.payloads.topology.text)
            by_kind.setdefault(kind_of(topology), []).append((view, topology))
    targets: list[Target] = []
    skipped: list[Skipped] = []
    for kind, there in sorted(by_kind.items(), key=lambda item: item[1][0][0].name):
        busy = {view.name: why_busy(view) for view, _ in there}
        idle = next(((view, topology) for view, topology in there if busy[view.name] is None), None)
        name = there[0][0].name
        if kind in known:
            skipped.append(Skipped(kind, name, "it is measured already"))
        elif idle is None:
            skipped.append(Skipped(kind, name, f"no such node is idle: {busy[name]}"))
        elif len(targets) == max_jobs:
            skipped.append(Skipped(kind, name, f"{max_jobs} machines are enough for one go"))
        else:
            targets.append(_target(idle[0].name, kind, idle[1], max_sets))
    return Survey(tuple(targets), tuple(skipped))


def why_busy(view: NodeView) -> str | None:
    """Return why a node is left alone: it is closed, or some of its GPUs are sick or in use; `None` where it is idle."""
    shape, free = view.shape, view.shape.free_gpus.bit_count()
    if shape.closed is not None:
        return shape.closed
    if free < len(view.uuids) or shape.hidden:
        return f"{free - shape.hidden} of {len(view.uuids)} GPUs are free"
    if view.holders or view.holdings or view.claims:
        return "pods hold GPUs there"
    if not all(_PLAIN_UUID.fullmatch(uuid) for uuid in view.uuids):
        return "its GPUs have UUIDs that are none of NVIDIA's"
    return None


def selected(view: NodeView, wanted: Mapping[str, str | None]) -> bool:
    """Whether a node has these labels; `None` stands for any value."""
    labels = view.node.metadata.labels or {}
    return all(key in labels and value in (None, labels[key]) for key, value in wanted.items())


def read_selector(text: str) -> dict[str, str | None]:
    """Read `gpu=h100,pool`: labels that must have a value, or be there; raises `ValueError`.

    >>> read_selector("gpu=h100,pool")
    {'gpu': 'h100', 'pool': None}
    """
    wanted: dict[str, str | None] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", key) or not re.fullmatch(r"[A-Za-z0-9._-]*", value):
            raise ValueError(f"{part!r} is neither LABEL nor LABEL=VALUE")
        wanted[key] = value if equals else None
    return wanted


def _target(name: str, kind: str, topology: NodeTopology, max_sets: int) -> Target:
    wiring = Wiring(topology)
    predicted: dict[tuple[int, ...], Bandwidth] = {}
    by_size: list[Sequence[tuple[int, ...]]] = []
    for size in SIZES:
        if size <= len(topology):
            masks = kinds_of_sets(topology, wiring, size)
            found = {members_of(mask): predict(wiring, mask)[0] for mask in masks}
            predicted |= found
            by_size.append(sorted(found, key=lambda gpus: (-predicted[gpus].point, gpus)))
    # The best of each size first, which is what pods get; then the next best of each.
    in_turn = [gpus for gpus in chain.from_iterable(zip_longest(*by_size)) if gpus is not None]
    return Target(name, kind, topology, tuple(in_turn[:max_sets]), predicted)


def uuids_of(target: Target, gpus: Iterable[int]) -> list[str]:
    """Return the UUIDs of a set."""
    return [target.topology.gpus[position].uuid for position in gpus]
