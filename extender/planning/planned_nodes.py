"""The nodes as they will be when all that is planned has come true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from heapq import merge
from itertools import islice
from typing import Final, Literal, Protocol

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.candidates.shape import Shape
from extender.cluster.candidates.shape_index import Key, Order, ShapeIndex
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.quantities import cpu_milli, memory_bytes
from topology.effort import Search
from topology.placement.decide import Decision
from topology.placement.verdict import Placement
from topology.request.domains import Location
from topology.request.gpu_request import GpuRequest

LOOKED_AT: Final = 500
"""Nodes, best first, before a pod is left to kube-scheduler, which looks at all of them side by side."""
FILED_AT_ONCE: Final = 64
"""Nodes, in one step: about a millisecond."""
PREPARE_STEPS: Final = 10_000
"""Of decisions on these, in one step: about 5 ms."""
FEW: Final = 256
"""Nodes that are sorted for a pod, and not looked for among all."""


@dataclass(frozen=True, slots=True)
class HostDemand:
    """What pods take of a node besides GPUs."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    @classmethod
    def of(cls, pod: Pod) -> HostDemand:
        """Read what one pod requests."""
        return cls(cpu_milli(pod), memory_bytes(pod))

    def __add__(self, more: HostDemand) -> HostDemand:
        return HostDemand(self.cpu_milli + more.cpu_milli, self.memory_bytes + more.memory_bytes)

    def __sub__(self, less: HostDemand) -> HostDemand:
        return HostDemand(self.cpu_milli - less.cpu_milli, self.memory_bytes - less.memory_bytes)


NO_DEMAND: Final = HostDemand()


class _Look(Enum):
    """What a search for a place answers that goes on in the next step."""

    NOT_YET = auto()


class Nodes(Protocol):
    """Those that a queue is planned over, as they are now."""

    @property
    def names(self) -> Container[str]:
        """All of them."""
        ...

    @property
    def shapes(self) -> ShapeIndex:
        """The same by shape."""
        ...

    def lets(self, pod: Pod, node: str, demand: HostDemand, alternative: int) -> bool | None:
        """Whether all but free GPUs lets the pod go there; `None`: that takes longer than one step, so ask again in the next.

        Args:
            pod: The pod.
            node: Where.
            demand: Its own, and that of the pods that are planned there.
            alternative: Which of its requests is to be met.

        """
        ...


