"""Where measured bandwidths are read from."""

from __future__ import annotations

from pathlib import Path

from extender.kit.settings import Duration, Section


class MeasuredSettings(Section):
    """Measured bandwidths, which stand in the place of predictions for the machines that they are about."""

    file: Path | None = None
    """As `gputopo-bench measure` writes it, for example a ConfigMap's key in a volume: whoever may write it says how fast GPUs
    are. Where there is no such file, all is predicted."""
    reread: Duration = 10.0
    """How often the file is looked at."""
