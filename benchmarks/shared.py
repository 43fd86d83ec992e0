"""Where published measurements and traces lie that are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path


def shared_folder() -> Path:
    """Return the folder that GPUTOPO_SHARED names, else `shared` beside the checkout."""
    named = os.environ.get("GPUTOPO_SHARED")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
