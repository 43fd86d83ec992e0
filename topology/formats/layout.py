"""Where the parts of a node stand in a drawing: pure geometry, in pixels, the same for the same node.

NUMA nodes are boxes beside each other, PCIe switches boxes inside them, GPUs stand on one line inside these. More than
eight GPUs, or a mesh that crosses the sockets, take two rows that mirror each other. Arcs between neighbours leave
outwards, what joins the rows runs between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topology.node.links import PciePath
from topology.node.model import Gpu, Nic, NodeTopology

GPU_SIZE: Final = 60.0
MARGIN: Final = 28.0
HEADER: Final = 66.0
FOOTER: Final = 50.0
_PAD: Final = 12.0
_GAP: Final = 16.0
_LINK_GAP: Final = 44.0
_NUMA_GAP: Final = 24.0
_CAPTION: Final = 34.0
_NIC: Final = 18.0
_NARROW: Final = 32.0
_ROW_GAP: Final = 96.0
_RIBBON: Final = 58.0
_SWITCH: Final = 38.0
_MIN_WIDTH: Final = 480.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; `x`, `y` is its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        """Return the middle from left to right."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Return the lower edge."""
        return self.y + self.height


@dataclass(frozen=True, slots=True)
class NumaBox:
    """One NUMA node, its captions where arcs do not pass."""

    box: Box
    name: str
    cpus: str
    caption_y: float


