"""A node as a picture (SVG) and as a few lines of text; the same node always gives the same bytes.

The picture needs nothing from outside, reads on light and dark pages (it brings its own card, in two colour schemes), and says
with form what it says with colour. The colours are Okabe and Ito's, which all kinds of sight can tell apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import sqrt
from typing import Final

from topology.formats.layout import MARGIN, Box, Layout, arc_height, has_arc, lay_out
from topology.formats.marks import Mark, colour_of, letters_of
from topology.node.links import PciePath
from topology.node.model import Gpu, NodeTopology

_STYLE: Final = """\
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1f2328}
.card{fill:#fff;stroke:#d0d7de}.head{font-size:18px;font-weight:600}.note{font-size:12px;fill:#59636e}
.numa{fill:#f4f6f8;stroke:#d0d7de}.name{font-size:11px;font-weight:600;fill:#59636e}.cpus{font-size:10px;fill:#7b8590}
.bridge{fill:#fff;stroke:#9aa4af}.PXB{stroke-dasharray:5 3}.socket{stroke:#c3cad2;stroke-width:6}
.nic{fill:#f4f6f8;stroke:#9aa4af}.tiny{font-size:10px;fill:#59636e;text-anchor:middle}
.link{stroke:#009e73;fill:none;stroke-linecap:round}.ring{stroke:#d55e00}.off{stroke:#9aa4af;stroke-dasharray:2 5}
.pill{fill:#fff;stroke:#009e73}.count{font-size:10px;font-weight:600;fill:#006b4e;text-anchor:middle}
.ring-pill{fill:#fff;stroke:#d55e00}.ring-count{font-size:10px;font-weight:600;fill:#a34700;text-anchor:middle}
.switch{fill:#009e73}.on-switch{font-size:14px;font-weight:600;fill:#fff;text-anchor:middle;letter-spacing:.06em}
.gpu{stroke-width:2;fill:#d9eefa;stroke:#0072b2}.number{font-size:24px;font-weight:700;fill:#083d5c;text-anchor:middle}
.size{font-size:10px;fill:#2d5f7d;text-anchor:middle}
.used{fill:#e6e8eb;stroke:#a3abb4;stroke-dasharray:4 3}.used-number,.used-size{fill:#8b949e}
.chosen{fill:#e69f00;stroke:#b35900;stroke-width:4}.chosen-number,.chosen-size{fill:#2b1b00}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.card{fill:#0d1117;stroke:#30363d}.note,.name,.tiny{fill:#9da7b1}.cpus{fill:#7d8590}
.numa,.nic{fill:#161b22;stroke:#30363d}.bridge{fill:#0d1117;stroke:#545d68}.nic{stroke:#545d68}.socket{stroke:#30363d}
.link{stroke:#1fb58a}.ring{stroke:#f08a3c}.off{stroke:#545d68}.pill{fill:#0d1117;stroke:#1fb58a}.count{fill:#6fdcb8}
.ring-pill{fill:#0d1117;stroke:#f08a3c}.ring-count{fill:#f6b27f}
.switch{fill:#00795a}.on-switch{fill:#fff}.gpu{fill:#0c2d42;stroke:#56b4e9}.number{fill:#d9eefa}.size{fill:#9ccbe6}
.used{fill:#1c2128;stroke:#545d68}.used-number,.used-size{fill:#6e7681}
.chosen{fill:#e69f00;stroke:#ffd27a}.chosen-number,.chosen-size{fill:#2b1b00}}
"""


_MARKS_STYLE: Final = """\
svg{color-scheme:light dark}
.holder{stroke:#24292f}.holder-number,.holder-size,.letter{fill:#16191d}.letter{font-size:12px;font-weight:700}
.h0{fill:#e69f00}.h1{fill:#5cc8f2}.h2{fill:#35c89f}.h3{fill:#f0e442}.h4{fill:#dc8fba}.h5{fill:#f58a4b}.h6{fill:#b9adf0}.h7{fill:#c3ccd5}
.unheld{fill:#fff;stroke:#0072b2}.used.sick{fill:#e6e8eb}.sick{stroke-dasharray:6 3}.around{stroke:#d55e00;stroke-width:5}
.cross{stroke:#b3261e;stroke-width:3;fill:none;opacity:.55}.bad{fill:#b3261e}.bad-mark{font-size:13px;font-weight:700;fill:#fff;text-anchor:middle}
.link.sick{stroke:#b3261e;stroke-dasharray:2 7}
@media (prefers-color-scheme:dark){.unheld{fill:#0d1117;stroke:#56b4e9}.holder{stroke:#e6edf3}.used.sick{fill:#1c2128}
.cross,.link.sick{stroke:#ff7b72}.around{stroke:#f08a3c}.holder-number,.holder-size,.letter{fill:#16191d}.bad-mark{fill:#fff}}
"""


def render_svg(
    node: NodeTopology,
    free: Collection[int] | None = None,
    chosen: Sequence[int] | None = None,
    marks: Sequence[Mark] | None = None,
) -> str:
    """Return the picture of a node; `free` and `chosen` are positions, `chosen` in ring order, and colour the GPUs.

    Without `free` no GPU is shown as in use. NVLinks that the ring of the chosen GPUs runs over are marked. With `marks`, one for
    each GPU, a GPU has its holder's colour and letter, and sick GPUs and links have a sign, with the reason in the title.
    """
    return "\n".join(_Picture(node, free, tuple(chosen or ()), marks).lines()) + "\n"


def render_text(node: NodeTopology) -> str:
    """Return what the picture shows, one fact a line."""
    lines = [_models(node), _wiring(node)]
    by_numa: dict[int | None, list[int]] = {}
    for gpu in node.gpus:
        by_numa.setdefault(gpu.numa_node, []).append(gpu.index)
    for numa, indexes in by_numa.items():
        where = "NUMA node not known" if numa is None else f"NUMA node {numa}"
        lines.append(f"{where}: {_joined(f'GPU{index}' for index in indexes)}")
    lines += [f"GPU{link.a} – GPU{link.b}: {_links(link.nvlinks)}" for link in node.links if link.nvlinks]
    lines += [f"GPU{link.a} – GPU{link.b}: {_clean(link.reason)}" for link in node.links if link.reason]
    return "\n".join(lines) + "\n"


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
    """Return text that XML and terminals can hold."""
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


def _titled(title: str, *drawn: str) -> str:
    return f"<g><title>{_xml(title)}</title>{''.join(drawn)}</g>"


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
    ) -> None:
        self.node = node
        self.free = free
        self.chosen = chosen
        self.marks = marks
        self.letters = letters_of(marks or ())
        around = (*chosen, chosen[0]) if len(chosen) > 2 else chosen
        self.ring = {(min(hop), max(hop)) for hop in pairwise(around)}
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
        yield f"<style>{_STYLE if self.marks is None else _STYLE + _MARKS_STYLE}</style>"
        yield _rect(Box(0.5, 0.5, self.at.width - 1, self.at.height - 1), "card", 12)
        yield _text(MARGIN, 34, "head", _models(self.node))
        yield _text(MARGIN, 53, "note", self._note())
        yield from self._sockets()
        yield from self._frames()
        labels: list[str] = []
        yield from self._ribbons(labels)
        yield from self._direct(labels)
        for position, gpu in enumerate(self.node.gpus):
            yield self._gpu(position, gpu)
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
            box = self.at.gpus[position]
            start, end = (box.y, bar.bottom) if self.at.is_mirrored(position) else (box.bottom, bar.y)
            line = f'd="M{_n(box.centre)} {_n(start)}V{_n(end)}"'
            if not gpu.switch_links:
                yield _titled(
                    f"GPU {gpu.index}: not on the NVSwitch", f'<path class="link off" stroke-width="3" {line}/>'
                )
                continue
            ring = len(self.chosen) > 1 and position in self.chosen
            kind, why = self._of_link(self._reason_everywhere(position), ring=ring)
            wide = f'class="{kind}" stroke-width="{_n(_stroke(gpu.switch_links))}"'
            yield _titled(f"GPU {gpu.index}: {_links(gpu.switch_links)} to the NVSwitch{why}", f"<path {wide} {line}/>")
            self._label(labels, box.centre, (start + end) / 2, gpu.switch_links, ring=ring)
        yield _titled("NVSwitch", _rect(bar, "switch", 8), _text(bar.centre, bar.y + 24, "on-switch", "NVSwitch"))

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
        if mark.sick:
            kind += " sick"
            said.append(mark.sick)
            drawn += (
                f'<path class="cross" d="M{_n(box.x + 7)} {_n(box.bottom - 7)}L{_n(box.x + box.width - 7)} {_n(box.y + 7)}"/>'
                f'<circle class="bad" cx="{_n(box.x + box.width - 4)}" cy="{_n(box.y + 4)}" r="9"/>'
                + _text(box.x + box.width - 4, box.y + 8.5, "bad-mark", "!")
            )
        return kind, text, said, drawn

    def _gpu(self, position: int, gpu: Gpu) -> str:
        box, state = self.at.gpus[position], self._state(position)
        memory = "" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.0f} GiB"
        kind = "" if state == "free" else state
        said = [f"GPU {gpu.index}", gpu.model, memory, gpu.pci or "", gpu.uuid]
        text, drawn = kind, ""
        if self.marks is not None:
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
        )

    def _legend(self) -> Iterator[str]:
        """Explain only what is there."""
        x, y = MARGIN, self.at.height - 24
        states = {self._state(position) for position in range(len(self.node.gpus))}
        entries = []
        if self.marks is not None:
            sick = any(mark.sick for mark in self.marks)
            entries += [("gpu holder h0", 4.0, "held")] if self.letters else []
            entries += [("gpu unheld", 4.0, "free")]
            entries += [("gpu used sick", 4.0, "! sick")] if sick else []
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
