"""Rings on a small multigraph: how many fit side by side, and which one is widest.

A ring visits every member once. Vertices are 0..n-1, sets of them are bit masks, matrices are symmetric. The searches are
exact. Their number of steps is bounded, so that a forged topology costs a few milliseconds and not the process. Beyond
the bound the best ring found so far counts. A `Meter` adds up what searches cost, so that others can divide them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Matrix = Sequence[Sequence[float]]
Counts = Sequence[Sequence[int]]
Neighbours = Sequence[int]
"""For each vertex, the mask of those it reaches in one hop."""

MAX_STEPS = 1_000
"""Search steps for one set after which the best found stands; no known machine of up to 16 GPUs comes near it."""


class Meter:
    """Adds up the steps that searches take; one is about half a microsecond."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


def members_of(mask: int) -> tuple[int, ...]:
    """Return the vertices in a mask, rising.

    >>> members_of(0b1011)
    (0, 1, 3)
    """
    members = list[int]()
    while mask:
        lowest = mask & -mask
        members.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(members)


def components(joined: Neighbours, members: int) -> int:
    """Return into how many parts the members fall that are not joined, directly or through others.

    >>> components([0b010, 0b101, 0b010, 0b000], 0b1111), components([0b010, 0b101, 0b010], 0b101)
    (2, 2)
    """
    found = 0
    while members:
        found += 1
        part = frontier = members & -members
        while frontier:
            near = joined[frontier.bit_length() - 1] & members & ~part
            frontier = frontier ^ 1 << frontier.bit_length() - 1 | near
            part |= near
        members &= ~part
    return found


def ring_channels(
    links: Counts,
    members: int,
    max_steps: int = MAX_STEPS,
    meter: Meter | None = None,
    joined: Neighbours | None = None,
) -> int:
    """Return how many one-link-wide channels the rings over all members can carry at once, each GPU sending on every one.

    Two GPUs: the links between them. More: NCCL runs each ring both ways and may split a link in two halves. So this is
    the greatest packing of undirected Hamiltonian cycles into twice the link counts. 0 when no ring closes over links
    alone. A search that needs more than `max_steps` gives the greatest that it has found. `joined` are the vertices with
    links between them.

    >>> pair, triangle = [[0, 2], [2, 0]], [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    >>> ring_channels(pair, 0b11), ring_channels(triangle, 0b111)
    (2, 2)
    >>> ring_channels([[0, 1, 0], [1, 0, 1], [0, 1, 0]], 0b111)
    0
    """
    vertices = members_of(members)
    if len(vertices) == 2:
        return links[vertices[0]][vertices[1]]
    neighbours = joined or [sum(1 << j for j, count in enumerate(row) if count) for row in links]
    if any((neighbours[i] & members).bit_count() < 2 for i in vertices):
        return 0
    # Each copy of a cycle takes two of a vertex's doubled links, so the poorest vertex bounds the packing.
    bound = min(sum(links[i][j] for j in vertices) for i in vertices)
    meter = meter or Meter()
    cycles = [_edges(order) for order in hamiltonian_cycles(neighbours, members, max_steps, meter)]
    if not cycles:
        return 0
    capacity = {(i, j): 2 * links[i][j] for i in vertices for j in vertices if i < j and links[i][j]}
    return _Packing(capacity, cycles, max_steps, meter).solve(bound)


