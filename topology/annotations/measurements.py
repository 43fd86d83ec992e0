"""Measured figures as one JSON document, for a file or a ConfigMap that people may read and write.

A document that cannot be read is refused whole. In one that can, a figure that is not as it should be is refused alone, with its
path and the reason; all others count.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints

from topology.annotations.payload import Schema, Text, read, read_part, write
from topology.bandwidth.measured import Conditions, Figure, MeasuredMachine, Measurements
from topology.errors import PayloadError
from topology.node.model import MAX_GPUS

MAX_BYTES: Final = 256 * 1024
"""Of one document; a ConfigMap holds 1 MiB."""
MAX_MACHINES: Final = 64
MAX_FIGURES: Final = 256
"""Of one kind of machine."""
MAX_RUNS: Final = 64
MIN_MESSAGE_BYTES: Final = 2**29
"""Placements are judged by messages of 1 GiB; smaller ones are slower."""

Machine = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Rate = Annotated[float, Field(gt=0, le=1e6)]


def _rises(gpus: list[int]) -> list[int]:
    if any(after <= before for before, after in pairwise(gpus)):
        raise ValueError("places must rise")
    return gpus


class _Figure(Schema):
    gpus: Annotated[
        list[Annotated[int, Field(ge=0, lt=MAX_GPUS)]],
        Field(min_length=2, max_length=MAX_GPUS),
        AfterValidator(_rises),
    ]
    gb_per_s: Annotated[list[Rate], Field(min_length=1, max_length=MAX_RUNS)]
    message_bytes: Annotated[int, Field(ge=MIN_MESSAGE_BYTES, le=2**40)]
    node: Text
    at: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
    driver: Text | None = None
    nccl: Text | None = None


class _Machine(Schema):
    kind: Machine
    description: Text
    figures: Annotated[list[Any], Field(max_length=MAX_FIGURES)]


class _Document(Schema):
    machines: Annotated[list[Any], Field(max_length=MAX_MACHINES)]


class Read(NamedTuple):
    """What a document says."""

    measurements: Measurements
    refused: tuple[PayloadError, ...]
    """What of it is not believed."""


def encode_measurements(measurements: Measurements) -> str:
    """Return the canonical text; raises `PayloadError` for anything that `decode_measurements` would refuse."""
    machines = [
        {"kind": kind, "description": machine.description, "figures": [_written(figure) for figure in machine.figures]}
        for kind, machine in sorted(measurements.items())
    ]
    text = write(_Document, {"machines": machines}, MAX_BYTES)
    for refused in decode_measurements(text).refused:
        raise refused
    return text


def decode_measurements(text: str | bytes) -> Read:
    """Return what can be believed, and what cannot; raises `PayloadError` for a text that is no such document."""
    document = read(_Document, text, MAX_BYTES)
    found: dict[str, MeasuredMachine] = {}
    refused: list[PayloadError] = []
    for number, part in enumerate(document.machines):
        here = f"$.machines[{number}]"
        try:
            machine = read_part(_Machine, part, here)
            if machine.kind in found:
                raise PayloadError(f"{here}.kind", "the same kind of machine twice")
        except PayloadError as error:
            refused.append(error)
            continue
        found[machine.kind] = MeasuredMachine(machine.description, _figures(machine, here, refused))
    return Read(found, tuple(refused))


def _figures(machine: _Machine, here: str, refused: list[PayloadError]) -> tuple[Figure, ...]:
    found: dict[tuple[int, ...], Figure] = {}
    for number, part in enumerate(machine.figures):
        path = f"{here}.figures[{number}]"
        try:
            figure = _figure(read_part(_Figure, part, path))
            if figure.gpus in found:
                raise PayloadError(f"{path}.gpus", "the same set twice")
        except PayloadError as error:
            refused.append(error)
            continue
        found[figure.gpus] = figure
    return tuple(found.values())


def _figure(said: _Figure) -> Figure:
    conditions = Conditions(said.node, said.at, said.message_bytes, said.driver, said.nccl)
    return Figure(tuple(said.gpus), tuple(said.gb_per_s), conditions)


def _written(figure: Figure) -> dict[str, Any]:
    conditions = figure.conditions
    known = {"driver": conditions.driver, "nccl": conditions.nccl}
    return {
        "gpus": list(figure.gpus),
        "gb_per_s": list(figure.runs_gb_per_s),
        "message_bytes": conditions.message_bytes,
        "node": conditions.node,
        "at": conditions.at,
    } | {name: value for name, value in known.items() if value is not None}
