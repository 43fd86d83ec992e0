"""What must not be made of the queue's plans, put into the product."""

from __future__ import annotations

from tests.simulation.mix import queued
from tests.simulation.mutants import seams
from tests.simulation.mutants.mutant import Mutant

QUEUE = (
    Mutant(
        "gates are opened before claims are written",
        "found here",
        ("GATE", "GANG"),
        {seams.IS_CLAIMED: lambda *_: True},
        queued,
    ),
)
