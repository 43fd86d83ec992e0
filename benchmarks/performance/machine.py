"""What a figure was measured on, without naming anybody's machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_LIBRARIES = ("fastapi", "msgspec", "networkx", "numpy", "uvicorn", "uvloop")
"""Those that are there are told; numpy is for the placement experiments only."""


def describe_machine() -> dict[str, str | int | float]:
    """Return processor, cores, what else they do (load over the last minute), memory, Python and the libraries that matter."""
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 1),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES if find_spec(name)},
    }


def _first(file: str, key: str) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
