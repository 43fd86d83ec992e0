"""Nodes by shape, and shapes by how well they suit a request: kept up node by node, so that a call only looks up."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf

from extender.cluster.candidates.shape import Shape
from topology.fair_cache import FairCache
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, Placement, Rejection
from topology.request.domains import Location
from topology.request.gpu_request import GpuRequest
from topology.value.coming import PodsToCome
from topology.value.fragmentation import DemandProfile, PodKind

Key = tuple[float, int, int, str]
"""Of a node that fits, best first: minus the score, doubtful GPUs for the pod, free GPUs, name.

Fewer free GPUs come first, so that emptier nodes stay whole."""

Merits = tuple[float, int, int]
"""The same without the name: what shapes are compared by."""

GONE = Shape(None, 0, "no node has such GPUs any more")
"""Of a bucket whose class was let go of."""
REQUESTS = 256
"""Different requests whose orders are kept, shared fairly between namespaces; one more costs a decision per shape."""
SHAPE_STEPS = 100
"""Of one decision on a shape, beside searches and values: about 50 microseconds."""
SLICES_STEPS = 1_000
"""The same of a shape with MIG slices, which are chosen without a pause: about half a millisecond."""
MOVES = 512
"""Nodes that changed their shapes: so many are remembered for orders that have not been asked since."""
HEAD = 64
"""Of the best shapes of an order: so many are looked through for those that no node will have again."""


class Bucket:
    """The nodes of one shape."""

    __slots__ = ("is_over", "names", "serial", "shape")

    def __init__(self, serial: int, shape: Shape) -> None:
        self.serial = serial
        self.shape = shape
        self.names: list[str] = []
        """In order."""
        self.is_over = False
        """It is empty, and nodes that come to this shape go to another bucket."""


Move = tuple[str, "Bucket | None", "Bucket | None"]
"""The node, and the buckets that it left and came to."""
Census = Sequence[tuple[Bucket, Counter[Location]]]
"""How many nodes of each shape stand where."""


class ShapeIndex:
    """All nodes, in buckets.

    A bucket that is empty stays for a while: masks come back. What is left of shared GPUs seldom does.
    """

    def __init__(self) -> None:
        self._buckets: dict[Shape, Bucket] = {}
        self._serials: list[Bucket] = []
        self._bucket_of: dict[str, Bucket] = {}
        self._orders = FairCache[GpuRequest, Order](REQUESTS)
        self._nodes_of: Counter[TopologyClass | None] = Counter()
        self._open_nodes_of: Counter[TopologyClass] = Counter()
        self._moves: list[Move] = []
        self._moves_before = 0
        """Those that are forgotten."""
        self._to_come: PodsToCome | None = None
        self.gains = 0
        """How often a node has come, or may have got room that it did not have."""

    def put(self, name: str, shape: Shape | None) -> None:
        """File a node under its shape; `None` takes it out."""
        before = self._bucket_of.get(name)
        if before is not None:
            if before.shape == shape:
                return
            del self._bucket_of[name]
            del before.names[bisect_left(before.names, name)]
            if not before.names and before.shape.shares.shared:
                before.is_over = True
                del self._buckets[before.shape]
        if shape is not None:
            self._nodes_of[shape.topology_class] += 1
            if shape.topology_class is not None and shape.closed is None:
                self._open_nodes_of[shape.topology_class] += 1
            if len(self._serials) > 2 * len(self._bucket_of) + 1000:
                self._compact()
            bucket = self._buckets.get(shape) or self._add(shape)
            self._bucket_of[name] = bucket
            insort(bucket.names, name)
            self.gains += _may_have_gained(before.shape if before else None, shape)
        self._moves.append((name, before, self._bucket_of.get(name)))
        if len(self._moves) > MOVES:
            self._forget_moves()
        if before is not None:
            self._nodes_of[before.shape.topology_class] -= 1
            self._leave_open(before.shape)
            if not self._nodes_of[before.shape.topology_class]:
                self._forget_class(before.shape.topology_class)

    def order(self, request: GpuRequest, namespace: str = "") -> Order:
        """Return how the shapes suit a pod of this namespace that asks for this."""
        order = self._begun(request, namespace)
        order.catch_up()
        return order

    def to_come(self, shape: Shape) -> DemandProfile | None:
        """Return the same as the orders do, for a decision on one node."""
        return _met_by(shape, self._to_come)

    def prepare(self, request: GpuRequest, steps: int, namespace: str = "", *, counts: bool = False) -> bool:
        """Decide for so many steps on shapes that are new, and count how many pods fit there; returns whether none are left."""
        order = self._begun(request, namespace)
        return order.prepare(steps) and (not counts or order.count(steps))

    def _begun(self, request: GpuRequest, namespace: str) -> Order:
        order = self._orders.use(request, namespace)
        if order is None:
            order = Order(request, self._to_come)
            self._orders.put(request, order, namespace)
        order.follow(self._serials, self._moves, self._moves_before)
        return order

    def forget_verdicts(self, to_come: Sequence[tuple[PodKind, float]] = ()) -> None:
        """Ask for the decisions on the nodes there are anew: they would come out differently, or the pods to come are others.

        `to_come` are the kinds of these with their shares.
        """
        gpus = Counter[str]()
        for topology_class, nodes in self._nodes_of.items():
            for gpu in topology_class.node.gpus if topology_class else ():
                gpus[gpu.model] += nodes
        self._to_come = PodsToCome(to_come, gpus) if to_come else None
        self._orders.clear()
        self._compact()

    def like(self) -> ShapeIndex:
        """Return an empty one, whose verdicts count with the same pods to come."""
        index = ShapeIndex()
        index._to_come = self._to_come
        return index

    def bucket_of(self, name: str) -> Bucket | None:
        """Return the bucket of a node, `None` when it is not known."""
        return self._bucket_of.get(name)

    def buckets_of(self, names: Iterable[str]) -> Iterator[Bucket | None]:
        """Return the bucket of each node, `None` where it is not known."""
        return map(self._bucket_of.get, names)

    def __len__(self) -> int:
        """Return the number of buckets, empty ones too."""
        return len(self._serials)

    def _add(self, shape: Shape) -> Bucket:
        bucket = self._buckets[shape] = Bucket(len(self._serials), shape)
        self._serials.append(bucket)
        return bucket

    def _leave_open(self, shape: Shape) -> None:
        """Stop the searches of a class when its last node that takes pods is of this shape no more."""
        topology_class = shape.topology_class
        if topology_class is None or shape.closed is not None:
            return
        self._open_nodes_of[topology_class] -= 1
        if not self._open_nodes_of[topology_class]:
            del self._open_nodes_of[topology_class]
            topology_class.stop_searching()

    def _forget_class(self, topology_class: TopologyClass | None) -> None:
        """Let go of a class that no node has any more: one that changes all the time must not fill the memory."""
        del self._nodes_of[topology_class]
        if topology_class is None:
            return
        for bucket in self._serials:
            if bucket.shape.topology_class is topology_class:
                self._buckets.pop(bucket.shape, None)
                bucket.shape = GONE
        self._forget_moves()  # of buckets that have lost their shapes nobody can say where they were
        topology_class.forget()

    def _forget_moves(self) -> None:
        self._moves_before += len(self._moves)
        self._moves.clear()

    def _compact(self) -> None:
        """Forget the empty buckets."""
        self._forget_moves()
        filled = [bucket for bucket in self._serials if bucket.names]
        for order in self._orders.values():
            order.keep(filled)
        for bucket in self._serials:
            bucket.is_over = not bucket.names
        for serial, bucket in enumerate(filled):
            bucket.serial = serial
        self._serials = filled
        self._buckets = {bucket.shape: bucket for bucket in filled}


def _may_have_gained(before: Shape | None, shape: Shape) -> bool:
    """Whether pods may fit on a node that did not when it had another shape; `None`: it is new."""
    if shape.closed is not None:
        return False
    if before is None or before.closed is not None:
        return True
    if shape.free & ~before.free or (shape.cpu_milli or 0) > (before.cpu_milli or 0):
        return True
    like_before = replace(
        shape,
        free=before.free,
        perhaps_free=before.perhaps_free,
        doubtful=before.doubtful,
        cpu_milli=before.cpu_milli,
    )
    return like_before != before


class Order:
    """The verdicts on one request for all shapes, and those that fit from best to worst."""

    def __init__(self, request: GpuRequest, to_come: PodsToCome | None) -> None:
        self.verdicts: list[Placement | Rejection] = []
        """By the serial of the bucket."""
        self._to_come = to_come
        self._request = request
        self._fitting: dict[int, int] = {}
        """How many pods fit, by the serial too, of those that somebody has asked about."""
        self._counts: dict[object, int] = {}
        """The same by what of the shape makes a difference."""
        self._uncounted: deque[Bucket] = deque()
        self._new: deque[Bucket] = deque()
        """Those that nobody has decided on yet; simple machines come first."""
        self._undecided: dict[Bucket, int] = {}
        """Those without nodes, and those of which the class had no answer when its `news` was so much."""
        self._seen: dict[object, Placement | Rejection] = {}
        """The verdicts on the new ones so far, by what of them makes a difference."""
        self._merits: list[Merits] = []
        """Of all shapes that fit; rising."""
        self._alike: dict[Merits, list[Bucket]] = {}
        """Those that only their names tell apart together."""
        self._names: dict[Merits, list[str]] = {}
        """Of the nodes of all these, in order, where somebody has asked: kept up with the moves of nodes."""
        self._moves_seen = 0

    def follow(self, buckets: list[Bucket], moves: Sequence[Move], moves_before: int) -> None:
        """Take note of the nodes that moved and the shapes that are new since the last call."""
        self._follow(moves, moves_before)
        if came := buckets[len(self.verdicts) :]:
            self.verdicts += [UNDECIDED] * len(came)
            self._new = deque(sorted([*self._new, *came], key=lambda bucket: bucket.shape.breadth))

    def prepare(self, steps: float) -> bool:
        """Decide for so many steps on the shapes that are new; returns whether none are left."""
        in_vain = set[object]()
        while self._new and steps > 0:
            bucket = self._new.popleft()
            steps -= _least_steps(bucket.shape) + self._decide(bucket, in_vain)
        return not self._new

    def count(self, steps: int) -> bool:
        """Count for so many steps how many pods fit on the shapes; returns whether none are left."""
        while self._uncounted and steps > 0:
            bucket = self._uncounted.popleft()
            before = _spent(bucket.shape, None)
            decisions = min(self._pods(bucket), bucket.shape.free.bit_count()) if bucket.names else 0
            steps -= _least_steps(bucket.shape) * (1 + decisions) + _spent(bucket.shape, None) - before
        return not self._uncounted

    def catch_up(self) -> None:
        """Decide on all shapes that are new, and on those that had no answer and may have one by now."""
        in_vain = set[object]()
        for bucket in [undecided for undecided, news in self._undecided.items() if _may_be_answered(undecided, news)]:
            del self._undecided[bucket]
            self._decide(bucket, in_vain)
        self.prepare(inf)
        self._seen.clear()
        for merits in self._merits[:HEAD]:
            if all(bucket.is_over for bucket in self._alike[merits]):
                self._drop(merits)

    def _decide(self, bucket: Bucket, in_vain: set[object]) -> int:
        """Decide on one shape, and return what searches and values have cost.

        What of others had no answer in the same go is in `in_vain`.
        """
        if not bucket.names:
            self._undecided[bucket] = -1
            return 0
        shape = bucket.shape
        news, to_come = shape.topology_class.news if shape.topology_class else 0, self.to_come(shape)
        links = shape.seen_by(self._request, counts=False)
        seen = links if to_come is None else shape.seen_by(self._request, counts=True)
        verdict, before = self._seen.get(seen) if seen is not None else None, _spent(shape, to_come)
        if verdict is None:
            verdict = UNDECIDED if links in in_vain else shape.decide(self._request, to_come)
        self.verdicts[bucket.serial] = verdict
        if verdict is UNDECIDED:
            self._undecided[bucket] = news
            if links is not None:
                in_vain.add(links)
        elif seen is not None:
            self._seen[seen] = verdict
        if isinstance(verdict, Placement):
            self._rank(bucket, verdict)
        return _spent(shape, to_come) - before

    def keep(self, filled: Sequence[Bucket]) -> None:
        """Forget all buckets but these, which are about to be numbered anew in their order."""
        self.verdicts = [self.verdicts[bucket.serial] for bucket in filled if bucket.serial < len(self.verdicts)]
        numbers = {bucket.serial: number for number, bucket in enumerate(filled)}
        self._fitting = {numbers[old]: pods for old, pods in self._fitting.items() if old in numbers}
        self._undecided = {bucket: since for bucket, since in self._undecided.items() if bucket.names}
        self._new = deque(bucket for bucket in self._new if bucket.names)
        self._uncounted = deque(bucket for bucket in self._uncounted if bucket.names)
        self._counts.clear()
        self._names.clear()
        for merits, buckets in [*self._alike.items()]:
            self._alike[merits] = [bucket for bucket in buckets if bucket.names]
            if not self._alike[merits]:
                self._drop(merits)

    def _follow(self, moves: Sequence[Move], moves_before: int) -> None:
        """Let the lists of names follow the nodes; those of buckets that are not ranked yet are in none."""
        if self._moves_seen < moves_before:
            self._names.clear()
        for name, left, came in moves[max(0, self._moves_seen - moves_before) :] if self._names else ():
            for bucket in (left, came):
                names = self._names_beside(bucket) if bucket is not None else None
                if names is not None and bucket is came:
                    insort(names, name)
                elif names is not None:
                    del names[bisect_left(names, name)]
        self._moves_seen = moves_before + len(moves)

    def _names_beside(self, bucket: Bucket) -> list[str] | None:
        verdict = self.verdicts[bucket.serial] if bucket.serial < len(self.verdicts) else UNDECIDED
        return self._names.get(_merits(bucket.shape, verdict)) if isinstance(verdict, Placement) else None

    def _rank(self, bucket: Bucket, verdict: Placement) -> None:
        merits = _merits(bucket.shape, verdict)
        if merits not in self._alike:
            insort(self._merits, merits)
            self._alike[merits] = []
        self._alike[merits].append(bucket)
        self._uncounted.append(bucket)
        if merits in self._names:
            for name in bucket.names:
                insort(self._names[merits], name)

    def _drop(self, merits: Merits) -> None:
        del self._alike[merits]
        self._names.pop(merits, None)
        del self._merits[bisect_left(self._merits, merits)]

    def to_come(self, shape: Shape) -> DemandProfile | None:
        """Return the pods to come that scores count with, as a node of this shape meets them."""
        return _met_by(shape, self._to_come)

    def census(self, names: frozenset[str], locations: Mapping[str, Location]) -> Census:
        """Count the nodes that fit, of those in `names`; linear in these."""
        fitting = (bucket for merits in self._merits for bucket in self._alike[merits] if bucket.names)
        counted = ((bucket, names.intersection(bucket.names)) for bucket in fitting)
        return [(bucket, Counter(map(locations.__getitem__, inside))) for bucket, inside in counted if inside]

    def fitting(self, census: Census) -> Counter[Location]:
        """Return how many pods with this request the nodes of each location could take."""
        by_location: Counter[Location] = Counter()
        for bucket, nodes in census:
            if pods := self._pods(bucket):
                for location, count in nodes.items():
                    by_location[location] += count * pods
        return by_location

    def _pods(self, bucket: Bucket) -> int:
        """Return how many pods fit on a node of this shape."""
        pods = self._fitting.get(bucket.serial)
        if pods is None:
            verdict = self.verdicts[bucket.serial]
            if isinstance(verdict, Rejection) and verdict is not UNDECIDED:
                return 0
            seen = bucket.shape.seen_by(self._request, counts=False)
            pods = self._counts.get(seen) if seen is not None else None
            if pods is None:
                pods, is_all = bucket.shape.how_many_fit(self._request)
                if not is_all:
                    return pods
            self._fitting[bucket.serial] = pods
            if seen is not None:
                self._counts[seen] = pods
        return pods

    def best_first(self, names: Container[str]) -> Iterator[Key]:
        """Yield those of `names` that fit, best first."""
        for merits in self._merits:
            if (listed := self._names.get(merits)) is None:
                alike = self._alike[merits]
                listed = alike[0].names if len(alike) == 1 else self._list(merits)
            for name in listed:
                if name in names:
                    yield *merits, name

    def best_of(self, names: Iterable[str], bucket_of: Callable[[str], Bucket | None]) -> Iterator[Key]:
        """Yield those of a few names that fit, best first: the same, by looking each of them up."""
        buckets = ((name, bucket) for name in names if (bucket := bucket_of(name)) is not None)
        verdicts = ((name, bucket.shape, self.verdicts[bucket.serial]) for name, bucket in buckets)
        keys = [(*_merits(shape, fits), name) for name, shape, fits in verdicts if isinstance(fits, Placement)]
        return iter(sorted(keys))

    def _list(self, merits: Merits) -> list[str]:
        names = self._names[merits] = sorted(chain.from_iterable(bucket.names for bucket in self._alike[merits]))
        return names


def _least_steps(shape: Shape) -> int:
    """Return what a decision on a shape takes beside searches and values."""
    return SLICES_STEPS if shape.topology_class is not None and shape.topology_class.node.slices else SHAPE_STEPS


def _spent(shape: Shape, to_come: DemandProfile | None) -> int:
    """Return what all searches on such machines, and values for these pods to come, have cost so far."""
    searches = shape.topology_class.meter.steps if shape.topology_class is not None else 0
    return searches + (to_come.meter.steps if to_come is not None else 0)


def _merits(shape: Shape, verdict: Placement) -> Merits:
    return -verdict.score, verdict.takes_of(shape.doubtful), shape.free.bit_count()


def _may_be_answered(bucket: Bucket, news: int) -> bool:
    """Whether a shape may be decided on that had no node, or no answer when its class had so much news."""
    of = bucket.shape.topology_class
    return bool(bucket.names) and (of is None or of.news != news or not of.effort.is_bounded)


def _met_by(shape: Shape, to_come: PodsToCome | None) -> DemandProfile | None:
    if to_come is None or shape.topology_class is None or not shape.topology_class.node.gpus:
        return None
    gpu = shape.topology_class.node.gpus[0]
    return to_come.at(gpu.model, max(shape.shares.share_gib, default=(gpu.memory_bytes or 0) >> 30))
