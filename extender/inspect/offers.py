"""How the device plugin of a node offers its GPUs, in words for people."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from extender.cluster.node_view import NodeView
from topology.node.offers import in_words


class OfferInfo(BaseModel):
    """What pods can ask for of some GPUs of a node; a value."""

    model_config = ConfigDict(frozen=True)

    gpus: tuple[int, ...]
    """As `nvidia-smi` counts them."""
    offered: str
    """`whole as nvidia.com/gpu`, `shared 4 ways as nvidia.com/gpu.shared`, `not offered`."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        return f"GPU{'s' if len(self.gpus) > 1 else ''} {', '.join(map(str, self.gpus))}: {self.offered}"


def offers_of(view: NodeView) -> tuple[OfferInfo, ...]:
    """Return how the GPUs are offered, those that are offered alike together; nothing of those of which nobody knows."""
    status, topology = view.payloads.status.value, view.shape.topology_class
    if status is None or topology is None:
        return ()
    offers = {gpu.uuid: gpu.offers for gpu in status.gpus}
    by_offer: dict[str, list[int]] = {}
    for uuid, gpu in zip(view.uuids, topology.node.gpus, strict=True):
        if (offered := offers.get(uuid)) is not None:
            by_offer.setdefault(in_words(offered), []).append(gpu.index)
    return tuple(OfferInfo(gpus=tuple(gpus), offered=words) for words, gpus in by_offer.items())
