"""Pods that share GPUs, bound beside pods that take whole ones: never too much, no GPU whole and shared, and all that fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import BindPod, Conflict
from extender.binding.outcome import Bound, Failure, NotBound
from extender.cluster.candidates.holds import Hold
from tests.extender.binds import kinds
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.annotations.records import Claim, decode_ledger, decode_placement
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

MACHINE, GPUS, SHARE_GIB = "v100-sxm2-4", 4, 10
ON = Sharing(max_gpus=GPUS, limits=Limits.CGROUP)


def sharing(
    world: World,
    sharing: Sharing | None = ON,
    mode: Mode = Mode.ENFORCE,
    beyond: tuple[int, ...] = (0,) * GPUS,
    sick: tuple[int, ...] = (),
) -> Replica:
    """Let the node's agent say this, and return an extender that knows it."""
    gpus = tuple(
        GpuStatus(gpu.uuid, healthy=i not in sick, share_gib=SHARE_GIB, beyond_shares_gib=beyond[i])
        for i, gpu in enumerate(machine(MACHINE, host="n1").gpus)
    )
    plugin = DevicePluginStatus(mode, ready=True, sharing=sharing)
    generation = int(world.store.resource_version)
    world.annotate_node("n1", status=encode_status(NodeGpuStatus(generation, gpus, device_plugin=plugin)))
    return Replica(world)


def share(world: World, name: str, *gib: int, whole: int = 0, **annotations: str) -> None:
    asked = [{keys.SHARE_RESOURCE: str(each)} for each in gib] if gib else [{keys.GPU_RESOURCE: str(whole)}]
    containers = [{"name": f"c{i}", "resources": {"limits": limits}} for i, limits in enumerate(asked)]
    ours = {keys.USER_PREFIX + key.replace("_", "-"): text for key, text in annotations.items()}
    world.store.create(
        PODS, "default", {"metadata": {"name": name, "annotations": ours}, "spec": {"containers": containers}}
    )


def end(world: World, name: str) -> None:
    names = [each["name"] for each in world.store.get(PODS, "default", name)["spec"]["containers"]]
    statuses = [{"name": each, "state": {"terminated": {}}} for each in names]
    world.patch(PODS, name, {"status": {"phase": "Succeeded", "containerStatuses": statuses}}, "status")


def claims(world: World) -> tuple[Claim, ...]:
    return decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]).claims


def record(world: World, name: str) -> Any:
    return decode_placement(world.store.get(PODS, "default", name)["metadata"]["annotations"][keys.PLACEMENT])


def test_a_share_is_claimed_and_recorded_with_amount_class_ceiling_and_what_holds_it() -> None:
    """In two writes, as a whole GPU."""
    world = World(machine_name=MACHINE)
    share(world, "p", 4, sharing_class="prod", gpu_compute_percent="25")
    replica = sharing(world)
    assert isinstance(replica.bind("p"), Bound)
    assert kinds(world) == ["SwapLedger", "BindPod"]
    (claim,) = claims(world)
    assert (claim.memory_gib, claim.sharing_class, claim.compute_percent, claim.container) == (4, "prod", 25, "c0")
    found = record(world, "p")
    assert (found.containers, found.memory_gib, found.limits) == ({"c0": (claim.gpu,)}, {"c0": 4}, Limits.CGROUP)


@pytest.mark.parametrize(
    ("told", "mode", "says"),
    [
        (None, Mode.ENFORCE, "GPUs are not shared there"),
        (ON, Mode.OBSERVE, "GPUs are shared only in mode enforce"),
        (Sharing(0, Limits.NONE, ("limits are required",)), Mode.ENFORCE, "GPUs cannot be shared there just now"),
    ],
)
def test_a_share_is_refused_where_the_node_shares_nothing(told: Sharing | None, mode: Mode, says: str) -> None:
    """With the reason, and never passed over."""
    world = World(machine_name=MACHINE)
    share(world, "p", 4)
    assert sharing(world, told, mode).bind("p") == NotBound(Failure.NO_FIT, says)


