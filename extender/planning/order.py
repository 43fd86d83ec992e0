"""The order in which units are served: by priority, then the namespace with the least use for its weight, then by age.

What is planned counts as held at once. So two namespaces of equal weight take turns, however many pods wait in each.

The rest of a gang that has begun comes before everything else: its members hold GPUs, and do nothing without it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from extender.planning.units import Unit

USUAL_WEIGHT: Final = 1.0


class FairOrder:
    """Yields each unit once, the next one to be served first; O(n log n).

    Args:
        units: Those that wait.
        held: Namespace → the GPUs that its pods hold.
        weights: Namespace → its share compared with others; namespaces that are not named have 1.

    """

    def __init__(self, units: Iterable[Unit], held: Mapping[str, int], weights: Mapping[str, float]) -> None:
        self._held = Counter(held)
        self._weights = weights
        self._lines: dict[int, dict[str, deque[Unit]]] = {}
        """By priority and namespace, by age."""
        self._begun: list[Unit] = []
        """Of any priority, by age."""
        for unit in sorted(units, key=lambda unit: (unit.since, unit.key)):
            if unit.is_begun:
                self._begun.append(unit)
                continue
            self._lines.setdefault(unit.priority, {}).setdefault(unit.namespace, deque()).append(unit)

    def charge(self, unit: Unit) -> None:
        """Count the GPUs of a unit that gets a place as held by its namespace."""
        self._held[unit.namespace] += unit.gpus

    def __iter__(self) -> Iterator[Unit]:
        """Yield the units; `charge` may be called for each before the next one is taken."""
        yield from self._begun
        for priority in sorted(self._lines, reverse=True):
            lines = self._lines[priority]
            heads = [(*self._turn(line[0]), namespace) for namespace, line in lines.items()]
            heapify(heads)
            while heads:
                namespace = heappop(heads)[-1]
                line = lines[namespace]
                yield line.popleft()
                if line:
                    heappush(heads, (*self._turn(line[0]), namespace))

    def _turn(self, unit: Unit) -> tuple[float, float, str]:
        used = self._held[unit.namespace] / self._weights.get(unit.namespace, USUAL_WEIGHT)
        return used, unit.since, unit.key
