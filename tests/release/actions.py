"""The actionlint that `actionlint/go.mod` pins: it checks the workflows of `.github`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.go_build import GoBuild

ACTIONLINT: Final = GoBuild(
    Path(__file__).parent / "actionlint",
    "actionlint",
    ("github.com/rhysd/actionlint/cmd/actionlint",),
    ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
    "actionlint (once, under a minute)",
)
