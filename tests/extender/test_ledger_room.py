"""What filter passes on, bind can write into the node's ledger, however full that is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec
import pytest

from benchmarks.simulated.double.resources import NODES, PODS, Object
from extender.binding.outcome import Bound, Failure, NotBound
from extender.cluster.candidates.holds import Held
from extender.cluster.ledger_room import SHARE_CLAIM_BYTES, WHOLE_CLAIM_BYTES
from extender.cluster.objects.kinds import Pod
from extender.verbs.filter_prioritize import filter_nodes
from extender.verbs.wire import ExtenderArgs
from tests.extender.builders import cluster as cluster_of
from tests.extender.builders import gpus, node, pod
from tests.extender.shares import sharing_node
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import Claim, Ledger, encode_ledger
from topology.errors import PayloadError
from topology.formats.catalog import machine
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.claims_left import LEDGER_FULL, ClaimsLeft
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

MACHINE = "hgx-h100"
SHARE_GIB = 78
LONGEST_NAME, LONGEST_LABEL = "n" * 253, "c" * 63


def sharing_world() -> World:
    """Return an API server with one node in mode enforce that shares all of its GPUs."""
    world = World(machine_name=MACHINE)
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(8, Limits.NONE))
    states = tuple(GpuStatus(gpu, share_gib=SHARE_GIB) for gpu in uuids())
    world.tell("n1", NodeGpuStatus(1, states, device_plugin=plugin))
    return world


def uuids() -> tuple[str, ...]:
    """Return the GPUs of the node."""
    return tuple(gpu.uuid for gpu in machine(MACHINE, host="n1").gpus)


def longest(gpu: str, number: int, gib: int | None = 1) -> Claim:
    """Return as long a claim as there is, of a pod that nobody has heard of."""
    uid = f"{number:036d}"
    whole = Claim(gpu, uid, "d" * 63, f"{number:0253d}", LONGEST_LABEL, str(2**64 - 1), exact=True)
    return whole if gib is None else replace(whole, memory_gib=gib, sharing_class="s" * 63, compute_percent=100)


def fill(world: World, claims: tuple[Claim, ...], *, records: bool = True) -> None:
    """Replace the ledger of the node by one with these claims."""
    uid = world.store.get(NODES, "", "n1")["metadata"]["uid"]
    ledger = encode_ledger(Ledger(2, claims, uid, uuids() if records else None))
    with world.unchecked():
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: ledger}}})


def ask(world: World, name: str, limits: list[dict[str, str]], **annotations: str) -> Object:
    """Create a pod whose containers have these limits."""
    containers = [
        {"name": f"{number:02d}{LONGEST_LABEL}"[:63], "resources": {"limits": of}} for number, of in enumerate(limits)
    ]
    metadata = {"name": name, "annotations": annotations}
    return world.store.create(PODS, "default", {"metadata": metadata, "spec": {"containers": containers}})


def passes(replica: Replica, pod: Object) -> bool:
    """Whether filter passes the node on."""
    replica.catch_up()
    args = ExtenderArgs(msgspec.convert(pod, Pod), node_names=["n1"])
    return bool(filter_nodes(replica.state, args, replica.clock()).node_names)


@pytest.mark.parametrize(("gib", "most"), [(None, WHOLE_CLAIM_BYTES), (2**20, SHARE_CLAIM_BYTES)])
def test_no_claim_is_longer_than_it_counts(gib: int | None, most: int) -> None:
    """With the longest names that Kubernetes takes, and a UUID as NVIDIA writes it."""
    first, second = longest(uuids()[0], 1, gib), longest(uuids()[1], 2, gib)
    if gib is None:  # as of a MIG slice, whose claim says of which GPU it is
        first, second = replace(first, parent=uuids()[0]), replace(second, parent=uuids()[1])
    added = len(encode_ledger(Ledger(1, (first, second)))) - len(encode_ledger(Ledger(1, (first,))))
    assert most - 32 < added <= most


def claimed(random: Random) -> tuple[Claim, ...]:
    """Return claims that fill a ledger more or less: shares of two GPUs, and some of the others as a whole."""
    shares, length = random.choice([0, 20, 30, 36, 37, 38, 39, 40, 41]), random.choice([20, 150, 253])
    if length < 253:
        shares *= random.choice([2, 3])
    claims = [replace(longest(uuids()[number % 2], number), name=f"{number:0{length}d}") for number in range(shares)]
    claims += [longest(uuids()[7 - number], 900 + number, None) for number in range(random.choice([0, 0, 1, 4, 6]))]
    while not can_be_written(claims):
        claims.pop(0)
    return tuple(claims)


def can_be_written(claims: list[Claim]) -> bool:
    """Whether a ledger can hold these claims."""
    try:
        encode_ledger(Ledger(2, tuple(claims), "u" * 36, uuids()))
    except PayloadError:
        return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_every_yes_of_filter_can_be_bound(seed: int) -> None:
    """Whatever fills the ledger, and however long the names of the pod are."""
    random = Random(seed)
    world = sharing_world()
    fill(world, claimed(random), records=random.random() < 0.8)
    name = (f"{seed}" + "v" * 253)[: random.choice([5, 100, 253])]
    shares = [{keys.SHARE_RESOURCE: "1"}] * random.choice([1, 1, 2, 5])
    limits = random.choice([shares, [{keys.GPU_RESOURCE: str(random.choice([1, 2, 4]))}]])
    pod = ask(world, name, limits, **{keys.SHARING_CLASS: "v" * 63} if limits is shares else {})
    replica = Replica(world)
    with world.unchecked():
        if passes(replica, pod):
            assert isinstance(outcome := replica.bind(name), Bound), outcome
        else:
            outcome = replica.bind(name)
            assert isinstance(outcome, NotBound)
            assert outcome.failure is Failure.NO_FIT


def test_shares_that_fill_a_ledger_are_refused_by_filter_and_whole_gpus_still_fit() -> None:
    """The pods of one tenant with the longest names: kube-scheduler hears of it before it chooses the node."""
    world = sharing_world()
    number = 0
    while len(encode_ledger(Ledger(2, claims := tuple(longest(uuids()[0], each) for each in range(number + 1))))) < (
        MAX_BYTES - 7 * WHOLE_CLAIM_BYTES - SHARE_CLAIM_BYTES - 1024
    ):
        number += 1
    fill(world, claims[:-1])
    replica, bound = Replica(world), 0
    with world.unchecked():
        while passes(replica, ask(world, f"{bound}{LONGEST_NAME}"[:253], [{keys.SHARE_RESOURCE: "1"}])):
            assert isinstance(replica.bind(f"{bound}{LONGEST_NAME}"[:253]), Bound)
            bound += 1
        assert 0 < bound < 8, "it was nearly full"
        victim = ask(world, "victim", [{keys.SHARE_RESOURCE: "20"}])
        replica.catch_up()
        answer = filter_nodes(
            replica.state, ExtenderArgs(msgspec.convert(victim, Pod), node_names=["n1"]), replica.clock()
        )
        assert answer.failed_and_unresolvable_nodes == {"n1": LEDGER_FULL.sentence}
        assert isinstance(outcome := replica.bind("victim"), NotBound)
        assert outcome.failure is Failure.NO_FIT
        for position in range(1, 7):
            whole = f"{position}w{LONGEST_NAME}"[:253]
            assert passes(replica, ask(world, whole, [{keys.GPU_RESOURCE: "1"}]))
            assert isinstance(replica.bind(whole), Bound)


@pytest.mark.slow
def test_a_pod_replaces_its_own_claims() -> None:
    """A bind that died after its claim is taken up again, though the ledger has no room for one claim more."""
    request, claims = GpuRequest(1, memory_gib=(1,)), [replace(longest(gpus("n1", 0)[0], 0), uid="p")]
    while (view := cluster_of(sharing_node(*claims)).views["n1"]).shape.decide(request) != LEDGER_FULL:
        claims.append(longest(gpus("n1", 0)[0], len(claims)))
    assert isinstance(view.decide_for("p", request), Placement)
    assert view.decide_for("q", request) == LEDGER_FULL


def test_no_pod_fits_where_the_ledger_is_full() -> None:
    """What a group counts on, and what people are told; a ledger that takes one pod may take many with short names."""
    shape = cluster_of(sharing_node()).views["n1"].shape
    for left, is_room in ((0, False), (1, False), (2, True)):
        some = replace(shape, claims_left=ClaimsLeft(left, left))
        assert bool(some.how_many_fit(GpuRequest(2, memory_gib=(1, 1)))[0]) == is_room
        assert bool(some.how_many_fit(GpuRequest(2))[0]) == is_room


@pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100", "t4-4", "dgx-1v"])
def test_whole_gpus_alone_never_fill_a_ledger(name: str) -> None:
    """So nodes that share nothing are alike, whatever the names of their pods."""
    taken = tuple(longest(gpu, number, None) for number, gpu in enumerate(gpus("n1", 0, 1, 2, machine_name=name)))
    assert {cluster_of(node("n1", name, claims=of)).views["n1"].shape.claims_left.whole for of in ((), taken)} == {None}


def test_a_pod_replaces_its_claims_on_whole_gpus() -> None:
    """The same where it keeps them, and where it asks for more than it has claimed."""
    own = (Claim(gpus("n1", 0)[0], "p", "ml", "p", "main", "1"),)
    view = cluster_of(node("n1", claims=own)).views["n1"]
    full, nearly = (replace(view, shape=replace(view.shape, claims_left=ClaimsLeft(left, 0))) for left in (0, 1))
    assert isinstance(full.decide_for("p", GpuRequest(1)), Placement)
    assert full.decide_for("q", GpuRequest(1)) == LEDGER_FULL
    assert (full.decide_for("p", GpuRequest(2)), nearly.decide_for("q", GpuRequest(2))) == (LEDGER_FULL, LEDGER_FULL)
    assert isinstance(nearly.decide_for("p", GpuRequest(2)), Placement)


def nearly_full(length: int, *, records: bool = True, holds: bool = False) -> ClaimsLeft:
    """Return what a ledger takes that is nearly full, the last of its names so long; a pod may hold GPUs without a claim."""
    every = gpus("n1", *range(8))
    claims = [longest(every[0], number) for number in range(36)]
    for number, characters in enumerate((length, 29, 29)):
        claims[number] = replace(claims[number], name=str(number) * characters)
    ledger = encode_ledger(Ledger(1, tuple(claims), "uid-n1", every if records else None))
    runs = [pod("r", 1, on="n1", placed=every[1:2], phase="Running", terminated=False)] if holds else []
    return cluster_of(node("n1", ledger=ledger), *runs).views["n1"].shape.claims_left


@pytest.mark.slow
def test_what_the_next_ledger_says_more_is_counted() -> None:
    """The GPUs that it records, and what is held without a claim."""
    lengths = range(1, 253, 12)
    left = [nearly_full(length).shares or 0 for length in lengths]
    assert set(left) == {4, 5}, "it changes within these lengths"
    unrecorded = [nearly_full(length, records=False).shares or 0 for length in lengths]
    assert all(less <= more for less, more in zip(unrecorded[1:], left[:-1], strict=True)), "to a dozen bytes"
    held = [nearly_full(length, holds=True).shares or 0 for length in lengths]
    assert all(less < more for less, more in zip(held, left, strict=True))


def test_much_room_is_rounded_down() -> None:
    """So that nodes stay alike, with pods of longer or shorter names."""
    for number in range(5):
        claims = [longest(gpus("n1", 0)[0], each) for each in range(number)]
        assert cluster_of(sharing_node(*claims)).views["n1"].shape.claims_left.shares == 32


@pytest.mark.parametrize("request_", [GpuRequest.plain(1), GpuRequest(0, memory_gib=(10,))], ids=["whole", "share"])
def test_what_is_planned_on_a_node_takes_its_part_of_the_ledger(request_: GpuRequest) -> None:
    """Else a plan would send pods there whose claims nobody can write down."""
    shape = replace(cluster_of(sharing_node()).views["n1"].shape, claims_left=ClaimsLeft(2, 2))
    planned = Held(0b1) if not request_.is_share else Held(0, ((0, 10, ""),))
    assert isinstance(shape.beside(planned).decide(request_), Placement)
    assert shape.beside(planned + planned + Held(0b1000)).decide(request_) == LEDGER_FULL
