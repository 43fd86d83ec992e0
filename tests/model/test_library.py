"""The declarations in Python are those of model.h, and the ledger that a swap writes is the product's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import Structure, sizeof
from dataclasses import replace
from enum import IntEnum
from itertools import permutations, product

import pytest

from extender.binding.ledger import swap_ledger
from extender.cluster.objects.kinds import Container, Pod, PodSpec, ResourceRequirements
from extender.cluster.ownership.standing import Standing
from tests.extender.builders import claim, cluster, gpus, node, pod
from tests.model.beliefs import BITS
from tests.model.explorer import HERE
from tests.model.header import Header
from tests.model.library import (
    GPUS,
    PODS,
    Actor,
    Event,
    Model,
    Mutant,
    Phase,
    Place,
    PodTruth,
    Setup,
    State,
    Violation,
    Waits,
)
from tests.model.setups import Case
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, decode_ledger
from topology.errors import PayloadError

PAIR, NAMES = gpus("n1", 0, 1), ("a", "b", "c")
HEADER = Header(HERE / "model.h")
ENUMS = {
    "phase": Phase,
    "place": Place,
    "step": Waits,
    "mutant": Mutant,
    "event": Event,
    "violation": Violation,
}


def test_standings_are_the_bits_of_the_model() -> None:
    """A standing that the model does not know comes after those that it knows."""
    names = re.findall(r"(\w+) = (\d+)", HEADER.body("enum", "standing"))
    bits = {name.removesuffix("_CLAIM"): int(bit) for name, bit in names}
    assert {standing.name: bit for standing, bit in BITS.items() if standing is not Standing.CLAIMED} == bits


@pytest.mark.parametrize(("name", "numbers"), ENUMS.items())
def test_the_header_has_the_same_names_in_the_same_order(name: str, numbers: type[IntEnum]) -> None:
    """So each name has the same number; `PLACES` only counts the others."""
    names = [word for word in HEADER.members(name) if word != "PLACES"]
    assert names == [member.name for member in numbers]


@pytest.mark.parametrize(("name", "fields"), [("actor", Actor), ("pod", PodTruth), ("state", State), ("setup", Setup)])
def test_the_header_has_the_same_fields_of_as_many_bits(name: str, fields: type[Structure]) -> None:
    """Bit fields of one type are packed alike by C and by ctypes."""
    assert HEADER.fields(name) == [":".join((str(field[0]), *map(str, field[2:]))) for field in fields._fields_]


@pytest.mark.slow
def test_the_library_has_structures_of_the_same_size(model: Model) -> None:
    """Names and bits are compared above."""
    assert all(sizeof(kind) == size for kind, size in model.sizes().items())


WHOLE, SHARES = Case("whole", gpus=GPUS, pods=PODS), Case("shares", gpus=GPUS, pods=PODS, units=8, shares=(2, 1, 1))
ASKING = (WHOLE, SHARES, replace(SHARES, classes=(0, 1, 1)), replace(SHARES, shares=(2, 1, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ASKING, ids=("whole", "shares", "two classes", "shares and whole"))
def test_a_swap_writes_the_ledger_that_the_product_writes(model: Model, case: Case) -> None:
    """Two GPUs, each claimed by any of three pods; pods that have stopped are those whose claims are dropped."""
    setup = case.setup({})
    for owners, (name, stopped) in product(range(1 << GPUS * PODS), permutations(range(PODS), 2)):
        try:
            before = Ledger(1, tuple(claims_of(case, owners)))
        except PayloadError:
            continue
        objects = [pod_of(case, number, stopped=number == stopped) for number in range(PODS)]
        state = cluster(node("n1", claims=before.claims), *objects)
        begun = claim_of(case, name, 0)
        written = decode_ledger(swap_ledger(state.views["n1"], without={NAMES[name]}, claims=(begun,)).ledger)
        dropped = sum(1 << PODS * gpu + stopped for gpu in range(GPUS)) & owners
        expected = model.swapped(setup, owners, name, 1, (1 << GPUS) - 1, dropped)
        assert set(written.claims) == set(claims_of(case, expected)), (before, begun)


def claims_of(case: Case, owners: int) -> Iterator[Claim]:
    """Yield what the model's ledger says, in the product's words."""
    for gpu, number in product(range(GPUS), range(PODS)):
        if owners >> PODS * gpu + number & 1:
            yield claim_of(case, number, gpu)


def claim_of(case: Case, number: int, gpu: int) -> Claim:
    share, sharing_class = case.shares[number], str(case.classes[number])
    whole = claim(PAIR[gpu], NAMES[number])
    return replace(whole, memory_gib=share, sharing_class=sharing_class) if share else whole


def pod_of(case: Case, number: int, *, stopped: bool) -> Pod:
    resource, count = (keys.SHARE_RESOURCE, case.shares[number]) if case.shares[number] else (keys.GPU_RESOURCE, 1)
    found = pod(NAMES[number], on="n1", phase="Succeeded" if stopped else "Pending", terminated=stopped)
    asked = Container("main", ResourceRequirements({resource: count}))
    return Pod(found.metadata, PodSpec(node_name="n1", containers=[asked]), found.status)