def test_a_share_that_is_held_for_another_pod_leaves_the_rest_of_its_gpu() -> None:
    """And the sum is right: what is held is not given twice while there is a choice."""
    world = World(machine_name=MACHINE)
    for name in ("p", "q", "r"):
        share(world, name, 5)
    replica = sharing(world, replace(ON, max_gpus=2))
    replica.state.holds.put("other", Hold("n1", 0b1, 60.0, shares=((0, 5, ""),)))
    replica.bind("p")
    replica.catch_up()
    assert {claim.gpu for claim in claims(world)} == {machine(MACHINE, host="n1").gpus[0].uuid}
    replica.bind("q")
    replica.catch_up()
    assert len({claim.gpu for claim in claims(world)}) == 2, "the other half of GPU 0 is held"


def test_a_pod_keeps_the_shares_that_it_has_claimed() -> None:
    """Whoever died after the claim: the next one binds to the same GPU, and claims once."""
    world = World(machine_name=MACHINE)
    share(world, "p", 4, 3)
    replica = sharing(world)
    steps = replica.start_bind("p")
    steps.send(world.execute(next(steps)))
    steps.close()
    before = claims(world)
    again = Replica(world)
    assert isinstance(again.bind("p"), Bound)
    assert {(each.gpu, each.container, each.memory_gib) for each in claims(world)} == {
        (each.gpu, each.container, each.memory_gib) for each in before
    }


def test_shares_that_are_spread_otherwise_over_the_same_gpus_are_fenced_first() -> None:
    """A Binding on its way carries the spread that it was planned with, and what no claim says of it could be given again."""
    world = World(machine_name=MACHINE)
    replica = sharing(world, replace(ON, max_gpus=2))
    for name, gib in (("x", 6), ("y", 8)):
        share(world, name, gib)
        replica.catch_up()
        assert isinstance(replica.bind(name), Bound)
    share(world, "p", 2, 2, 2)
    replica.catch_up()
    steps = replica.start_bind("p")
    on_its_way = steps.send(world.execute(next(steps)))
    steps.close()
    before = Counter(claim.gpu for claim in claims(world) if claim.name == "p")
    for ended, name, gib in (("x", "x2", 5), ("y", "y2", 6)):
        end(world, ended)
        share(world, name, gib)
        replica.catch_up()
        assert isinstance(replica.bind(name), Bound)
    late = Replica(world)
    again = late.start_bind("p")
    intent = again.send(world.execute(next(again)))
    while not isinstance(intent, BindPod):
        intent = again.send(world.execute(intent))
    after = Counter(claim.gpu for claim in claims(world) if claim.name == "p")
    assert before != after
    assert before.keys() == after.keys()
    assert isinstance(world.execute(on_its_way), Conflict)


def test_an_init_container_claims_what_it_needs_beyond_those_after_it() -> None:
    """On the same GPU; the record says what each asked for."""
    world = World(machine_name=MACHINE)
    limits = {name: {"limits": {keys.SHARE_RESOURCE: str(gib)}} for name, gib in (("init", 8), ("main", 5))}
    spec = {
        "initContainers": [{"name": "init", "resources": limits["init"]}],
        "containers": [{"name": "main", "resources": limits["main"]}],
    }
    world.store.create(PODS, "default", {"metadata": {"name": "p"}, "spec": spec})
    assert isinstance(sharing(world).bind("p"), Bound)
    assert {claim.container: claim.memory_gib for claim in claims(world)} == {"init": 3, "main": 5}
    assert record(world, "p").memory_gib == {"init": 8, "main": 5}
    assert record(world, "p").containers["init"] == record(world, "p").containers["main"]


