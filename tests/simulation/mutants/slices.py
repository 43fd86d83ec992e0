"""Broken rules of GPUs that are cut under their pods, each put into the product, and the conditions that bring it out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from extender.cluster.masks import excluded_devices, mask_of, silicon_of
from tests.simulation.mix import CUT, only
from tests.simulation.mutants import seams
from tests.simulation.mutants.mutant import Mutant
from tests.world.faults import Fault
from topology.node.silicon import SLICE_PREFIX, Silicon


def itself_alone(known: tuple[str, ...], silicon: Silicon, held: Iterable[str]) -> int:
    """Let a device exclude nothing but itself."""
    return mask_of(known, held)


def published_alone(known: tuple[str, ...], silicon: Silicon, held: Iterable[str]) -> int:
    """Let what is published no more exclude nothing."""
    return excluded_devices(known, silicon, {*held}.intersection(known))


def gpus_alone(known: tuple[str, ...], silicon: Silicon, held: Iterable[str]) -> int:
    """Let a GPU that somebody has whole exclude its slices no more."""
    slices = {uuid for uuid in held if uuid.startswith(SLICE_PREFIX)}
    return mask_of(known, held) | excluded_devices(known, silicon, slices)


def parents_elsewhere(gpus: Any, claims: Iterable[Any]) -> Silicon:
    """Take slices that are gone for those of another machine."""
    silicon = silicon_of(gpus, claims)
    return silicon.remembering({claim.gpu: "GPU-elsewhere" for claim in claims if claim.parent})


_CUT = only({**CUT, Fault.POD_ENDED: 1.0}, slice_ratio=0.5, nodes=1, event_seconds=0.5)

SLICES = (
    Mutant("a device excludes itself alone", "slices", ("INV1",), {seams.EXCLUDED_DEVICES: itself_alone}, _CUT),
    Mutant("a slice that is gone is forgotten", "slices", ("INV1",), {seams.EXCLUDED_DEVICES: published_alone}, _CUT),
    Mutant(
        "a GPU does not exclude its slices", "slices", ("INV1",), {seams.EXCLUDED_DEVICES: gpus_alone}, _CUT, seed=7
    ),
    Mutant(
        "the GPU of a slice that is gone is mistaken", "slices", ("INV1",), {seams.SILICON_OF: parents_elsewhere}, _CUT
    ),
)
