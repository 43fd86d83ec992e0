"""What the extender logs, and how."""

from __future__ import annotations

from typing import Literal

from extender.kit.settings import Section


class LogSettings(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged: `debug`, `info`, `warning` or `error`."""
    format: Literal["json", "text"] = "json"
    """`json`: one object a line. `text`: for people."""
