"""The bounded set-ups that are explored whole."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.beliefs import Beliefs, masks
from tests.model.library import GPUS, PODS, Mutant, Setup

CAPACITY = 75_000_000
"""States of one exploration, of 40 bytes each at most."""


@dataclass(frozen=True, slots=True)
class Case:
    """One bounded set-up: how many of each, and what may happen."""

    name: str
    pods: int = 2
    nodes: int = 1
    gpus: int = 1
    """In all; on two nodes one each."""
    binders: int = 2
    reconcilers: int = 1
    wanted: tuple[int, int, int] = (1, 1, 1)
    """GPUs that each pod asks for."""
    units: int = 0
    """The memory of a GPU; on one node, at most two pods can share two of them where requests are delayed."""
    shares: tuple[int, int, int] = (0, 0, 0)
    """How much of it each pod asks for on each of its GPUs; zero: whole GPUs."""
    classes: tuple[int, int, int] = (0, 0, 0)
    shareable: int = GPUS
    """GPUs of a node that may be shared at one time."""
    may: tuple[str, ...] = ()
    """What may happen beside lost requests, lost answers, deaths of processes, and deletions: switches of `Setup`."""

    def setup(self, believed: Beliefs, mutant: Mutant = Mutant.FAITHFUL, *, doubles_only: bool = False) -> Setup:
        """Return it as the explorer wants it."""
        setup = Setup(
            pods=self.pods,
            nodes=self.nodes,
            gpus=self.gpus,
            binders=self.binders,
            reconcilers=self.reconcilers,
            mutant=mutant,
            doubles_only=doubles_only,
            **dict.fromkeys(self.may, 1),
        )
        setup.wanted[:PODS] = self.wanted
        setup.units, setup.shareable = self.units, self.shareable
        setup.shares[:PODS] = self.shares
        setup.classes[:PODS] = self.classes
        for phase, row in enumerate(masks(believed)):
            setup.standings[phase][:] = row
        return setup


USUAL = ("delays", "touches")
ENDS = ("finalizers", "ends", "graceful", "doubts", "force")
"""All the ways in which a pod can end before its time."""

EVERY_COMMIT = (
    Case("every way to end a pod", may=(*USUAL, "refusals", *ENDS)),
    Case("two reconcilers", reconcilers=2, may=USUAL),
    Case("two nodes", nodes=2, gpus=GPUS, may=("touches",)),
    Case(
        "one bind after another on two nodes",
        pods=3,
        nodes=2,
        gpus=GPUS,
        binders=1,
        may=("late_bindings", "touches", "graceful"),
    ),
    Case("a ledger that is lost", may=(*USUAL, "wipes")),
    Case("every way to end a share", units=2, shares=(2, 1, 0), may=(*USUAL, "refusals", *ENDS)),
    Case("shares that do not all fit", pods=3, units=3, shares=(2, 2, 1), may=("touches",)),
    Case("shares or all of a GPU", pods=3, units=2, shares=(1, 1, 0), may=("touches", "graceful")),
    Case("shares of two classes", pods=3, units=3, shares=(1, 1, 2), classes=(0, 0, 1), may=("touches",)),
    Case("one GPU that may be shared", gpus=GPUS, units=2, shares=(2, 2, 0), shareable=1, may=("touches", "unfit")),
    Case("a share, and a ledger that is lost", units=2, shares=(1, 0, 0), may=(*USUAL, "wipes")),
)
LONG = (
    Case("two reconcilers and a ledger that is lost", reconcilers=2, may=(*USUAL, "wipes", "graceful")),
    Case("two nodes, and Bindings that arrive late", nodes=2, gpus=GPUS, may=("late_bindings",)),
    Case(
        "two nodes, and all requests arrive late",
        nodes=2,
        gpus=GPUS,
        binders=1,
        may=(*USUAL, "refusals", "graceful", "force"),
    ),
    Case("two nodes, one made anew", nodes=2, gpus=GPUS, may=("touches", "renewals")),
    Case("a namesake", pods=3, may=(*USUAL, "graceful", "force", "refusals", "namesakes")),
    Case("three pods", pods=3, may=(*USUAL, "graceful", "refusals")),
    Case("pods of one and of two GPUs", pods=3, gpus=GPUS, wanted=(2, 1, 1), may=("touches", "unfit")),
    Case("two pods of two GPUs, two reconcilers", gpus=GPUS, wanted=(2, 2, 1), reconcilers=2, may=("touches", *ENDS)),
    Case("another choice", gpus=GPUS, may=("touches", "unfit", "wipes", "graceful")),
    Case("another choice by one binder", gpus=GPUS, binders=1, may=(*USUAL, "unfit", "wipes")),
    Case("shares, and a ledger that is lost", units=2, shares=(1, 1, 0), may=(*USUAL, "wipes", "graceful")),
    Case("shares, and two reconcilers", units=2, shares=(2, 1, 0), reconcilers=2, may=(*USUAL, "graceful")),
    Case(
        "another choice of shares", gpus=GPUS, units=2, shares=(1, 2, 0), may=("touches", "unfit", "wipes", "graceful")
    ),
    Case("shares on two nodes", nodes=2, gpus=GPUS, units=2, shares=(1, 2, 0), may=("touches", "renewals")),
    Case("a namesake with a share", pods=3, units=2, shares=(1, 2, 2), may=("touches", "force", "namesakes")),
    Case("every way to end three shares", pods=3, units=3, shares=(2, 2, 1), may=("touches", "graceful", "force")),
    Case(
        "shares of two classes and one GPU that may be shared",
        pods=3,
        gpus=GPUS,
        binders=1,
        units=3,
        shares=(1, 1, 2),
        classes=(0, 1, 1),
        shareable=1,
        may=("touches", "unfit", "graceful"),
    ),
    Case("shares of two GPUs", gpus=GPUS, units=2, wanted=(2, 1, 1), shares=(1, 2, 0), may=("touches", "unfit", *ENDS)),
)
CASES = (*EVERY_COMMIT, *LONG)
