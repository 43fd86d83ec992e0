"""What happens to pods whose GPUs have fallen sick."""

from __future__ import annotations

from extender.kit.settings import Section


class SickGpusSettings(Section):
    """Pods whose GPUs are sick."""

    evict: bool = False
    """Evict pods with `gputopo.dev/evict-when-sick`. Needs the right to create `pods/eviction`."""
