"""A node as a picture (SVG); the same node always gives the same bytes.

The picture needs nothing from outside and reads on light and dark pages: it brings its own card, in two colour schemes.
It says with form what it says with colour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise, starmap
from math import sqrt
from types import MappingProxyType

from topology.formats.layout import MARGIN, Box, Layout, arc_height, has_arc, lay_out
from topology.formats.marks import Mark, colour_of, letters_of
from topology.formats.picture_style import OF_MARKS, STYLE, on_pointing
from topology.node.links import PciePath
from topology.node.model import Gpu, NodeTopology


def render_svg(
    node: NodeTopology,
    free: Collection[int] | None = None,
    chosen: Sequence[int] | None = None,
    marks: Sequence[Mark] | None = None,
    rings: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> str:
    """Return the picture of a node; `free` and `chosen` are positions, `chosen` in ring order, and colour the GPUs.

    Without `free` no GPU is shown as in use. NVLinks that the ring of the chosen GPUs runs over are marked. With `marks`,
    one for each GPU, a GPU has its holder's colour and letter. Sick GPUs and links have a sign, with the reason in the
    title. For a holder in `rings` the ring appears while the pointer is on one of its GPUs.
    """
    return "\n".join(_Picture(node, free, tuple(chosen or ()), marks, rings).lines()) + "\n"


def _models(node: NodeTopology) -> str:
    counts = Counter(gpu.model for gpu in node.gpus)
    return ", ".join(f"{count} × {_clean(model)}" for model, count in counts.items()) or "no GPU"


def _wiring(node: NodeTopology) -> str:
    direct = sum(link.nvlinks for link in node.links)
    parts = []
    if most := max((gpu.switch_links for gpu in node.gpus), default=0):
        less = [f"GPU{gpu.index} ({gpu.switch_links})" for gpu in node.gpus if gpu.switch_links < most]
        parts.append(f"NVSwitch, {_links(most)} to each GPU" + (f" except {_joined(less)}" if less else ""))
    if direct:
        parts.append(f"{_links(direct)} between GPUs")
    return ", ".join(parts) or "PCIe only, no NVLink"


def _links(count: int) -> str:
    return "1 NVLink" if count == 1 else f"{count} NVLinks"


def _joined(words: Iterable[str]) -> str:
    return ", ".join(words)


def _clean(text: str) -> str:
    """Return text that XML can hold."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _xml(text: str) -> str:
    return escape(_clean(text))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rect(box: Box, kind: str, radius: float) -> str:
    size = f'width="{_n(box.width)}" height="{_n(box.height)}" rx="{_n(radius)}"'
    return f'<rect class="{kind}" x="{_n(box.x)}" y="{_n(box.y)}" {size}/>'


