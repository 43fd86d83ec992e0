"""The NVLinks' health beside NVML: facts without the links that must not be used yet, and what is told of these."""

from __future__ import annotations

import math
from dataclasses import replace

from agent.gpus.facts import Answer, GpuFacts, Known, NvLink, NvmlFacts
from agent.health.links import LinkRecord, NodeLinks
from topology.node.status import LinkFault

DOWN = "inactive"
NOT_YET = "up again, not yet for long"


def usable(facts: NvmlFacts, links: NodeLinks, now: float) -> NvmlFacts:
    """Take in a look at all links, and return it as if those that have not been up for long enough were down."""

    def gpu_with(answer: Answer[GpuFacts]) -> Answer[GpuFacts]:
        if not isinstance(answer, Known):
            return answer
        gpu = answer.value
        if not isinstance(gpu.uuid, Known) or not isinstance(gpu.nvlinks, Known):
            return answer
        uuid = gpu.uuid.value
        return Known(replace(gpu, nvlinks=Known(tuple(link_of(uuid, link) for link in gpu.nvlinks.value))))

    def link_of(uuid: str, link: NvLink) -> NvLink:
        if not isinstance(link.active, Known):
            return link
        may_be_used = links.looked_at(uuid, link.number, now, is_down=not link.active.value)
        return link if may_be_used else replace(link, active=Known(False))

    return replace(facts, gpus=tuple(map(gpu_with, facts.gpus)))


def faults(links: NodeLinks) -> tuple[LinkFault, ...]:
    """Return the links that rings do without, by GPU and number."""
    return tuple(
        _fault(gpu, link, record, links.usable_at(record))
        for gpu, several in links.in_trouble.items()
        for link, record in several.items()
    )


def _fault(gpu: str, link: int, record: LinkRecord, usable_at: float) -> LinkFault:
    since = None if record.out_since is None else int(record.out_since)
    if math.isinf(usable_at):
        return LinkFault(gpu, link, DOWN, since)
    return LinkFault(gpu, link, NOT_YET, since, math.ceil(usable_at))