def hamiltonian_cycles(
    neighbours: Neighbours, members: int, max_steps: int = MAX_STEPS, meter: Meter | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield each Hamiltonian cycle of three or more members once, as an order from the lowest member, lexicographically.

    Stops silently after `max_steps` steps.
    """
    meter = meter or Meter()
    first = members & -members
    home = neighbours[first.bit_length() - 1] & members
    path, choices = [first.bit_length() - 1], [home]
    visited = first
    for _ in range(max_steps):
        meter.steps += 1
        if not choices:
            return
        options = choices[-1]
        if not options:
            choices.pop()
            visited ^= 1 << path.pop()
            continue
        step = options & -options
        choices[-1] = options ^ step
        vertex = step.bit_length() - 1
        visited |= step
        if visited == members:
            # Each cycle is met in both directions; keep the one whose second vertex is the lower.
            if home & step and path[1] < vertex:
                yield (*path, vertex)
            visited ^= step
            continue
        path.append(vertex)
        # The way home needs a member next to the first one that is still to come.
        choices.append(neighbours[vertex] & members & ~visited if home & ~visited else 0)


class Widths:
    """A symmetric matrix of hop widths, made ready for questions about many sets."""

    def __init__(self, matrix: Matrix, meter: Meter | None = None) -> None:
        self.matrix = matrix
        self._meter = meter or Meter()
        self._levels = _levels(matrix)

    def bottleneck(self, members: int, max_steps: int = MAX_STEPS) -> float:
        """Return the width of the narrowest hop of that ring over two or more members whose narrowest hop is widest.

        `max_steps` bounds the search for a ring over hops of at least some width; none found in these is taken for none.
        """
        return self._widest_level(members, max_steps)[0]

    def widest_ring(self, members: int) -> tuple[int, ...]:
        """Return the ring with the widest narrowest hop; among those the one whose hops add up to most, then lowest order.

        Exact up to 9 members (the sum by dynamic programming, n²·2ⁿ); beyond, the first such ring in lexicographic order.
        """
        vertices = members_of(members)
        if len(vertices) <= 3:
            return vertices
        allowed = self._widest_level(members, MAX_STEPS)[1]
        if len(vertices) > 9:
            return next(hamiltonian_cycles(allowed, members, MAX_STEPS, self._meter), vertices)
        self._meter.steps += len(vertices) << len(vertices)
        return _heaviest(self.matrix, allowed, vertices)

    def _widest_level(self, members: int, max_steps: int) -> tuple[float, Neighbours]:
        """Halve the levels: what closes at one closes at all that are narrower."""
        low, high = 0, len(self._levels) - 1
        end = self._meter.steps + max_steps
        while low < high:
            middle = (low + high) // 2
            if _closes(self._levels[middle][1], members, max(end - self._meter.steps, 0), self._meter):
                high = middle
            else:
                low = middle + 1
        return self._levels[low]


def _levels(matrix: Matrix) -> list[tuple[float, Neighbours]]:
    """Return the hops of at least each width there is, the widest first."""
    pairs: dict[float, list[tuple[int, int]]] = {}
    for i, row in enumerate(matrix):
        for j in range(i):
            pairs.setdefault(row[j], []).append((i, j))
    reached = [0] * len(matrix)
    levels: list[tuple[float, Neighbours]] = []
    for width in sorted(pairs, reverse=True):
        for i, j in pairs[width]:
            reached[i] |= 1 << j
            reached[j] |= 1 << i
        levels.append((width, [*reached]))
    return levels


def _heaviest(width: Matrix, allowed: Neighbours, vertices: tuple[int, ...]) -> tuple[int, ...]:
    """Return the heaviest Hamiltonian cycle over allowed hops (Held and Karp 1962), lowest order among equals."""
    first, *others = vertices
    best: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(1 << first, first): (0.0, (first,))}
    for _ in others:
        grown: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {}
        for (visited, last), (weight, order) in best.items():
            for vertex in others:
                if visited >> vertex & 1 or not allowed[last] >> vertex & 1:
                    continue
                key = (visited | 1 << vertex, vertex)
                candidate = (round(weight + width[last][vertex], 6), (*order, vertex))
                if key not in grown or _precedes(candidate, grown[key]):
                    grown[key] = candidate
        best = grown
    closed = [
        (-round(weight + width[last][first], 6), order)
        for (_, last), (weight, order) in best.items()
        if allowed[last] >> first & 1
    ]
    return min(closed)[1]


def _precedes(one: tuple[float, tuple[int, ...]], other: tuple[float, tuple[int, ...]]) -> bool:
    return (-one[0], one[1]) < (-other[0], other[1])


def _closes(neighbours: Neighbours, members: int, max_steps: int, meter: Meter) -> bool:
    """Whether a ring exists; cheap tests first, since most graphs here are no ring at all or complete."""
    count = members.bit_count()
    least, left = count, members
    while left:
        bit = left & -left
        left ^= bit
        degree = (neighbours[bit.bit_length() - 1] & members).bit_count()
        if degree < least:
            least = degree
            if count > 2 > degree or not degree:
                return False
    # Dirac 1952: with n/2 neighbours each there is one.
    return 2 * least >= count or (
        _connected(neighbours, members)
        and next(hamiltonian_cycles(neighbours, members, max_steps, meter), None) is not None
    )


def _connected(neighbours: Neighbours, members: int) -> bool:
    reached = frontier = members & -members
    while frontier:
        vertex = frontier.bit_length() - 1
        found = neighbours[vertex] & members & ~reached
        reached |= found
        frontier = frontier ^ 1 << vertex | found
    return reached == members


def _edges(order: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    hops = zip(order, (*order[1:], order[0]), strict=True)
    return tuple((i, j) if i < j else (j, i) for i, j in hops)


class _Packing:
    """Depth-first search for the most cycles, with repetition, that fit the capacities."""

    def __init__(
        self,
        capacity: dict[tuple[int, int], int],
        cycles: list[tuple[tuple[int, int], ...]],
        max_steps: int,
        meter: Meter,
    ) -> None:
        self._left = capacity
        self._cycles = cycles
        self._max_steps = max_steps
        self._meter = meter
        self._best = 0
        self._steps = 0

    def solve(self, bound: int) -> int:
        """Return the size of the greatest packing, which is at most `bound`."""
        self._search(0, 0, bound)
        return self._best

    def _search(self, start: int, count: int, bound: int) -> None:
        self._best = max(self._best, count)
        for index in range(start, len(self._cycles)):
            cycle = self._cycles[index]
            for copies in range(min(self._left[edge] for edge in cycle), -1, -1):
                self._steps += 1
                self._meter.steps += 3
                if self._best >= bound or self._steps > self._max_steps:
                    return
                if copies:
                    self._take(cycle, copies)
                    self._search(index + 1, count + copies, bound)
                    self._take(cycle, -copies)

    def _take(self, cycle: tuple[tuple[int, int], ...], copies: int) -> None:
        for edge in cycle:
            self._left[edge] -= copies