def _text(x: float, y: float, kind: str, words: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{_xml(words)}</text>'


def _titled(title: str, *drawn: str, kind: str = "") -> str:
    return f"<g{kind and f' class={chr(34)}{kind}{chr(34)}'}><title>{_xml(title)}</title>{''.join(drawn)}</g>"


def _hops(ring: Sequence[int]) -> set[tuple[int, int]]:
    """Return the pairs of neighbours on a ring, each in order."""
    around = (*ring, ring[0]) if len(ring) > 2 else ring
    return {(min(hop), max(hop)) for hop in pairwise(around)}


def _stroke(count: int) -> float:
    """Return a width that tells one link from two, and does not drown the picture at eighteen."""
    return min(3 * sqrt(count), 13.0)


class _Picture:
    """One drawing: what lies below comes first."""

    def __init__(
        self,
        node: NodeTopology,
        free: Collection[int] | None,
        chosen: tuple[int, ...],
        marks: Sequence[Mark] | None,
        rings: Mapping[str, Sequence[int]],
    ) -> None:
        self.node = node
        self.free = free
        self.chosen = chosen
        self.marks = marks
        self.letters = letters_of(marks or ())
        self.rings = {self.letters[holder]: ring for holder, ring in rings.items() if holder in self.letters}
        self.ring = _hops(chosen)
        self.at: Layout = lay_out(node)
        self._labels: list[Box] = []

    def lines(self) -> Iterator[str]:
        width, height = _n(self.at.width), _n(self.at.height)
        title = f"{_models(self.node)}: {_wiring(self.node)}"
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">'
        )
        yield f"<title>{_xml(title)}</title>"
        yield f"<style>{STYLE if self.marks is None else STYLE + OF_MARKS}{''.join(map(on_pointing, self.rings))}</style>"
        yield _rect(Box(0.5, 0.5, self.at.width - 1, self.at.height - 1), "card", 12)
        yield _text(MARGIN, 34, "head", _models(self.node))
        yield _text(MARGIN, 53, "note", self._note())
        yield from self._sockets()
        yield from self._frames()
        labels: list[str] = []
        yield from self._ribbons(labels)
        yield from self._direct(labels)
        yield from starmap(self._pointed_at, self.rings.items())
        for position, gpu in enumerate(self.node.gpus):
            yield self._gpu(position, gpu)
        yield from self._unused()
        yield from labels
        yield from self._legend()
        yield "</svg>"

    def _note(self) -> str:
        if not self.chosen:
            return _wiring(self.node)
        return f"{_wiring(self.node)}; chosen: {_joined(str(self.node.gpus[at].index) for at in self.chosen)}"

    def _sockets(self) -> Iterator[str]:
        """Draw what joins the NUMA nodes, behind them."""
        for numa, following in pairwise(self.at.numa):
            one, other = numa.box, following.box
            if one.y == other.y:
                y = _n(one.y + one.height / 2)
                yield f'<path class="socket" d="M{_n(one.centre)} {y}H{_n(other.centre)}"/>'
            elif len(self.at.numa) == 2:
                yield f'<path class="socket" d="M{_n(one.centre)} {_n(one.bottom)}L{_n(other.centre)} {_n(other.y)}"/>'

    def _frames(self) -> Iterator[str]:
        for numa in self.at.numa:
            yield _titled(f"{numa.name} {numa.cpus}".strip(), _rect(numa.box, "numa", 10))
            yield _text(numa.box.x + 12, numa.caption_y, "name", numa.name)
            if numa.cpus:
                yield _text(numa.box.x + 12, numa.caption_y + 13, "cpus", numa.cpus)
        for bridge in self.at.bridges:
            kind = "PIX" if bridge.path <= PciePath.PIX else "PXB"
            what = "one PCIe switch" if kind == "PIX" else "several PCIe switches"
            yield _titled(what, _rect(bridge.box, f"bridge {kind}", 8))
        devices = {nic.name: nic.device or nic.name for nic in self.node.nics}
        for names, box in self.at.nics:
            pill = _rect(box, "nic", box.height / 2)
            short = names[0] if len(names) == 1 else f"{len(names)} NICs"
            title = _joined(f"{name} {devices[name]}" for name in names)
            yield _titled(title, pill, _text(box.centre, box.y + 12.5, "tiny", short))

    def _ribbons(self, labels: list[str]) -> Iterator[str]:
        bar = self.at.switch
        if bar is None:
            return
        for position, gpu in enumerate(self.node.gpus):
            line, x, y = self._ribbon(position, bar)
            if not gpu.switch_links:
                yield _titled(
                    f"GPU {gpu.index}: not on the NVSwitch", f'<path class="link off" stroke-width="3" d="{line}"/>'
                )
                continue
            ring = len(self.chosen) > 1 and position in self.chosen
            kind, why = self._of_link(self._reason_everywhere(position), ring=ring)
            wide = f'class="{kind}" stroke-width="{_n(_stroke(gpu.switch_links))}"'
            yield _titled(
                f"GPU {gpu.index}: {_links(gpu.switch_links)} to the NVSwitch{why}", f'<path {wide} d="{line}"/>'
            )
            self._label(labels, x, y, gpu.switch_links, ring=ring)
        yield _titled("NVSwitch", _rect(bar, "switch", 8), _text(bar.centre, bar.y + 24, "on-switch", "NVSwitch"))

    def _ribbon(self, position: int, bar: Box) -> tuple[str, float, float]:
        """Return the path of a GPU's links to the NVSwitch and where their label goes."""
        box = self.at.gpus[position]
        start, end = (box.y, bar.bottom) if self.at.is_mirrored(position) else (box.bottom, bar.y)
        return f"M{_n(box.centre)} {_n(start)}V{_n(end)}", box.centre, (start + end) / 2

    def _unused(self) -> Iterator[str]:
        """Draw a stump at each GPU of which links are not used: where they led, no agent says."""
        for position, mark in enumerate(self.marks or ()):
            if mark.links:
                box, gpu = self.at.gpus[position], self.node.gpus[position]
                line = f'd="M{_n(box.x)} {_n(box.bottom - 12)}h-16m-3 -5v10"'
                yield _titled(
                    f"GPU {gpu.index}: {mark.links}",
                    _rect(Box(box.x - 22, box.bottom - 20, 22, 16), "reach", 0),
                    f'<path class="link unused" stroke-width="3" {line}/>',
                )

    def _pointed_at(self, letter: str, ring: Sequence[int]) -> str:
        """Return the ring of a holder, to lie on top of all links."""
        links = [self._course(*hop)[0] for hop in sorted(_hops(ring)) if self.node.pairs[hop].nvlinks]
        if self.at.switch and len(ring) > 1:
            links += [self._ribbon(each, self.at.switch)[0] for each in ring if self.node.gpus[each].switch_links]
        drawn = [f'<path class="link" stroke-width="5" d="{line}"/>' for line in links]
        drawn += [_rect(self.at.gpus[each], "around", 12) for each in ring]
        return f'<g class="of-a-pod ring-of-{letter}">{"".join(drawn)}</g>'

    def _direct(self, labels: list[str]) -> Iterator[str]:
        # Chosen hops last, so that they lie on top.
        pairs = [(pair, link) for pair, link in self.node.pairs.items() if link.nvlinks]
        for (i, j), link in sorted(pairs, key=lambda item: item[0] in self.ring):
            ring = (i, j) in self.ring
            line, x, y = self._course(i, j)
            kind, why = self._of_link(link.reason or "", ring=ring)
            wide = f'class="{kind}" stroke-width="{_n(_stroke(link.nvlinks))}"'
            yield _titled(f"GPU {link.a} – GPU {link.b}: {_links(link.nvlinks)}{why}", f'<path {wide} d="{line}"/>')
            self._label(labels, x, y, link.nvlinks, ring=ring)

    def _of_link(self, reason: str, *, ring: bool) -> tuple[str, str]:
        """Return the class of a link, and what its title says of its health."""
        marked = " ring" if ring else ""
        return (f"link{marked} sick", f" · {reason}") if reason and self.marks is not None else (f"link{marked}", "")

    def _reason_everywhere(self, position: int) -> str:
        """Return what is wrong with all links of a GPU, and so with its way to the NVSwitch."""
        reasons = {link.reason for pair, link in self.node.pairs.items() if position in pair}
        return "" if None in reasons else _joined(sorted(filter(None, reasons)))

    def _course(self, i: int, j: int) -> tuple[str, float, float]:
        """Return the path of a direct link and where its label goes."""
        one, other = self.at.gpus[i], self.at.gpus[j]
        if one.y != other.y:
            upper, lower = (one, other) if one.y < other.y else (other, one)
            line = f"M{_n(upper.centre)} {_n(upper.bottom)}L{_n(lower.centre)} {_n(lower.y)}"
            return line, (one.centre + other.centre) / 2, (upper.bottom + lower.y) / 2
        if not has_arc(self.at, i, j):
            y = one.y + one.height / 2
            return f"M{_n(one.centre)} {_n(y)}H{_n(other.centre)}", (one.centre + other.centre) / 2, y
        row = next(row for row in self.at.rows if i in row)
        outwards = 1 if self.at.is_mirrored(i) else -1
        base = one.bottom if outwards > 0 else one.y
        peak = base + outwards * arc_height(abs(row.index(i) - row.index(j)))
        x1, x2 = self._foot(i, j, row), self._foot(j, i, row)
        line = f"M{_n(x1)} {_n(base)}C{_n(x1)} {_n(peak)} {_n(x2)} {_n(peak)} {_n(x2)} {_n(base)}"
        return line, (x1 + x2) / 2, base + (peak - base) * 0.75

    def _foot(self, gpu: int, peer: int, row: tuple[int, ...]) -> float:
        """Return where an arc leaves a GPU: fanned out so that arcs of one GPU do not cross."""
        here = row.index(gpu)
        arcs = [
            row.index(b if a == gpu else a) - here
            for (a, b), link in self.node.pairs.items()
            if link.nvlinks and gpu in (a, b) and a in row and b in row and has_arc(self.at, a, b)
        ]
        order = sorted(arcs, key=lambda step: (step > 0, -step))
        box = self.at.gpus[gpu]
        return box.x + box.width * (order.index(row.index(peer) - here) + 1) / (len(order) + 1)

    def _label(self, labels: list[str], x: float, y: float, count: int, *, ring: bool) -> None:
        """Put `NV#` on a link, unless another label is there already."""
        width = 20.0 + 6.5 * len(str(count))
        box = Box(x - width / 2, y - 8, width, 16)
        for taken in self._labels:
            if abs(taken.centre - box.centre) < (taken.width + width) / 2 and abs(taken.y - box.y) < 16:
                return
        self._labels.append(box)
        prefix = "ring-" if ring else ""
        labels.append(_rect(box, f"{prefix}pill", 8) + _text(x, y + 3.5, f"{prefix}count", f"NV{count}"))

    def _state(self, position: int) -> str:
        if position in self.chosen:
            return "chosen"
        return "used" if self.free is not None and position not in self.free else "free"

    def _marked(self, position: int, mark: Mark) -> tuple[str, str, list[str], str]:
        """Return a marked GPU's class, that of its text, what its title says, and what is drawn on it."""
        box, letter = self.at.gpus[position], self.letters.get(mark.holder)
        used = self._state(position) == "used"
        kind = f"holder h{colour_of(letter)}" if letter else "used" if used else "unheld"
        text = "holder" if letter else "used" if used else ""
        said = [f"held by {letter}: {mark.holder}" if letter else "not free" if used else "free"]
        drawn = _text(box.x + 8, box.y + 18, "letter", letter) if letter else ""
        if position in self.chosen:
            kind += " around"
        x, y, right, bottom = box.x, box.y, box.x + box.width, box.bottom
        if mark.sick:
            kind += " sick"
            drawn += f'<path class="cross" d="M{_n(x + 7)} {_n(bottom - 7)}L{_n(right - 7)} {_n(y + 7)}"/>'
        if mark.sick or mark.to_watch:
            said.append(mark.sick or mark.to_watch)
            drawn += f'<circle class="bad" cx="{_n(right - 4)}" cy="{_n(y + 4)}" r="9"/>'
            drawn += _text(right - 4, y + 8.5, "bad-mark", "!")
        return kind, text, said, drawn

    def _gpu(self, position: int, gpu: Gpu) -> str:
        box, state = self.at.gpus[position], self._state(position)
        memory = "" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.0f} GiB"
        kind = "" if state == "free" else state
        said = [f"GPU {gpu.index}", gpu.model, memory, gpu.pci or "", gpu.uuid]
        text, drawn, letter = kind, "", ""
        if self.marks is not None:
            letter = self.letters.get(self.marks[position].holder, "")
            kind, text, more, drawn = self._marked(position, self.marks[position])
            said += more
        elif self.free is not None or self.chosen:
            said.append({"used": "in use"}.get(state, state))
        return _titled(
            " · ".join(filter(None, said)),
            _rect(box, f"gpu {kind}".strip(), 12),
            drawn,
            _text(
                box.centre,
                box.y + (33 if memory else 39),
                f"number {text}-number" if text else "number",
                str(gpu.index),
            ),
            _text(box.centre, box.y + 49, f"size {text}-size" if text else "size", memory) if memory else "",
            kind=f"held-by-{letter}" if letter in self.rings else "",
        )

    def _legend(self) -> Iterator[str]:
        """Explain only what is there."""
        x, y = MARGIN, self.at.height - 24
        states = {self._state(position) for position in range(len(self.node.gpus))}
        entries = []
        if self.marks is not None:
            entries += [("gpu holder h0", 4.0, "held")] if self.letters else []
            entries += [("gpu unheld", 4.0, "free")]
            entries += [("gpu used sick", 4.0, "! sick")] if any(mark.sick for mark in self.marks) else []
            entries += [("gpu unheld", 4.0, "! to watch")] if any(mark.to_watch for mark in self.marks) else []
        elif self.free is not None or self.chosen:
            named = (("chosen", "chosen"), ("", "free"), ("used", "in use"))
            entries += [(f"gpu {kind}".strip(), 4.0, word) for kind, word in named if (kind or "free") in states]
        kinds = {bridge.path <= PciePath.PIX for bridge in self.at.bridges}
        entries += [("bridge PIX", 3.0, "one PCIe switch")] if True in kinds else []
        entries += [("bridge PXB", 3.0, "several PCIe switches")] if False in kinds else []
        for kind, radius, word in entries:
            yield _rect(Box(x, y - 11, 16, 14), kind, radius) + _text(x + 23, y, "note", word)
            x += 23 + 6.6 * len(word) + 18
        if any(link.nvlinks for link in self.node.links) or self.at.switch:
            yield f'<path class="link" stroke-width="5" d="M{_n(x + 2)} {_n(y - 4)}h14"/>'
            yield _text(x + 23, y, "note", "NVLinks")
            x += 23 + 6.6 * len("NVLinks") + 18
        if any(mark.links for mark in self.marks or ()):
            yield f'<path class="link unused" stroke-width="3" d="M{_n(x)} {_n(y - 9)}v10m3 -5h14"/>'
            yield _text(x + 23, y, "note", "NVLinks that are not used")
