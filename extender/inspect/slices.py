"""The MIG slices of a node, and who has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from extender.cluster.node_view import NodeView
from extender.inspect.faults import Faults
from extender.inspect.occupation import DeviceState, Occupation


class SliceInfo(BaseModel):
    """One slice and what has become of it; a value."""

    model_config = ConfigDict(frozen=True)

    gpu: int
    """Index of the GPU that it is cut out of."""
    profile: str
    uuid: str
    memory_bytes: int
    start: int
    """Of its place in the GPU's memory."""
    size: int
    state: DeviceState
    """As of a GPU."""
    pod: str | None
    container: str | None
    reasons: tuple[str, ...] = ()
    """What is wrong with it, or with its GPU."""

    @property
    def line(self) -> str:
        """What is wrong, for people."""
        return "; ".join(self.reasons)


def slices_of(view: NodeView, occupied: Sequence[Occupation], faults: Faults) -> Iterable[SliceInfo]:
    """Yield the slices of a node, by GPU and place; what has become of each device is given by position."""
    node = view.shape.topology_class.node if view.shape.topology_class else None
    for position, mig_slice in enumerate(node.slices if node else (), len(view.uuids)):
        yield SliceInfo(
            gpu=mig_slice.gpu,
            profile=mig_slice.profile,
            uuid=view.devices[position],
            memory_bytes=mig_slice.memory_bytes,
            start=mig_slice.start,
            size=mig_slice.size,
            state=occupied[position].state,
            pod=occupied[position].pod,
            container=occupied[position].container,
            reasons=faults.of(position),
        )
