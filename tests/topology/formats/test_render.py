"""The picture: the same for the same node, valid and self-contained XML, nothing on top of anything, readable without colour."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.topologies import topologies
from topology.formats.catalog import MACHINES, machine
from topology.formats.layout import Box, Layout, lay_out
from topology.formats.marks import Mark
from topology.formats.render import render_svg
from topology.node.model import Gpu, NodeTopology

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def titles(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}title")]


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width and other.x < one.x + one.width and one.y < other.bottom and other.y < one.bottom
    )


def holds(outer: Box, inner: Box) -> bool:
    inside = outer.x <= inner.x and inner.x + inner.width <= outer.x + outer.width
    return inside and outer.y <= inner.y and inner.bottom <= outer.bottom


def assert_sound(layout: Layout) -> None:
    """Everything is on the card, no GPU covers another one, each stands inside exactly one NUMA node."""
    card = Box(0, 0, layout.width, layout.height)
    boxes = [*layout.gpus.values(), *(box for _, box in layout.nics)]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert not any(overlap(one.box, other.box) for one, other in combinations(layout.numa, 2))
    for box in boxes:
        assert holds(card, box)
        assert sum(holds(numa.box, box) for numa in layout.numa) == 1
    for bridge in layout.bridges:
        assert sum(holds(numa.box, bridge.box) for numa in layout.numa) == 1


@pytest.mark.parametrize("name", ["dgx-1v", "hgx-h100", "a100-pcie-8-pairs"])
def test_pictures_look_as_they_always_did(name: str, golden: Callable[[str, str], None]) -> None:
    """Byte by byte, with a placement in it."""
    golden(f"{name}.svg", render_svg(machine(name), free={0, 1, 2, 3, 5}, chosen=(0, 1)))


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_lies_on_top_of_anything(name: str) -> None:
    """For every reference machine."""
    assert_sound(lay_out(machine(name)))


@pytest.mark.slow
@given(topologies(max_gpus=12), st.sets(st.integers(0, 11)))
def test_any_node_can_be_drawn(node: NodeTopology, free: set[int]) -> None:
    """Whatever the wiring: sound geometry, well-formed XML, the same bytes again."""
    assert_sound(lay_out(node))
    svg = render_svg(node, free=free, chosen=tuple(range(min(3, len(node)))))
    assert ET.fromstring(svg).tag == f"{SVG}svg"
    assert svg == render_svg(node, free=free, chosen=tuple(range(min(3, len(node)))))


@pytest.mark.parametrize("name", MACHINES)
def test_every_gpu_is_there(name: str) -> None:
    """By its number, and with its UUID in the title."""
    node, svg = machine(name), render_svg(machine(name))
    assert {str(gpu.index) for gpu in node.gpus} <= set(words(svg))
    assert all(any(gpu.uuid in title for title in titles(svg)) for gpu in node.gpus)


def test_every_nvlink_of_a_cube_mesh_has_its_label() -> None:
    """Sixteen pairs, none of them hidden by another one."""
    found = words(render_svg(machine("dgx-1v")))
    assert (found.count("NV2"), found.count("NV1")) == (8, 8)


def test_a_mesh_across_sockets_takes_two_rows() -> None:
    """And stays aligned when a link is dead."""
    layout = lay_out(machine("dgx-1v-dead-link"))
    assert layout.rows == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [layout.gpus[at].x for at in range(4)] == [layout.gpus[at].x for at in range(4, 8)]


def test_sixteen_gpus_share_a_switch_between_two_rows() -> None:
    """The bar stands between them."""
    layout = lay_out(machine("dgx-2"))
    assert layout.switch
    assert layout.gpus[0].bottom < layout.switch.y < layout.switch.bottom < layout.gpus[15].y


def test_a_gpu_off_the_fabric_shows() -> None:
    """A dashed line where the others have links."""
    svg = render_svg(machine("hgx-b200-gpu2-off-fabric"))
    assert "GPU 2: not on the NVSwitch" in titles(svg)
    assert svg.count('class="link off"') == 1


def test_free_used_and_chosen_are_told_apart_and_explained() -> None:
    """In the legend, in the titles, and by form; the ring runs over the marked links."""
    svg = render_svg(machine("dgx-1v"), free={0, 1, 2, 3, 5}, chosen=(0, 3, 2, 1))
    assert {"chosen", "free", "in use"} <= set(words(svg))
    assert svg.count('class="gpu chosen"') == 4 + 1
    assert svg.count('class="link ring"') == 4
    assert any(title.startswith("GPU 4") and title.endswith("in use") for title in titles(svg))


def test_without_free_no_gpu_is_in_use() -> None:
    """A catalogue machine has no state."""
    svg = render_svg(machine("dgx-1v"))
    assert "in use" not in words(svg)
    assert 'class="gpu used"' not in svg


def test_names_cannot_break_out() -> None:
    """Markup and control characters in a product name stay text."""
    node = NodeTopology((Gpu(0, "GPU-a", '</text><script>alert("1")</script>\x00\x1b'),))
    svg = render_svg(node)
    assert "<script" not in svg
    assert any("<script>" in word for word in words(svg))


def test_nothing_is_fetched_from_outside() -> None:
    """No links, no scripts, no styles, no fonts; the namespace is the only address."""
    svg = render_svg(machine("dgx-a100"))
    assert re.findall(r"\w+://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|@import|url\(|<script|<image", svg)


def test_both_colour_schemes_are_there() -> None:
    """The card is opaque, so either reads on any page."""
    svg = render_svg(machine("l40s-8"))
    assert "prefers-color-scheme:dark" in svg
    assert '<rect class="card"' in svg


@pytest.mark.parametrize("count", [0, 1])
def test_nodes_with_little_to_show(count: int) -> None:
    """No GPU is said in words."""
    node = NodeTopology(tuple(Gpu(index, f"GPU-{index}", "m") for index in range(count)))
    assert ("no GPU" if not count else "1 × m") in words(render_svg(node))


def test_the_picture_names_gpus_with_fewer_links_to_the_switch() -> None:
    """The exception is the news."""
    node = machine("hgx-b200-gpu2-off-fabric")
    assert "NVSwitch, 18 NVLinks to each GPU except GPU2 (0)" in render_svg(node)
    partly = replace(node, gpus=tuple(replace(gpu, switch_links=16) if gpu.index == 2 else gpu for gpu in node.gpus))
    assert "except GPU2 (16)" in render_svg(partly)


def test_each_holder_has_a_letter_and_a_colour_and_what_is_wrong_is_said() -> None:
    """Colour never stands alone, and nothing that others wrote becomes markup."""
    marks = [Mark("ns/a"), Mark("ns/b"), Mark("ns/a", "XID 79 <b>"), Mark("", "XID 48"), *[Mark()] * 4]
    svg = render_svg(machine("dgx-1v"), free={4, 5, 6, 7}, marks=marks)
    ends = [title.split(" · ")[4:] for title in titles(svg) if title.startswith("GPU") and " · " in title][:5]
    assert [end[-1] for end in ends] == ["held by A: ns/a", "held by B: ns/b", "XID 79 <b>", "XID 48", "free"]
    assert (svg.count('"gpu holder h0'), svg.count('"gpu holder h1'), svg.count('class="cross"')) == (2 + 1, 1, 2)


def test_what_is_to_be_watched_has_the_sign_and_is_not_crossed_out() -> None:
    """Pods get such a GPU all the same. The legend has only the kinds that there are."""
    watched, sick = (
        render_svg(machine("dgx-1v"), free=set(range(8)), marks=[mark, *[Mark()] * 7])
        for mark in (Mark(to_watch="on probation"), Mark(sick="on probation"))
    )
    assert (watched.count('class="bad"'), watched.count('class="cross"')) == (1, 0)
    assert (sick.count('class="bad"'), sick.count('class="cross"')) == (1, 1)
    assert ("! to watch" in watched, "! sick" in watched) == (True, False)
    assert ("! to watch" in sick, "! sick" in sick) == (False, True)
    assert any(title.endswith("· on probation") for title in titles(watched))


def test_a_sick_link_is_marked_with_its_reason() -> None:
    """Only where marks are asked for: a catalogue machine is drawn as it is wired."""
    whole = machine("dgx-1v")
    first = next(link for link in whole.links if link.nvlinks)
    links = tuple(replace(link, reason="too many errors" if link is first else None) for link in whole.links)
    node = replace(whole, links=links)
    assert '"link sick"' not in render_svg(node)
    svg = render_svg(node, marks=[Mark()] * 8)
    assert svg.count('"link sick"') == 1
    assert any(title.endswith("· too many errors") for title in titles(svg))


def test_the_ring_of_a_holder_is_there_for_whoever_points_at_its_gpus() -> None:
    """Its links and its GPUs, hidden until then; a holder whose ring nobody knows has none."""
    marks = [Mark("ns/a")] * 4 + [Mark("ns/b")] * 2 + [Mark()] * 2
    svg = render_svg(machine("dgx-1v"), free={6, 7}, marks=marks, rings={"ns/a": (0, 3, 2, 1), "ns/gone": (6, 7)})
    assert (svg.count('<g class="held-by-A">'), svg.count('<g class="held-by-B">')) == (4, 0)
    (ring,) = re.findall(r'<g class="of-a-pod ring-of-A">(.*)</g>', svg)
    assert (ring.count('class="link"'), ring.count('class="around"')) == (4, 4)
    assert "svg:has(.held-by-A:hover) .ring-of-A{visibility:visible}" in svg


def test_on_a_switch_the_ring_runs_by_way_of_it() -> None:
    """A single GPU has no way to go."""
    marks = [Mark("ns/a")] * 2 + [Mark("ns/b")] + [Mark()] * 5
    svg = render_svg(machine("hgx-h100"), marks=marks, rings={"ns/a": (0, 1), "ns/b": (2,)})
    drawn = dict(re.findall(r'<g class="of-a-pod ring-of-(\w)">(.*)</g>', svg))
    assert {letter: ring.count('class="link"') for letter, ring in drawn.items()} == {"A": 2, "B": 0}


def test_nvlinks_that_are_not_used_are_a_stump_with_the_reason() -> None:
    """At the GPU that has them; and the legend says what a stump is."""
    marks = [Mark(), Mark(links="NVLink 3 not used: <b>")] + [Mark()] * 6
    svg = render_svg(machine("dgx-1v"), marks=marks)
    assert "GPU 1: NVLink 3 not used: <b>" in titles(svg)
    assert "NVLinks that are not used" in words(svg)
    assert svg.count('class="link unused"') == 1 + 1
    assert 'class="link unused"' not in render_svg(machine("dgx-1v"), marks=[Mark()] * 8)
