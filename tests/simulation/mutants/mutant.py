"""A known bug that can be put into the product, and the hunt for a seed that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from tests.simulation.mix import Adapt, whole_gpus
from tests.simulation.run import run

DOUBLE = ("INV1", "INV2", "R2", "R3")
"""A GPU is in two hands, or its claim left while it may be."""
STUCK = ("INV3", "INV7", "CACHE")
"""Something is held or waits for ever."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug."""

    name: str
    origin: str
    """Whose it was: the issue of a peer, the catalogue of protocol mutants, or ours."""
    breaks: tuple[str, ...]
    """To break one of these invariants is to be seen."""
    patches: Mapping[str, object]
    """Dotted name → what is there instead."""
    adapt: Adapt = whole_gpus
    """The conditions that bring it out soon; else all faults, mixed, and no shares."""
    seed: int = 0
    """One that has shown it: tried first, because a rare bug takes a minute to hunt."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the product have the bug for as long as the context is open."""
        with ExitStack() as stack:
            for target, instead in self.patches.items():
                stack.enter_context(patch(target, instead))
            yield


@dataclass(frozen=True, slots=True)
class Catch:
    """A seed that shows a mutant, and how."""

    seed: int
    violation: str


def hunt(mutant: Mutant, seeds: range) -> Catch | None:
    """Return a seed in which the mutant breaks one of its invariants, and the product does not: its own, or the first."""
    for seed in (mutant.seed, *seeds):
        with mutant.installed():
            found = _broken(mutant, seed)
        if found and not _broken(mutant, seed):
            return Catch(seed, found[0])
    return None


def _broken(mutant: Mutant, seed: int) -> list[str]:
    violations = run(seed, mutant.adapt).violations
    return [violation for violation in violations if violation.partition(":")[0] in mutant.breaks]