class PlannedNodes:
    """Nodes of which GPUs are taken next to all others, which stand where filter finds them; both are read best first.

    Part of a plan can be undone. GPUs can be kept, and then only pods that may enter get them.
    Nodes may leave the cluster while a plan is made in steps.
    """

    def __init__(self, nodes: Nodes, taken: Mapping[str, Held]) -> None:
        """Begin with GPUs of some nodes that are on their way to somebody."""
        self._nodes, self._names, self._shapes = nodes, nodes.names, nodes.shapes
        self._taken: dict[str, Held] = {}
        self._planned: dict[str, HostDemand] = {}
        self._kept: dict[str, Held] = {}
        self._later: dict[str, Shape] = {}
        """Node → its shape once pods have given back what they hold; as of one moment, or a share might count twice."""
        self._released: Mapping[str, HostDemand] | None = {}
        """Node → what pods will have given back besides GPUs; `None`: nobody knows."""
        self._touched = self._shapes.like()
        """The nodes of which anything is taken or kept, without what is taken."""
        self._beside_kept = self._shapes.like()
        """The same, without what is kept, too; filled once anything is."""
        self._steps: list[_Step] = []
        for node, held in taken.items():
            if node in self._names:
                self._take(node, held, NO_DEMAND)

    def later(
        self, given_back: Mapping[str, Held], released: Mapping[str, HostDemand] | None = None
    ) -> Search[PlannedNodes]:
        """Return the nodes as they will be once pods have given this back, and what else they had.

        Where `released` is `None`, CPU and memory are taken for enough. What pods give back counts as of the first step.
        """
        later = PlannedNodes(self._nodes, {})
        later._released = released if given_back else {}
        later._taken = dict(self._taken)
        shapes = {name: shape for name in given_back if (shape := self._shape_of(name))}
        for number, (name, shape) in enumerate(shapes.items()):
            if number % FILED_AT_ONCE == 0:
                yield
            later._later[name] = shape.after(given_back[name])
        yield from later._file_all({*shapes, *later._taken})
        return later

    def place(
        self,
        pod: Pod,
        request: GpuRequest,
        avoided: Collection[str] = (),
        *,
        among: frozenset[str] | None = None,
        enters: bool = False,
    ) -> Search[tuple[str, Placement] | None]:
        """Give the pod the best GPUs there are, as filter and prioritize would; `None` where it is not known which.

        A step ends where a node takes longer; the next one begins with the best node again, as nodes may have changed.

        Args:
            pod: The pod.
            request: What it asks for.
            avoided: Nodes where it does not go.
            among: The nodes where it may go; `None`: all.
            enters: Whether it may have GPUs that are kept.

        """
        yield from self.prepare(request, enters=enters)
        while (place := self._place(pod, request, avoided, among, enters=enters)) is _Look.NOT_YET:
            yield
        return place

    def prepare(self, request: GpuRequest, *, enters: bool, counts: bool = False) -> Search[None]:
        """Decide on the nodes that are filed here, in steps; `counts`: count how many such pods fit there, too."""
        while not self._filed(enters=enters).prepare(request, PREPARE_STEPS, counts=counts):
            yield

    def _filed(self, *, enters: bool) -> ShapeIndex:
        return self._touched if enters or not self._kept else self._beside_kept

    def _place(
        self, pod: Pod, request: GpuRequest, avoided: Collection[str], among: frozenset[str] | None, *, enters: bool
    ) -> tuple[str, Placement] | Literal[_Look.NOT_YET] | None:
        demand = HostDemand.of(pod)
        touched = self._filed(enters=enters)
        order, touched_order = self._shapes.order(request, pod.metadata.namespace), touched.order(request)
        best_first = self._best_first(order, touched, touched_order, among)
        for *_, name in islice(best_first, LOOKED_AT):
            if name in avoided:
                continue
            lets = self._nodes.lets(pod, name, self._needed(name, demand), request.alternative)
            if lets is None:
                return _Look.NOT_YET
            if lets:
                bucket = touched.bucket_of(name)
                verdicts = touched_order.verdicts
                if bucket is None:
                    bucket, verdicts = self._shapes.bucket_of(name), order.verdicts
                verdict = verdicts[bucket.serial] if bucket else None
                if not isinstance(verdict, Placement):
                    return None
                self._take(name, Held.of(verdict, request), demand)
                return name, verdict
        return None

    def place_on(self, pod: Pod, request: GpuRequest, node: str, held: Held) -> Placement | None:
        """Give the pod exactly this of a node; `None` where it may not have it, or all else does not let it go there.

        Where that takes longer than one step, the answer is `None`.
        """
        shape, demand = self._shape_of(node), HostDemand.of(pod)
        if shape is None or not self._nodes.lets(pod, node, self._needed(node, demand), request.alternative):
            return None
        verdict = shape.beside(self._taken.get(node, NOTHING)).only(held).decide(request)
        if not isinstance(verdict, Placement):
            return None
        self._take(node, Held.of(verdict, request), demand)
        return verdict

    def fitting(
        self,
        request: GpuRequest,
        namespace: str,
        names: frozenset[str],
        locations: Mapping[str, Location],
        *,
        enters: bool,
    ) -> Counter[Location]:
        """Return how many pods with this request the GPUs of each location could take; CPU and memory are not counted."""
        touched = self._filed(enters=enters)
        changed = self._changed
        pods = Counter[Location]()
        orders = self._shapes.order(request, namespace), touched.order(request)
        for order, some in zip(orders, (names - changed, names & changed), strict=True):
            pods += order.fitting(order.census(some, locations))
        return pods

    def decide_after(self, node: str, given_back: Held, request: GpuRequest) -> Decision:
        """Return what a pod would get on a node if this were given back there."""
        shape = self._shape_of(node) or Shape(None, 0)
        return shape.after(given_back).beside(self._taken.get(node, NOTHING)).decide(request)

    def worth_giving_back(self, node: str, request: GpuRequest, most_leave: int) -> tuple[int, int]:
        """Return the devices of a node that may serve a request once they are given back, and those once shares of them are.

        At most so many pods leave a GPU that they share.
        """
        shape = self._shape_of(node)
        if shape is None:
            return 0, 0
        devices, shared = shape.devices_for(request), shape.shares.shared
        emptied = sum(1 << gpu.position for gpu in shared if request.is_share or gpu.pods <= most_leave)
        return devices, devices & emptied

    def gpus_of(self, node: str, held: Held) -> float:
        """Return how many GPUs of a node that is; slices and shares are parts of one."""
        shape = self._shape_of(node)
        topology_class = shape.topology_class if shape else None
        return held.gpus_on(topology_class.node) if topology_class else float(held.touched.bit_count())

    def mark(self) -> int:
        """Return a mark, to which `undo` goes back."""
        return len(self._steps)

    def undo(self, mark: int) -> Search[None]:
        """Take back all that was placed since then."""
        while len(self._steps) > mark:
            if len(self._steps) % FILED_AT_ONCE == 0:
                yield
            step = self._steps.pop()
            if step.taken:
                self._taken[step.node] = step.taken
            else:
                del self._taken[step.node]
            self._planned[step.node] = step.planned
            self._file(step.node)

    def keep(self, kept: Mapping[str, Held]) -> Search[None]:
        """Keep these GPUs, whether they are free or still to be freed, from all that may not enter."""
        before, self._kept = self._kept, {node: held for node, held in kept.items() if node in self._names}
        yield from self._file_all({*self._taken, *self._kept, *before})

    def _best_first(
        self, order: Order, touched: ShapeIndex, touched_order: Order, among: frozenset[str] | None
    ) -> Iterator[Key]:
        def is_plain(name: str) -> bool:
            return touched.bucket_of(name) is None

        if among is not None and len(among) <= FEW:
            plain = order.best_of(filter(is_plain, among), self._shapes.bucket_of)
            return merge(plain, touched_order.best_of(among, touched.bucket_of))
        names = self._names if among is None else among
        return merge(
            (key for key in order.best_first(names) if is_plain(key[-1])),
            touched_order.best_first(names),
        )

    @property
    def _changed(self) -> frozenset[str]:
        """The nodes that are filed here."""
        return frozenset(self._taken.keys() | self._kept.keys() | self._later.keys())

    def _needed(self, name: str, demand: HostDemand) -> HostDemand:
        """Return what pods that are planned onto a node need of it, beyond what others give back there."""
        if self._released is None:
            return NO_DEMAND
        return demand + self._planned.get(name, NO_DEMAND) - self._released.get(name, NO_DEMAND)

    def _take(self, name: str, held: Held, demand: HostDemand) -> None:
        taken, planned = self._taken.get(name, NOTHING), self._planned.get(name, NO_DEMAND)
        self._steps.append(_Step(name, taken, planned))
        self._taken[name], self._planned[name] = taken + held, planned + demand
        self._file(name)

    def _file_all(self, names: Iterable[str]) -> Search[None]:
        for number, name in enumerate(names):
            if number % FILED_AT_ONCE == 0:
                yield
            self._file(name)

    def _file(self, name: str) -> None:
        """File a node under what is left of it."""
        shape = self._shape_of(name)
        if shape is None:
            return
        taken, kept = self._taken.get(name, NOTHING), self._kept.get(name, NOTHING)
        is_changed = bool(taken or kept or name in self._later)
        self._touched.put(name, shape.beside(taken) if is_changed else None)
        if self._kept:
            self._beside_kept.put(name, shape.beside(taken + kept) if is_changed else None)

    def _shape_of(self, name: str) -> Shape | None:
        """Return a node's shape without what is planned there; `None` where it is gone."""
        bucket = self._shapes.bucket_of(name) if name in self._names else None
        return (self._later.get(name) or bucket.shape) if bucket else None


@dataclass(frozen=True, slots=True)
class _Step:
    """What a node was like before something was placed there."""

    node: str
    taken: Held
    planned: HostDemand
