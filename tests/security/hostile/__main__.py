"""`python -m tests.security.hostile --seconds 3600 --seed 7`: hostile tenants of all families, one cluster after the other."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.security.hostile.run import FAMILIES, run

ROUND_SECONDS = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns 1 when a law was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="go on for so long (default 600)")
    parser.add_argument("--round", type=float, default=ROUND_SECONDS, help="seconds of one family on one cluster (120)")
    parser.add_argument("--writes", type=int, default=10**9, help="at most so many writes of one family (no limit)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="begin with this seed (default: the time)")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="this one only; may be repeated")
    options = parser.parse_args(arguments)
    end, broken = time.monotonic() + options.seconds, 0
    families = options.family or FAMILIES
    for number in count():
        seed, family = options.seed + number // len(families), families[number % len(families)]
        left = end - time.monotonic()
        if left <= 0:
            break
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            ended = asyncio.run(
                run(Path(folder), family, seed, writes=options.writes, seconds=min(left, options.round))
            )
        broken += ended.broken is not None
        print(ended, flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