@dataclass(frozen=True, slots=True)
class BridgeBox:
    """GPUs and NICs that meet below one PCIe switch (`PIX`) or several (`PXB`)."""

    box: Box
    path: PciePath


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all parts."""

    width: float
    height: float
    gpus: dict[int, Box]
    """By position."""
    rows: tuple[tuple[int, ...], ...]
    """Positions from left to right."""
    numa: tuple[NumaBox, ...]
    bridges: tuple[BridgeBox, ...]
    nics: tuple[tuple[tuple[str, ...], Box], ...]
    """Names and place; where there is no room for all, they share one."""
    switch: Box | None

    def is_mirrored(self, position: int) -> bool:
        """Whether a GPU stands in the lower row, whose outside is below."""
        return len(self.rows) > 1 and position in self.rows[1]


@dataclass(frozen=True, slots=True)
class _Group:
    """A PCIe subtree: positions and smaller groups, and the NICs that hang here."""

    path: PciePath
    parts: tuple[int | _Group, ...]
    nics: tuple[str, ...] = ()

    def positions(self) -> Iterator[int]:
        for part in self.parts:
            if isinstance(part, int):
                yield part
            else:
                yield from part.positions()


@dataclass(frozen=True, slots=True)
class _Numa:
    name: str
    cpus: str
    root: _Group


def lay_out(node: NodeTopology) -> Layout:
    """Return the places of all parts of `node`."""
    rows = _rows(node, [_numa(node, positions) for positions in _numa_groups(node)])
    plan = _Plan(node)
    plan.draw(rows)
    width = max(_MIN_WIDTH, plan.right + MARGIN)
    layout = Layout(
        width=width,
        height=plan.bottom + FOOTER,
        gpus=plan.gpus,
        rows=tuple(tuple(at for numa in row for at in numa.root.positions()) for row in rows),
        numa=tuple(plan.numa),
        bridges=tuple(plan.bridges),
        nics=tuple(plan.nics),
        switch=plan.switch,
    )
    return _shifted(layout, (width - plan.right - MARGIN) / 2)


def has_arc(layout: Layout, i: int, j: int) -> bool:
    """Whether two GPUs of one row are too far from each other for a straight line."""
    row = next(row for row in layout.rows if i in row)
    return j in row and abs(row.index(i) - row.index(j)) > 1


def _numa_groups(node: NodeTopology) -> list[list[int]]:
    """GPUs by NUMA node; where that is not known by CPU list, so that a matrix without that column still shows sockets."""
    groups: dict[tuple[int | None, str | None], list[int]] = {}
    for position, gpu in enumerate(node.gpus):
        key = (gpu.numa_node, gpu.cpu_affinity if gpu.numa_node is None else None)
        groups.setdefault(key, []).append(position)
    return list(groups.values())


def _numa(node: NodeTopology, positions: Sequence[int]) -> _Numa:
    first: Gpu = node.gpus[positions[0]]
    known = first.numa_node is not None
    name = f"NUMA node {first.numa_node}" if known else "NUMA node not known"
    cpus = f"CPUs {first.cpu_affinity}" if first.cpu_affinity else ""
    return _Numa(name, cpus, _group(node, PciePath.SYS, positions))


def _group(node: NodeTopology, path: PciePath, positions: Sequence[int]) -> _Group:
    """Put GPUs (and NICs) that share a PCIe switch into smaller groups, at most two deep."""
    nics = tuple(nic.name for nic in node.nics if _hangs_at(nic, path, [node.gpus[at].index for at in positions]))
    if path <= PciePath.PIX:
        return _Group(path, tuple(positions), nics)
    nearer = PciePath.PXB if path > PciePath.PXB else PciePath.PIX
    parts: list[int | _Group] = []
    left = list(positions)
    while left:
        together = [left.pop(0)]
        for other in list(left):
            if any(_known_path(node, at, other) <= nearer for at in together):
                together.append(other)
                left.remove(other)
        smaller = _group(node, nearer, together)
        # A group that only wraps another one, or a single GPU, is no place of its own.
        if not smaller.nics and len(smaller.parts) == 1:
            parts.append(smaller.parts[0])
        else:
            parts.append(smaller)
    return _Group(path, tuple(parts), nics)


def _hangs_at(nic: Nic, path: PciePath, indexes: Sequence[int]) -> bool:
    """Whether the NIC is `path` away from its nearest GPU, and no farther from all of these."""
    paths = dict(nic.paths)
    near = [paths.get(index, PciePath.SYS) for index in indexes]
    if path <= PciePath.PIX:
        return all(found <= PciePath.PIX for found in near)
    return path == min(paths.values(), default=None) == PciePath.PXB and all(found <= path for found in near)


def _known_path(node: NodeTopology, i: int, j: int) -> PciePath:
    path = node.pairs[min(i, j), max(i, j)].path
    return PciePath.SYS if path is None else path


def _rows(node: NodeTopology, numas: list[_Numa]) -> list[list[_Numa]]:
    count = len(node.gpus)
    if count <= 4 or (count <= 8 and not _crosses(node)):
        return [numas] if numas else []
    half = (count + 1) // 2
    if len(numas) == 1:
        inside = list(numas[0].root.positions())
        return [[replace(numas[0], root=_group(node, PciePath.SYS, part))] for part in (inside[:half], inside[half:])]
    upper, lower, filled = [numas[0]], list[_Numa](), len(list(numas[0].root.positions()))
    for numa in numas[1:]:
        filled += len(list(numa.root.positions()))
        (upper if filled <= half else lower).append(numa)
    return [upper, lower]


def _crosses(node: NodeTopology) -> bool:
    """Whether NVLinks go straight from one half of the GPUs to the other: in one row their arcs would be a thicket."""
    half = (len(node.gpus) + 1) // 2
    return any(link.nvlinks and i < half <= j for (i, j), link in node.pairs.items())


def _shifted(layout: Layout, by: float) -> Layout:
    def moved(box: Box) -> Box:
        return replace(box, x=box.x + by)

    return replace(
        layout,
        gpus={position: moved(box) for position, box in layout.gpus.items()},
        numa=tuple(replace(numa, box=moved(numa.box)) for numa in layout.numa),
        bridges=tuple(replace(bridge, box=moved(bridge.box)) for bridge in layout.bridges),
        nics=tuple((names, moved(box)) for names, box in layout.nics),
        switch=moved(layout.switch) if layout.switch else None,
    )


class _Plan:
    """The drawing board: boxes put so far, and how far to the right and down they reach."""

    def __init__(self, node: NodeTopology) -> None:
        self.node = node
        self.gpus: dict[int, Box] = {}
        self.numa: list[NumaBox] = []
        self.bridges: list[BridgeBox] = []
        self.nics: list[tuple[tuple[str, ...], Box]] = []
        self.switch: Box | None = None
        self.right = MARGIN
        self.bottom = HEADER
        self._nics_outside = True
        self._nic_room = dict.fromkeys(PciePath, 0.0)
        self._aligned = False

    def draw(self, rows: list[list[_Numa]]) -> None:
        on_switch = any(gpu.switch_links for gpu in self.node.gpus)
        # What joins two rows runs straight down only if both leave the same gaps, whichever links are dead.
        self._aligned = len(rows) > 1 and any(link.nvlinks for link in self.node.links)
        for number, row in enumerate(rows):
            self._row(row, mirrored=number > 0)
            last = number == len(rows) - 1
            if number == 0 and on_switch:
                top = self.bottom + _RIBBON - _PAD
                self.bottom = top + _SWITCH + (0 if last else _RIBBON - _PAD)
                self.switch = Box(0, top, 0, _SWITCH)
            elif not last:
                self.bottom += _ROW_GAP
        if self.switch:
            left = min(box.x for box in self.gpus.values())
            right = max(box.x + box.width for box in self.gpus.values())
            self.switch = replace(self.switch, x=left - _PAD, width=right - left + 2 * _PAD)

    def _row(self, row: list[_Numa], *, mirrored: bool) -> None:
        order = [at for numa in row for at in numa.root.positions()]
        outside, inside = self._headroom(row, order)
        above, below = (inside, outside + _CAPTION) if mirrored else (outside + _CAPTION, inside)
        top, left = self.bottom, MARGIN
        for numa in row:
            start = left
            spare = max(0.0, _caption_width(numa) - self._width(numa.root)) / 2
            left = self._parts(numa.root, start + _PAD + spare, top + above, mirrored=mirrored) + _PAD + spare
            box = Box(start, top, left - start, above + GPU_SIZE + below)
            caption = box.bottom - _CAPTION + 14 if mirrored else top + 18
            self.numa.append(NumaBox(box, numa.name, numa.cpus, caption))
            left += _NUMA_GAP
        self.right = max(self.right, left - _NUMA_GAP)
        self.bottom = top + above + GPU_SIZE + below

    def _headroom(self, row: list[_Numa], order: list[int]) -> tuple[float, float]:
        """Return the space between GPUs and the edge of their NUMA box, outside and inside."""
        spans = [
            abs(order.index(i) - order.index(j))
            for (i, j), link in self.node.pairs.items()
            if link.nvlinks and i in order and j in order
        ]
        arcs = arc_height(max(spans)) * 0.75 + 14 if spans and max(spans) > 1 else 0
        # The same room in all frames of a kind, with and without NICs, keeps their edges in line.
        frames = [group for numa in row for group in _frames(numa.root)]
        self._nic_room = {
            path: _NIC + 6 if any(group.nics for group in frames if group.path == path) else 0.0 for path in PciePath
        }
        self._nics_outside = not arcs
        with_nics = max((self._reach(group, nics=True) for group in frames), default=0.0)
        without = max((self._reach(group, nics=False) for group in frames), default=0.0)
        if arcs:
            return max(arcs, without + 6), with_nics + _PAD
        return with_nics + 6, without + _PAD

    def _reach(self, group: _Group, *, nics: bool) -> float:
        """Return how far a frame stands off its GPUs, on the side with NICs or the other one."""
        inner = max((self._reach(part, nics=nics) for part in group.parts if isinstance(part, _Group)), default=0.0)
        return inner + _PAD + (self._nic_room[group.path] if nics else 0.0)

    def _gap(self, previous: int | None, part: int | _Group) -> float:
        """Return the space before a part: enough for the label of a link to the GPU on its left."""
        if previous is None:
            return 0.0
        first = part if isinstance(part, int) else next(part.positions())
        joined = self._aligned or self.node.pairs[min(previous, first), max(previous, first)].nvlinks
        frames = 2 * _PAD if isinstance(part, _Group) else 0
        return max(_GAP, _LINK_GAP - frames) if joined else _GAP

    def _width(self, group: _Group) -> float:
        width, previous = 0.0, None
        for part in group.parts:
            width += self._gap(previous, part)
            width += GPU_SIZE if isinstance(part, int) else self._width(part) + 2 * _PAD
            previous = part if isinstance(part, int) else list(part.positions())[-1]
        return width

    def _parts(self, group: _Group, left: float, y: float, *, mirrored: bool) -> float:
        """Put the parts of a group beside each other from `left` on; return where they end."""
        previous: int | None = None
        for part in group.parts:
            left += self._gap(previous, part)
            if isinstance(part, int):
                self.gpus[part] = Box(left, y, GPU_SIZE, GPU_SIZE)
                left += GPU_SIZE
                previous = part
            else:
                self._bridge(part, left, y, mirrored=mirrored)
                left += self._width(part) + 2 * _PAD
                previous = list(part.positions())[-1]
        return left

    def _bridge(self, group: _Group, left: float, y: float, *, mirrored: bool) -> None:
        width = self._width(group) + 2 * _PAD
        up = self._nics_outside != mirrored
        top, bottom = y - self._reach(group, nics=up), y + GPU_SIZE + self._reach(group, nics=not up)
        self.bridges.append(BridgeBox(Box(left, top, width, bottom - top), group.path))
        shown: list[tuple[str, ...]] = [(name,) for name in group.nics]
        if len(shown) * (_NARROW + 6) - 6 > width - 2 * _PAD:
            shown = [group.nics]
        pill = min(56.0, (width - 2 * _PAD + 6) / max(1, len(shown)) - 6)
        first = left + (width - len(shown) * pill - (len(shown) - 1) * 6) / 2
        at = top + _PAD - 4 if up else bottom - _PAD + 4 - _NIC
        self.nics += [(names, Box(first + number * (pill + 6), at, pill, _NIC)) for number, names in enumerate(shown)]
        self._parts(group, left + _PAD, y, mirrored=mirrored)


def _caption_width(numa: _Numa) -> float:
    return max(6.6 * len(numa.name), 5.9 * len(numa.cpus))


def arc_height(span: int) -> float:
    """Return how high the handles of an arc stand over GPUs that are `span` places apart."""
    return 22.0 + 26.0 * (span - 1)


def _frames(group: _Group) -> Iterator[_Group]:
    for part in group.parts:
        if isinstance(part, _Group):
            yield part
            yield from _frames(part)
