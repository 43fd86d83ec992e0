"""What happens to pods whose GPUs have fallen sick."""

from __future__ import annotations

from extender.kit.settings import Section


class SickGpusSettings(Section):
    """What is done about pods whose GPUs have fallen sick, beside telling them."""

    evict: bool = False
    """Evict those that ask for it by `gputopo.dev/evict-when-sick`; takes the right to create `pods/eviction`."""