@dataclass
class Book:
    """What is taken of each GPU, kept by hand."""

    max_gpus: int
    beyond: tuple[int, ...]
    sick: tuple[int, ...]
    whole: set[int] = field(default_factory=set)
    shares: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    classes: dict[int, str] = field(default_factory=dict)

    def takes_shares(self, gib: tuple[int, ...], class_: str, same: str) -> bool:
        for chosen in product(range(GPUS), repeat=len(gib)):
            if (same == "required" and len(set(chosen)) > 1) or (same == "never" and len(set(chosen)) < len(gib)):
                continue
            sums = Counter[int]()
            for position, each in zip(chosen, gib, strict=True):
                sums[position] += each
            if all(self._has_room(at, each, class_) for at, each in sums.items()) and (
                len(self.classes.keys() | sums.keys()) <= self.max_gpus or sums.keys() <= self.classes.keys()
            ):
                return True
        return False

    def _has_room(self, at: int, gib: int, class_: str) -> bool:
        is_open = at not in self.whole and at not in self.sick and self.classes.get(at, class_) == class_
        return is_open and self.shares[at].total() + self.beyond[at] + gib <= SHARE_GIB

    def takes_whole(self, count: int) -> bool:
        return GPUS - len(self.whole | self.classes.keys() | set(self.sick)) >= count

    def read(self, ledger: tuple[Claim, ...]) -> None:
        """Take in the ledger, and refuse what must never be in one."""
        at = {gpu.uuid: i for i, gpu in enumerate(machine(MACHINE, host="n1").gpus)}
        self.whole = {at[claim.gpu] for claim in ledger if claim.memory_gib is None}
        self.shares, self.classes = defaultdict(Counter), {}
        for claim in ledger:
            if claim.memory_gib is not None:
                self.shares[at[claim.gpu]][claim.uid + claim.container] += claim.memory_gib
                assert self.classes.setdefault(at[claim.gpu], claim.sharing_class) == claim.sharing_class
        assert not self.whole & self.classes.keys(), "a GPU is whole and shared"
        assert all(taken.total() + self.beyond[i] <= SHARE_GIB for i, taken in self.shares.items() if taken)
        assert len(self.classes) <= self.max_gpus


steps = st.one_of(
    st.tuples(st.just("whole"), st.integers(1, 3)),
    st.tuples(
        st.just("share"),
        st.lists(st.integers(1, SHARE_GIB), min_size=1, max_size=3).map(tuple),
        st.sampled_from(("", "prod")),
        st.sampled_from(("preferred", "required", "never")),
    ),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("sick"), st.integers(0, GPUS - 1)),
    st.tuples(st.just("dies"), st.integers(1, SHARE_GIB)),
)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(steps, max_size=10),
    st.integers(1, GPUS),
    st.sampled_from(((0, 0, 0, 0), (4, 0, 0, 0))),
)
def test_what_fits_is_bound_and_nothing_else(script: list[Any], max_gpus: int, beyond: tuple[int, ...]) -> None:
    """Against a book that tries every GPU for every share: pods come and end, binds die after the claim, GPUs fall sick."""
    world, book, running = World(machine_name=MACHINE), Book(max_gpus, beyond, ()), list[str]()
    replica = sharing(world, replace(ON, max_gpus=max_gpus), beyond=beyond)
    for number, step in enumerate(script):
        name = f"p{number}"
        if step[0] == "end":
            if running:
                ended = running.pop(step[1] % len(running))
                end(world, ended)
                replica.reconcile(rounds=1)
                book.read(claims(world))
                assert ended not in {claim.name for claim in claims(world)}
            continue
        if step[0] == "sick":
            book.sick += (step[1],)
            replica = sharing(world, replace(ON, max_gpus=max_gpus), beyond=beyond, sick=book.sick)
            continue
        if step[0] == "dies":
            share(world, name, step[1])
            replica.catch_up()
            claim = next((intent for intent in [next(replica.start_bind(name), None)] if intent), None)
            assert (claim is not None) == book.takes_shares((step[1],), "", "preferred")
            if claim is not None:
                world.execute(claim)
            replica.catch_up()
            book.read(claims(world))
            continue
        if step[0] == "whole":
            share(world, name, whole=step[1])
            fits = book.takes_whole(step[1])
        else:
            _, gib, class_, same = step
            share(world, name, *gib, same_gpu=same, **({"sharing_class": class_} if class_ else {}))
            fits = book.takes_shares(gib, class_, same if len(gib) > 1 else "preferred")
        replica.catch_up()
        outcome = replica.bind(name)
        assert isinstance(outcome, Bound) == fits, outcome
        if fits:
            running.append(name)
        replica.catch_up()
        book.read(claims(world))
        at = {gpu.uuid: i for i, gpu in enumerate(machine(MACHINE, host="n1").gpus)}
        assert not {at[claim.gpu] for claim in claims(world) if claim.name == name} & {*book.sick}
