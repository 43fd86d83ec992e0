"""What the extender logs, and how."""

from __future__ import annotations

from typing import Literal

from extender.kit.settings import Section


class LogSettings(Section):
    """One line per verb and per event worth knowing."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines of a lower level are left out."""
    format: Literal["json", "text"] = "json"
    """`json`: one object a line; `text`: for people."""
