"""`python -m tests.simulation`: replay one seed, soak many, or put known bugs into the product."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.simulation.mutants.mutant import hunt
from tests.simulation.mutants.peers import PEERS
from tests.simulation.mutants.protocol import OTHERS, PROTOCOL
from tests.simulation.run import run
from tests.simulation.soak import soak


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns 1 when an invariant was broken, or a mutant was not seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="print the trace of one seed")
    parser.add_argument("--seeds", type=int, default=200, help="run so many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="on so many cores (default: all)")
    parser.add_argument("--mutants", action="store_true", help="look for each known bug in at most so many seeds")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed)
    seeds = range(options.first, options.first + options.seeds)
    return _mutants(seeds) if options.mutants else _soak(seeds, options.jobs)


def _replay(seed: int) -> int:
    result = run(seed)
    print(*result.lines, sep="\n")
    for violation in result.violations:
        print(violation)
    print(f"seed {seed}, digest {result.digest}, {len(result.violations)} violations")
    return bool(result.violations)


def _soak(seeds: range, jobs: int) -> int:
    found = soak(seeds, jobs=jobs)
    print(found.table())
    for seed, violations in sorted(found.broken.items()):
        print(f"seed {seed}: {violations[0]}")
    print(f"{found.seeds} seeds, {found.violations} violations")
    return bool(found.violations)


def _mutants(seeds: range) -> int:
    mutants = (*PROTOCOL, *PEERS, *OTHERS)
    seen = 0
    for mutant in mutants:
        catch = hunt(mutant, seeds)
        seen += catch is not None
        told = f"seed {catch.seed}: {catch.violation}" if catch else "NOT SEEN"
        print(f"{mutant.origin:<22} {mutant.name:<42} {told}", flush=True)
    print(f"{seen}/{len(mutants)} mutants seen within {len(seeds)} seeds")
    return seen < len(mutants)


if __name__ == "__main__":
    sys.exit(main())
