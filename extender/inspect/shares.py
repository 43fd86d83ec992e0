"""The GPUs of a node that pods share: who has how much of them, and what is left."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from extender.cluster.node_view import NodeView
from topology.node.sharing import Limits


class ShareInfo(BaseModel):
    """One container with a share of a GPU; a value."""

    model_config = ConfigDict(frozen=True)

    pod: str
    """`namespace/name`."""
    container: str
    memory_gib: int | None
    """`None`: it has the whole GPU, though others share it."""
    sharing_class: str | None
    """Empty: none; `None`: nobody knows."""


class SharedGpuInfo(BaseModel):
    """One GPU that pods share; a value."""

    model_config = ConfigDict(frozen=True)

    gpu: int
    """Its index."""
    uuid: str
    share_gib: int
    """What all shares may take together."""
    left_gib: int
    """What the next share can have."""
    beyond_shares_gib: int
    """Memory in use that no share explains, in coarse steps."""
    sharing_class: str | None
    """Of the shares that may come; empty: those of no class; `None`: of any class."""
    shares: tuple[ShareInfo, ...]

    @property
    def used_gib(self) -> int:
        """What the shares add up to."""
        return sum(share.memory_gib or 0 for share in self.shares)

    @property
    def line(self) -> str:
        """How full it is, for people."""
        beyond = f", {self.beyond_shares_gib} GiB used beyond shares" if self.beyond_shares_gib else ""
        return f"{self.used_gib} of {self.share_gib} GiB{beyond}"


class SharingInfo(BaseModel):
    """How a node's agent shares its GPUs; a value."""

    model_config = ConfigDict(frozen=True)

    max_gpus: int
    limits: Limits
    """What holds a container to its share."""
    reasons: tuple[str, ...]
    """Why none can be shared just now, or why the limits are not stronger."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        many = f"at most {self.max_gpus} GPU{'s' if self.max_gpus > 1 else ''}" if self.max_gpus else "none just now"
        return "; ".join([f"{many}, {self.limits.words}", *self.reasons])


def shared_gpus_of(view: NodeView) -> Iterable[SharedGpuInfo]:
    """Yield the GPUs that pods share, by position."""
    status = view.payloads.status.value
    reported = {gpu.uuid: gpu for gpu in status.gpus} if status else {}
    topology_class = view.shape.topology_class
    shared = {gpu.position: gpu for gpu in view.shape.shares.shared}
    for position, uuid in enumerate(view.uuids):
        use = view.uses.get(uuid)
        if use is None and position not in shared:
            continue
        assert topology_class is not None, "else it has no GPU"
        left = shared.get(position)
        yield SharedGpuInfo(
            gpu=topology_class.node.gpus[position].index,
            uuid=uuid,
            share_gib=reported[uuid].share_gib or 0 if uuid in reported else 0,
            left_gib=left.room_gib if left else 0,
            beyond_shares_gib=reported[uuid].beyond_shares_gib if uuid in reported else 0,
            sharing_class=left.sharing_class if left else "",
            shares=tuple(
                ShareInfo(
                    pod=f"{taker.namespace}/{taker.name}",
                    container=taker.container,
                    memory_gib=taker.memory_gib,
                    sharing_class=taker.sharing_class,
                )
                for taker in (use.takers if use else ())
            ),
        )


def sharing_of(view: NodeView) -> SharingInfo | None:
    """Return how the node's GPUs are shared, `None` where they are not."""
    sharing = view.payloads.sharing
    return SharingInfo(max_gpus=sharing.max_gpus, limits=sharing.limits, reasons=sharing.reasons) if sharing else None
