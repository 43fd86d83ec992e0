"""Place the next pod of a group, so that the group ends up in few domains and breaks none larger than needed.

Pods come one at a time and nothing is remembered between them. So each call plans for all that are still to come and
answers with the domain that the plan fills first. The next call finds the pod there, and comes to the rest of the same
plan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topology.placement.verdict import Reason, Rejection
from topology.request.domains import Domain, GroupRequest, Level, Location


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group has come."""

    rest: int
    """Pods that are still to be placed, the next one among them."""
    placed: tuple[Location, ...] = ()
    """Where the others are, in any order; one may stand for several."""


class Fit(NamedTuple):
    """How pods go into domains."""

    domains: int
    """How many it takes."""
    left: int
    """What is left free in the last of them."""


def fit(sizes: Iterable[int], pods: int) -> Fit | None:
    """Put pods into the fewest domains, each of which takes so many; `None` where they do not fit; O(n log n).

    The largest are filled one after the other, and the last is the smallest that is enough.

    >>> fit([8, 5, 3, 8], 11), fit([2, 1], 4)
    (Fit(domains=2, left=0), None)
    """
    ranked = sorted(sizes)
    filled = 0
    while ranked and pods > ranked[-1]:
        pods -= ranked.pop()
        filled += 1
    return Fit(filled + 1, ranked[bisect_left(ranked, pods)] - pods) if ranked else None


def narrow(
    request: GroupRequest, progress: Progress, fitting: Mapping[Location, int], reserved: Mapping[Domain, int]
) -> frozenset[Location] | Rejection:
    """Return the locations among which the next pod may choose, or why none will do for a group that requires one domain.

    It goes from the farthest level to the nearest. A group that has begun fills the domains where it is. One that has to
    open another takes a domain that holds all that is to come. Of several it takes the one that splits it least on the
    nearer levels, then the tightest fit, the nearest level first. If none holds it all, it takes the largest. Levels that
    nobody knows are passed over, and nodes whose domain nobody knows come last. O(n log n) for n locations.

    Args:
        request: What the group asks for.
        progress: What of it is placed.
        fitting: How many pods like the next one the nodes of a location could take, together. None at all is the caller's to
            explain.
        reserved: Pods that other groups have still to place in domains where they have begun. A group that begins leaves
            these their room as far as possible, and always where the domain is required. So no two groups that require a
            domain each hold what the other waits for.

    """
    left = {location: pods for location, pods in fitting.items() if pods > 0}
    used = frozenset(place.domain(level) for place in progress.placed for level in Level)
    choice = _Choice(used, reserved)
    if request.required and left:
        allowed = choice.allowed(left, request.level, progress.rest)
        if isinstance(allowed, Rejection):
            return allowed
        left = allowed
    levels = [level for level in request.levels if any(location.domain(level)[1] is not None for location in left)]
    rest = progress.rest
    while levels:
        *nearer, level = levels
        left = choice.next_domain(left, level, nearer, rest)
        rest = min(rest, sum(left.values()))
        levels = nearer
    return frozenset(left)


class _Choice:
    """Which domain is next, for a group that has begun in some."""

    def __init__(self, used: frozenset[Domain], reserved: Mapping[Domain, int]) -> None:
        self._used = used
        self._reserved = reserved

    def allowed(self, fitting: Mapping[Location, int], level: Level, rest: int) -> dict[Location, int] | Rejection:
        """Return what is open to a group that has to be in one domain."""
        by_domain = self._by_domain(fitting, level)
        by_domain.pop((level, None), None)
        if not by_domain:
            message = f"no node with room has a known {level}"
            remedy = f"label the nodes with their {level}, or make it preferred"
            return Rejection(Reason.GROUP, message, remedy=remedy, resolvable=True)
        if self._used:
            enough = {domain for domain in by_domain if domain in self._used}
            if not enough:
                message = f"not in the {level} where the pod's group is"
                return Rejection(
                    Reason.GROUP, message, remedy=f"wait until GPUs of that {level} are free", resolvable=True
                )
        else:
            enough = {domain for domain, pods in by_domain.items() if pods >= rest}
            if not enough:
                most = max(by_domain.values(), default=0)
                message = f"no {level} has room for the group's {rest} pods to come, at most for {most}"
                return Rejection(Reason.GROUP, message, remedy="wait or let it relax", resolvable=True)
        return {location: pods for location, pods in fitting.items() if location.domain(level) in enough}

    def next_domain(
        self, fitting: Mapping[Location, int], level: Level, nearer: Sequence[Level], rest: int
    ) -> dict[Location, int]:
        """Return what is in the domain of this level that the next pod goes to."""
        parts: defaultdict[Domain, dict[Location, int]] = defaultdict(dict)
        for location, pods in fitting.items():
            parts[location.domain(level)][location] = pods
        by_domain = self._by_domain(fitting, level)
        pool = [domain for domain in parts if domain in self._used] or list(parts)
        enough = [domain for domain in pool if by_domain[domain] >= rest]
        if not enough:
            known = [domain for domain in pool if domain[1] is not None] or pool
            most = max(by_domain[domain] for domain in known)
            enough = [domain for domain in known if by_domain[domain] == most]

        def cost(domain: Domain) -> tuple[bool, list[int], list[int], str]:
            here = min(rest, sum(parts[domain].values()))
            fits = [
                fit(self._by_domain(parts[domain], each).values(), here) or Fit(len(parts[domain]), 0)
                for each in nearer
            ]
            return (
                domain[1] is None,
                [each.domains for each in reversed(fits)],
                [*(each.left for each in fits), by_domain[domain]],
                domain[1] or "",
            )

        return parts[min(enough, key=cost)]

    def _by_domain(self, fitting: Mapping[Location, int], level: Level) -> Counter[Domain]:
        """Return how many pods fit in each domain: where the group has not begun, less what is reserved for others."""
        found: Counter[Domain] = Counter()
        for location, pods in fitting.items():
            found[location.domain(level)] += pods
        for domain in found.keys() & self._reserved.keys() - self._used:
            found[domain] = max(0, found[domain] - self._reserved[domain])
        return found
