"""How a node shares its GPUs, as others are told: at most how many, what holds containers to their shares, and why no more."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from topology.node.sharing import Limits, Sharing
from topology.node.status import Mode

ONLY_ENFORCED = "GPUs are shared only in mode enforce"
NONE_SHAREABLE = "no GPU of the node may be shared"
UNLIMITED = "nothing holds containers to their shares, and sharing.limits is required"


def sharing_of(
    gpus: Literal["all", "none"] | int,
    mode: str,
    shareable: Collection[str],
    unshared: Collection[str],
    limits: Limits,
    reasons: tuple[str, ...] = (),
    held_back: str = "",
) -> Sharing | None:
    """Return what the node says, or `None` where nobody wants its GPUs shared.

    Args:
        gpus: As configured.
        mode: The agent's.
        shareable: The GPUs that may be shared.
        unshared: Why others may not.
        limits: What holds containers to their shares.
        reasons: Why nothing stronger does.
        held_back: Why no share is served as it is; empty: they are.

    """
    if gpus == "none":
        return None
    if mode != Mode.ENFORCE:
        return Sharing(0, Limits.NONE, (ONLY_ENFORCED,))
    if not shareable:
        return Sharing(0, limits, (NONE_SHAREABLE, *sorted(set(unshared))))
    if held_back:
        return Sharing(0, limits, (held_back, *reasons))
    most = len(shareable) if gpus == "all" else min(gpus, len(shareable))
    return Sharing(most, limits, reasons)
