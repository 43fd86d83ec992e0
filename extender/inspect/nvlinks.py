"""NVLinks that should be used and are not, as agents say."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from extender.cluster.node_view import NodeView
from extender.inspect.outlook import moment
from topology.node.status import LinkFault


class LinkFaultInfo(BaseModel):
    """NVLinks of one GPU that rings do without, and of which the same is told; a value."""

    model_config = ConfigDict(frozen=True)

    index: int | None
    """The GPU's; `None` where the topology does not list it."""
    uuid: str
    links: tuple[int, ...]
    """NVML's numbers of them on that GPU, ascending."""
    reason: str
    since: datetime | None
    """`None` where nobody knows."""
    until: datetime | None
    """When they are used again if they stay up; `None` while they are down."""

    @property
    def line(self) -> str:
        """Which they are, and why, for people."""
        which = f"NVLink{'s' if len(self.links) > 1 else ''} {', '.join(map(str, self.links))}"
        return f"{which} not used: {self.reason}"

    @property
    def next(self) -> str:
        """What comes next, for people."""
        return "used again if up until then" if self.until else "used again when up for some minutes"


def link_faults_of(view: NodeView) -> tuple[LinkFaultInfo, ...]:
    """Return them by GPU and number."""
    status, topology = view.payloads.status.value, view.shape.topology_class
    index_of = dict(zip(view.uuids, (gpu.index for gpu in topology.node.gpus), strict=True)) if topology else {}
    alike: dict[LinkFault, list[int]] = {}
    for fault in status.link_faults if status else ():
        alike.setdefault(replace(fault, link=0), []).append(fault.link)
    return tuple(
        LinkFaultInfo(
            index=index_of.get(fault.gpu),
            uuid=fault.gpu,
            links=tuple(sorted(links)),
            reason=fault.reason,
            since=moment(fault.since),
            until=moment(fault.until),
        )
        for fault, links in alike.items()
    )
