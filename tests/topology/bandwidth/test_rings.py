"""Rings: exact against brute force, and never better with fewer links."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from topology.bandwidth.rings import MAX_STEPS, Meter, Widths, hamiltonian_cycles, members_of, ring_channels

DGX_1V = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def symmetric(n: int, upper: dict[tuple[int, int], int]) -> list[list[int]]:
    return [[upper.get((min(i, j), max(i, j)), 0) if i != j else 0 for j in range(n)] for i in range(n)]


@st.composite
def link_matrices(draw: st.DrawFn, max_vertices: int = 5, max_links: int = 2) -> list[list[int]]:
    n = draw(st.integers(2, max_vertices))
    return symmetric(n, {pair: draw(st.integers(0, max_links)) for pair in combinations(range(n), 2)})


def cycles_by_permutation(n: int) -> list[tuple[int, ...]]:
    return [(0, *order) for order in permutations(range(1, n)) if n == 2 or order[0] < order[-1]]


def hops(order: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(min(hop), max(hop)) for hop in pairwise((*order, order[0]))]


def channels_by_brute_force(links: list[list[int]]) -> int:
    """Try every multiplicity of every cycle on doubled links."""
    cycles = [hops(order) for order in cycles_by_permutation(len(links))]
    left = {(i, j): 2 * links[i][j] for i in range(len(links)) for j in range(i + 1, len(links))}

    def most(index: int) -> int:
        if index == len(cycles):
            return 0
        best = most(index + 1)
        taken = 0
        while all(left[hop] for hop in cycles[index]):
            for hop in cycles[index]:
                left[hop] -= 1
            taken += 1
            best = max(best, taken + most(index + 1))
        for hop in cycles[index]:
            left[hop] += taken
        return best

    return links[0][1] if len(links) == 2 else most(0)


@pytest.mark.slow
@given(link_matrices())
def test_packing_equals_brute_force(links: list[list[int]]) -> None:
    """As many channels as trying every combination of cycles finds."""
    assert ring_channels(links, (1 << len(links)) - 1) == channels_by_brute_force(links)


MOST_STEPS = 100_000
"""Of a search that is compared; one random example in a hundred needs more."""


def all_channels(links: list[list[int]]) -> int:
    """Return the channels over all vertices; drop the example if the search does not come to its end."""
    meter = Meter()
    channels = ring_channels(links, (1 << len(links)) - 1, MOST_STEPS, meter)
    assume(meter.steps < MOST_STEPS)
    return channels


@given(link_matrices(max_vertices=6, max_links=3), st.data())
def test_removing_a_link_never_adds_a_channel(links: list[list[int]], data: st.DataObject) -> None:
    """The packing is monotone in every single link, where the search comes to its end."""
    i, j = data.draw(st.sampled_from(list(combinations(range(len(links)), 2))))
    fewer = [row.copy() for row in links]
    fewer[i][j] = fewer[j][i] = max(links[i][j] - 1, 0)
    assert all_channels(fewer) <= all_channels(links)


def test_eight_gpus_of_a_dgx_1v_carry_six_channels() -> None:
    """Each GPU has six links, and the rings over all eight use every one of them (NCCL reports 6 rings)."""
    assert ring_channels(symmetric(8, DGX_1V), 0xFF) == 6


def test_a_clique_of_single_links_is_used_to_the_last_half_link() -> None:
    """Three cycles on four vertices, each at half a link, use all three links of every GPU."""
    clique = symmetric(4, dict.fromkeys(combinations(range(4), 2), 1))
    assert ring_channels(clique, 0b1111) == 3


def test_a_chain_closes_no_ring() -> None:
    """GPU-to-GPU links that do not close into a ring are worth nothing to a ring."""
    assert ring_channels(symmetric(3, {(0, 1): 4, (1, 2): 4}), 0b111) == 0


def test_cycles_are_listed_once_each() -> None:
    """Six vertices all joined have 5!/2 cycles, none twice in the other direction."""
    complete = [0b111111 & ~(1 << i) for i in range(6)]
    found = list(hamiltonian_cycles(complete, 0b111111))
    assert found == sorted(set(found)) and len(found) == 60


@given(link_matrices(max_vertices=6, max_links=4))
def test_the_bottleneck_equals_brute_force(links: list[list[int]]) -> None:
    """No order of the members has a wider narrowest hop, and the ring that is named has that width."""
    n = len(links)
    widest = max(min(links[i][j] for i, j in hops(order)) for order in cycles_by_permutation(n))
    widths = Widths(links)
    ring = widths.widest_ring((1 << n) - 1)
    assert widths.bottleneck((1 << n) - 1) == widest
    assert sorted(ring) == list(range(n)) and min(links[i][j] for i, j in hops(ring)) == widest


@given(link_matrices(max_vertices=6, max_links=4))
def test_among_equally_wide_rings_the_heaviest_is_named(links: list[list[int]]) -> None:
    """The sum of the hops is as great as any equally wide order gives."""
    n = len(links)
    widths = Widths(links)
    level = widths.bottleneck((1 << n) - 1)
    weights = [[links[i][j] for i, j in hops(order)] for order in cycles_by_permutation(n)]
    heaviest = max(sum(weight) for weight in weights if min(weight) == level)
    assert sum(links[i][j] for i, j in hops(widths.widest_ring((1 << n) - 1))) == heaviest


def test_members_are_named_by_their_own_numbers() -> None:
    """A question about some vertices is answered in those vertices."""
    assert members_of(0b101101) == (0, 2, 3, 5)
    assert sorted(Widths(symmetric(8, DGX_1V)).widest_ring(0b01100110)) == [1, 2, 5, 6]


def test_a_forged_dense_graph_costs_bounded_work() -> None:
    """Twenty GPUs all joined have more cycles than can be listed; the list ends."""
    complete = [0xFFFFF & ~(1 << i) for i in range(20)]
    assert sum(1 for _ in hamiltonian_cycles(complete, 0xFFFFF)) <= MAX_STEPS
