"""A scorer that is made when a prediction is first needed. Most nodes never need one: their pods come with their GPUs planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from itertools import combinations
from typing import TYPE_CHECKING

from topology.node.model import NodeTopology

if TYPE_CHECKING:
    from agent.plugin.choice.best import Scorer

_ALWAYS_A_RING = 3
"""Up to so many GPUs have one ring only."""


class LazyScorer:
    """Answers as `ScorerPort` does; `needed` is called once, with this one, when it has been made."""

    def __init__(self, node: NodeTopology, needed: Callable[[LazyScorer], None]) -> None:
        self._node = node
        self._needed = needed
        self._scorer: Scorer | None = None
        self.doubtful: Collection[str] = ()
        """GPUs that are chosen last among equals, as far as is known now."""

    def appraise(self) -> Generator[None]:
        """Compute what free GPUs are worth, in steps of milliseconds."""
        yield from self._made().appraise()

    def best(self, pool: Collection[str], must: Collection[str], size: int) -> tuple[str, ...] | None:
        """Return the best set with `must` in it, in ring order; `None` when the pool is too small."""
        scorer = self._made()
        scorer.doubtful = self.doubtful
        return scorer.best(pool, must, size)

    def ring(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return these GPUs in ring order; the lowest first where no order is better than another."""
        uuids = sorted(gpus)
        positions = [position for position, gpu in enumerate(self._node.gpus) if gpu.uuid in uuids]
        if not self._is_ring_in_any_order(positions):
            return self._made().ring(uuids)
        ordered = tuple(self._node.gpus[position].uuid for position in positions)
        return (*ordered, *(gpu for gpu in uuids if gpu not in ordered))

    def _is_ring_in_any_order(self, positions: Collection[int]) -> bool:
        """Whether there are few of them, or all have equally many links to the NVSwitch and none to each other."""
        if len(positions) <= _ALWAYS_A_RING:
            return True
        gpus = [self._node.gpus[position] for position in positions]
        alike = {(gpu.model, gpu.compute_capability, gpu.switch_links) for gpu in gpus}
        return len(alike) == 1 and all(
            self._node.nvlinks(*pair) and not self._node.pairs[pair].nvlinks for pair in combinations(positions, 2)
        )

    def _made(self) -> Scorer:
        if self._scorer is None:
            # With it comes networkx, a sixth of the agent's memory on every node. It takes a fifth of a second, once.
            from agent.plugin.choice.best import Scorer

            self._scorer = Scorer(self._node)
            self._needed(self)
        return self._scorer
