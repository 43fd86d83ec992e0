"""Say which broken lines no test notices: `python -m tests.mutation extender/cluster agent/plugin --sample 300`."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.trial import Fate, Trial

FOLDERS = ["tests/extender", "tests/agent", "tests/kubelet", "tests/topology"]


def main() -> int:
    """Print each mutant that lives, and how many there were."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="files and folders to break")
    parser.add_argument(
        "--tests", nargs="+", default=FOLDERS, help=f"what has to notice (default: {' '.join(FOLDERS)})"
    )
    parser.add_argument("--sample", type=int, help="try so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--seconds", type=float, default=20.0, help="of CPU for each mutant")
    parser.add_argument(
        "--again", type=Path, help="try mutants only that were not caught, as this earlier `--out` says"
    )
    parser.add_argument("--out", type=Path, help="write what became of each mutant, one JSON object a line")
    options = parser.parse_args()
    files = [file for path in options.paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    if options.again:
        earlier = map(json.loads, options.again.read_text(encoding="utf-8").splitlines())
        lived = {each["mutant"] for each in earlier if each["fate"] not in (Fate.CAUGHT, Fate.SAME)}
        mutants = [mutant for mutant in mutants if str(mutant) in lived]
    drawn = mutants
    if options.sample and options.sample < len(mutants):
        places = sorted(random.Random(options.seed).sample(range(len(mutants)), options.sample))
        drawn = [mutants[place] for place in places]
    fates: Counter[Fate] = Counter()
    out = options.out.open("w", encoding="utf-8") if options.out else None

    def tell(mutant: Mutant, fate: Fate, test: str) -> None:
        fates[fate] += 1
        if fate not in (Fate.CAUGHT, Fate.SAME):
            print(f"{mutant}  ({fate})", flush=True)
        if out:
            out.write(json.dumps({"mutant": str(mutant), "fate": fate, "test": test}) + "\n")
            out.flush()

    quiet = ["-q", "-s", "--no-header", "--assert=plain", "-p", "no:cacheprovider", "-m", "not waits and not alone"]
    pytest.main([*quiet, *options.tests], plugins=[Trial(drawn, options.seconds, tell)])
    alike = fates.pop(Fate.SAME, 0)
    tried = sum(fates.values())
    print(
        f"{len(drawn)} of {len(mutants)} mutants, {alike} compile to the same; {fates[Fate.CAUGHT]} of {tried} caught"
    )
    return 0 if tried == fates[Fate.CAUGHT] else 1


if __name__ == "__main__":
    sys.exit(main())
