"""Which NVLink domain, rack and block a node is in: by its GPUs' own fabric, and by labels that others write.

Nobody has agreed on labels for racks and blocks, so the known ones are tried in turn, and an operator can name others.
"""

from __future__ import annotations

from extender.cluster.objects.kinds import Node
from extender.cluster.objects.payloads import NodePayloads
from topology.request.domains import DomainLabels, Level, Location


def locate(node: Node, payloads: NodePayloads, labels: DomainLabels) -> Location:
    """Return what is known of a node's place; an NVLink domain that its agent reports goes before any label."""
    written = node.metadata.labels or {}
    nvlink_domain, rack, block = (
        next((written[label] for label in labels.get(level, ()) if written.get(label)), None) for level in Level
    )
    gpus = payloads.topology.value
    return Location((gpus.domain if gpus else None) or nvlink_domain, rack, block)
