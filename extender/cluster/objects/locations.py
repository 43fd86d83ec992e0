"""Which NVLink domain, rack and block a node is in: by its GPUs' own fabric, and by labels that others write.

Nobody has agreed on labels for racks and blocks, so the known ones are tried in turn, and an operator can name others. Names
of one level have to be unique in the cluster, as they are with all of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from extender.cluster.objects.kinds import Node
from extender.cluster.objects.payloads import NodePayloads
from topology.request.domains import Level, Location

Labels = Mapping[Level, Sequence[str]]

LABELS: Final[Labels] = MappingProxyType(
    {
        Level.NVLINK_DOMAIN: ("nvidia.com/gpu.clique", "accelerator.topograph.run/domain"),
        Level.RACK: (
            "topology.kubernetes.io/rack",
            "fabric.topograph.run/tier-0",
            "cloud.google.com/gce-topology-subblock",
            "topology.k8s.aws/network-node-layer-3",
            "oci.oraclecloud.com/host.rack_id",
        ),
        Level.BLOCK: (
            "topology.kubernetes.io/block",
            "fabric.topograph.run/tier-1",
            "cloud.google.com/gce-topology-block",
            "topology.k8s.aws/network-node-layer-2",
            "oci.oraclecloud.com/host.network_block_id",
        ),
    }
)
"""Of GPU Feature Discovery, Topograph, Google, Amazon and Oracle; a level's first label that a node has counts."""


def locate(node: Node, payloads: NodePayloads, labels: Labels) -> Location:
    """Return what is known of a node's place; an NVLink domain that its agent reports goes before any label."""
    written = node.metadata.labels or {}
    nvlink_domain, rack, block = (
        next((written[label] for label in labels.get(level, ()) if written.get(label)), None) for level in Level
    )
    gpus = payloads.topology.value
    return Location((gpus.domain if gpus else None) or nvlink_domain, rack, block)
