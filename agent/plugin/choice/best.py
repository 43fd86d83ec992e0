"""The choice of last resort, by the same `decide` as everywhere else, and the order of GPUs on their ring."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable

from topology.bandwidth.predict import ring_order
from topology.node.model import NodeTopology
from topology.node.status import MigStrategy
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest


class Scorer:
    """One node's GPUs by UUID; compiling takes a while, so make it before anybody waits.

    Until somebody has gone through `appraise`, a formula says what the GPUs that stay free are worth, and breaks ties.
    """

    def __init__(self, node: NodeTopology) -> None:
        self._node = node
        self._uuids = node.devices
        self._profiles = {mig_slice.uuid: mig_slice.asked_as for mig_slice in node.slices}
        self._positions = {uuid: position for position, uuid in enumerate(self._uuids)}
        self._class = TopologyClass(node)
        self.doubtful: Collection[str] = ()
        """GPUs that are chosen last among equals, as far as is known now."""

    def appraise(self) -> Generator[None]:
        """Compute what free GPUs are worth, as the extender does for the built-in mix of pods, in steps of milliseconds.

        Most machines take a fraction of a second, one with 2,000 unlike sets a minute. Answers change with the last step, all
        at once, so they may be asked for on another thread.
        """
        appraised = TopologyClass(self._node)
        yield from appraised.appraise(appraised.weights)
        self._class = appraised

    def best(self, pool: Collection[str], must: Collection[str], size: int) -> tuple[str, ...] | None:
        """Return the best `size` GPUs of the pool in ring order, `must` among them; `None` when there are too few.

        Or slices, of which a pool is of one profile.
        """
        profile = next((self._profiles[device] for device in (*must, *pool) if device in self._profiles), "")
        request = GpuRequest(size, profile=profile) if profile else GpuRequest.plain(size)
        situation = Situation(
            self._class,
            self._mask(pool),
            must_include=self._mask(must),
            doubtful=self._mask(self.doubtful),
            mig=MigStrategy.MIXED if profile else MigStrategy.NONE,
        )
        verdict = decide(situation, request)
        return self._named(verdict.gpus) if isinstance(verdict, Placement) else None

    def ring(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return the GPUs as neighbours on their best ring; any that the topology does not know come last."""
        uuids = sorted(gpus)
        mask = self._mask(gpu for gpu in uuids if gpu not in self._profiles)
        ordered = self._named(ring_order(self._class.wiring, mask)) if mask else ()
        return (*ordered, *(gpu for gpu in uuids if gpu not in ordered))

    def _mask(self, gpus: Iterable[str]) -> int:
        return sum(1 << self._positions[gpu] for gpu in set(gpus) if gpu in self._positions)

    def _named(self, positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._uuids[position] for position in positions)
