"""Fuzzes one parser: `python -m tests.security.fuzz ledger|topology|args|watch [SECONDS]`, with atheris installed.

What was learnt stays in `reports/fuzz/<parser>/`, where the next run begins; an input that shows a fault goes to
`found/<parser>/`.
"""

import importlib
import logging
import sys
from pathlib import Path

import structlog

ATHERIS = "atheris==3.0.0"
SECONDS_PER_INPUT = 5
MAX_BYTES = 16 << 10
MEMORY_MIB = 2048


def main(parser: str, seconds: int) -> None:
    """Fuzz, and end the process: with 0, or with an input that shows a fault."""
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit(
            f"no atheris here, which has wheels for Linux only and so is not locked: .venv/bin/pip install {ATHERIS}"
        )
    with atheris.instrument_imports(include=["topology", "extender"], enable_loader_override=False):
        parsers = importlib.import_module("tests.security.fuzz.parsers")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if parser not in parsers.PARSERS:
        sys.exit(f"{parser} is none of {', '.join(parsers.PARSERS)}")
    corpus, found = Path("reports", "fuzz", parser), parsers.HERE / "found" / parser
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(parsers.seeds(parser)):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = {"max_total_time": seconds, "timeout": SECONDS_PER_INPUT, "max_len": MAX_BYTES, "rss_limit_mb": MEMORY_MIB}
    flags = [f"-{name}={value}" for name, value in limits.items()]
    atheris.Setup(
        [parser, *flags, f"-artifact_prefix={found}/", "-print_final_stats=1", str(corpus)], parsers.PARSERS[parser]
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else 600)
