"""Where measured bandwidths are read from."""

from __future__ import annotations

from pathlib import Path

from extender.kit.settings import Duration, Section


class MeasuredSettings(Section):
    """Measured bandwidths, used instead of predictions."""

    file: Path | None = None
    """File of `gputopo-bench measure`, such as a key of a mounted ConfigMap. Default: all is predicted."""
    reread: Duration = 10.0
    """Interval for checking the file."""
