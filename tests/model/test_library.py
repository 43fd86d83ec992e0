"""The declarations in Python are those of model.h, and the ledger that a swap writes is the product's."""

from __future__ import annotations

import re
from ctypes import Structure, sizeof
from enum import IntEnum
from itertools import product

import pytest

from extender.binding.ledger import swap_ledger
from tests.extender.builders import claim, cluster, gpus, node, pod
from tests.model.library import (
    GPUS,
    HERE,
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
from topology.annotations.records import decode_ledger

HEADER = re.sub(r"/\*.*?\*/", "", (HERE / "model.h").read_text(encoding="utf-8"), flags=re.DOTALL)
ENUMS = {
    "phase": Phase,
    "place": Place,
    "step": Waits,
    "mutant": Mutant,
    "event": Event,
    "violation": Violation,
}


def body(kind: str, name: str) -> str:
    """Return what the header has between the braces of a declaration."""
    found = re.search(rf"^{kind} {name} {{(.*?)}};", HEADER, re.DOTALL | re.MULTILINE)
    assert found, f"{kind} {name}"
    return found[1]


@pytest.mark.parametrize(("name", "numbers"), ENUMS.items())
def test_the_header_has_the_same_names_in_the_same_order(name: str, numbers: type[IntEnum]) -> None:
    """So each name has the same number; `PLACES` only counts the others."""
    names = [word for word in re.findall(r"\w+", body("enum", name)) if word != "PLACES"]
    assert names == [member.name for member in numbers]


@pytest.mark.parametrize(("name", "fields"), [("actor", Actor), ("pod", PodTruth), ("state", State), ("setup", Setup)])
def test_the_header_has_the_same_fields_of_as_many_bits(name: str, fields: type[Structure]) -> None:
    """Bit fields of one type are packed alike by C and by ctypes."""
    declared = []
    for line in body("struct", name).split(";"):
        words = re.sub(r"\[.*", "", line).split()
        for field in " ".join(words[2 if words[:1] == ["struct"] else 1 :]).split(", "):
            declared += [field.replace(" : ", ":")] if field else []
    assert declared == [":".join((str(field[0]), *map(str, field[2:]))) for field in fields._fields_]


def test_the_library_has_structures_of_the_same_size(model: Model) -> None:
    """Names and bits are compared above."""
    assert all(sizeof(kind) == size for kind, size in model.sizes().items())


@pytest.mark.parametrize("owners", [first | second << PODS for first, second in product((0, 1, 2, 4), repeat=2)])
def test_a_swap_writes_the_ledger_that_the_product_writes(model: Model, owners: int) -> None:
    """Two GPUs, each claimed by one of three pods or by none; pods that have stopped are those whose claims are dropped."""
    pair, names = gpus("n1", 0, 1), ("a", "b", "c")
    whole = Case("whole GPUs", pods=PODS, gpus=GPUS).setup({})
    owners_of = {gpu: owners >> PODS * place & 7 for place, gpu in enumerate(pair)}
    owned = {gpu: names[mask.bit_length() - 1] for gpu, mask in owners_of.items() if mask}
    for stopped in names:
        objects = [
            pod(name, on="n1", phase="Succeeded" if name == stopped else "Pending", terminated=name == stopped)
            for name in names
        ]
        state = cluster(node(claims=tuple(claim(gpu, name) for gpu, name in owned.items())), *objects)
        for name in set(names) - {stopped}:
            swap = swap_ledger(state.views["n1"], without={name}, claims=(claim(pair[0], name),))
            written = decode_ledger(swap.ledger).claims
            places = {who: [place for place, gpu in enumerate(pair) if owned.get(gpu) == who] for who in names}
            ended = sum(1 << place for place in places[name])
            dropped = sum(1 << PODS * place + names.index(stopped) for place in places[stopped])
            expected = model.swapped(whole, owners, names.index(name), 1, ended, dropped)
            assert expected == sum(1 << PODS * pair.index(each.gpu) + names.index(each.uid) for each in written)
