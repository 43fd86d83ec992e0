"""Simulated GPU nodes: Node objects that say of themselves what a real agent would, and pods that already hold GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.gpus.discovery import NodeDiscovery
from agent.node.publish import Publication
from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json, for_all
from topology.annotations import keys
from topology.annotations.records import (
    Claim,
    Ledger,
    Observed,
    PlacementRecord,
    encode_ledger,
    encode_observed,
    encode_placement,
)
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

MIXED = ("dgx-1v", "dgx-a100", "hgx-h100", "l40s-8", "a100-pcie-8-pairs")
"""Machines of eight GPUs, each kind wired in a way of its own."""
POD_SIZES = (1, 2, 4, 8, 2, 1)
"""GPUs of the pods that measurements of speed create in turn."""
OCCUPANT_NAMESPACE = "default"
DRIVER_VERSION = "570.124.06"
CUDA_VERSION = "12.8"
RESERVED_GIB = 1
"""Of each GPU that may be shared, for its driver."""
_AT_ONCE = 24


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One node: a machine of the catalogue under a name of its own, with GPU UUIDs of its own."""

    name: str
    machine: str
    used: tuple[int, ...] = ()
    """Positions of the GPUs that a pod holds from the start."""
    cpus: int = 128
    memory_gib: int = 1024
    shared_gpus: int = 0
    """At most so many of its GPUs are shared at one time; where any are, its agent is the device plugin."""
    shared_gib: int = 0
    """What a pod holds of the first GPU from the start, where GPUs are shared."""
    labels: Mapping[str, str] = field(default_factory=dict)
    has_plugin: bool = True
    """Whether a device plugin offers its GPUs; where none does, its agent observes what a DRA driver hands out."""

    @property
    def topology(self) -> NodeTopology:
        """What the node's agent would find: the machine with a driver, and with ECC on all but gaming cards."""
        found = machine(self.machine, host=self.name)
        gpus = tuple(replace(gpu, ecc_enabled="GeForce" not in gpu.model) for gpu in found.gpus)
        return replace(found, gpus=gpus, driver_version=DRIVER_VERSION, cuda_version=CUDA_VERSION)

    @property
    def share_gib(self) -> int:
        """What shares may take of each GPU: its memory without what a driver keeps."""
        return min(gpu.memory_bytes or 0 for gpu in self.topology.gpus) // 2**30 - RESERVED_GIB


def fleet(machines: Mapping[str, int]) -> tuple[SimulatedNode, ...]:
    """Return so many nodes of each machine, named after it.

    >>> [node.name for node in fleet({"dgx-a100": 2, "t4-4": 1})]
    ['dgx-a100-0', 'dgx-a100-1', 't4-4-0']
    """
    return tuple(SimulatedNode(f"{name}-{number}", name) for name, count in machines.items() for number in range(count))


def mixed_fleet(nodes: int) -> tuple[SimulatedNode, ...]:
    """Return so many nodes in all, of five kinds in equal parts."""
    return fleet(dict.fromkeys(MIXED, -(-nodes // len(MIXED))))[:nodes]


class TooFewGpus(Exception):
    """The pods of a measurement would not all find a place."""


def check_capacity(nodes: int, pods: int) -> None:
    """Raise `TooFewGpus` unless so many pods of the usual sizes take at most half of a `mixed_fleet`."""
    asked, there = sum(POD_SIZES) * pods // len(POD_SIZES), 8 * nodes
    if 2 * asked > there:
        raise TooFewGpus(
            f"{pods} pods ask for some {asked} GPUs, more than half of the {there} that {nodes} nodes have"
        )


def agent_annotations(
    topology: NodeTopology, plugin: DevicePluginStatus | None = None, share_gib: int | None = None
) -> dict[str, str]:
    """Return what an agent writes on a new node where all is well and nothing runs."""
    gpus = tuple(GpuStatus(gpu.uuid, share_gib=share_gib) for gpu in topology.gpus)
    status = NodeGpuStatus(generation=0, gpus=gpus, device_plugin=plugin)
    publication = Publication(random=lambda: 0.5, refresh_seconds=300)
    publication.learned({}, now=0)
    patch = publication.patch(NodeDiscovery(topology, status), now=0)
    assert patch is not None, "a new node's agent has everything to say"
    if patch.refused is not None:
        raise patch.refused
    return {**patch.annotations, keys.OBSERVED: encode_observed(Observed({}))}


def _uuids(topology: NodeTopology) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in topology.gpus)


def node_object(node: SimulatedNode) -> Json:
    """Return a Ready Node with its status and an empty ledger, so that one POST makes it schedulable."""
    topology = node.topology
    resources = {
        "cpu": str(node.cpus),
        "memory": f"{node.memory_gib}Gi",
        "pods": "110",
        keys.GPU_RESOURCE: str(len(topology)),
    }
    written = agent_annotations(topology)
    if not node.has_plugin:
        del resources[keys.GPU_RESOURCE]
        why = f"no device plugin serves {keys.GPU_RESOURCE}"
        written = agent_annotations(topology, DevicePluginStatus(Mode.OBSERVE, ready=False, reasons=(why,)))
    if node.shared_gpus:
        resources[keys.SHARE_RESOURCE] = str(node.share_gib * len(topology))
        plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(node.shared_gpus, Limits.NONE))
        written = agent_annotations(topology, plugin, node.share_gib)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {"kubernetes.io/hostname": node.name, **node.labels},
            "annotations": written | {keys.LEDGER: encode_ledger(Ledger(0, gpus=_uuids(topology)))},
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "nothing runs here"}],
        },
    }


def gpu_pod(name: str, gpus: int, annotations: Mapping[str, str] | None = None, **spec: object) -> Json:
    """Return a pod with one container, `main`, that asks for `gpus` GPUs; `spec` adds to its spec."""
    limits = {keys.GPU_RESOURCE: str(gpus)} if gpus else {}
    main = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi", **limits}, "limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"containers": [main], **spec},
    }


def share_pod(
    name: str, gib: int | Mapping[str, int], annotations: Mapping[str, str] | None = None, **spec: object
) -> Json:
    """Return a pod with a share of so many GiB for its container `main`, or for each container that is named."""
    wanted = gib if isinstance(gib, Mapping) else {"main": gib}
    pod = gpu_pod(name, 0, annotations, **spec)
    (main,) = pod["spec"]["containers"]
    shares = {each: {keys.SHARE_RESOURCE: str(count)} for each, count in wanted.items()}
    usual = main["resources"]["requests"]
    pod["spec"]["containers"] = [
        {**main, "name": each, "resources": {"requests": usual | share, "limits": share}}
        for each, share in shares.items()
    ]
    return pod


async def join(client: ApiClient, nodes: Iterable[SimulatedNode], scheduler_name: str = "nobody") -> None:
    """Create the nodes, each with the pod that holds its used GPUs, as if that scheduler had bound it."""

    async def join_one(node: SimulatedNode) -> None:
        made = (await client.call("POST", "/api/v1/nodes", node_object(node))).ok()
        if node.used or node.shared_gib:
            await _occupy(client, node, made["metadata"]["uid"], scheduler_name)

    await for_all(nodes, join_one, _AT_ONCE)


async def _occupy(client: ApiClient, node: SimulatedNode, node_uid: str, scheduler_name: str) -> None:
    """Put a pod on the used GPUs, or on its share, in the extender's own order: pod, claims in the ledger, then the Binding."""
    pods = f"/api/v1/namespaces/{OCCUPANT_NAMESPACE}/pods"
    name, gib = f"{node.name}-occupant", node.shared_gib or None
    gpus = tuple(node.topology.gpus[position].uuid for position in ((0,) if gib else node.used))
    pod = share_pod(name, gib) if gib else gpu_pod(name, len(gpus))
    pod["spec"]["schedulerName"] = scheduler_name
    identity = (await client.call("POST", pods, pod)).ok()["metadata"]
    uid, version = identity["uid"], identity["resourceVersion"]
    claims = tuple(Claim(gpu, uid, OCCUPANT_NAMESPACE, name, "main", version, memory_gib=gib) for gpu in gpus)
    ledger = encode_ledger(Ledger(1, claims, node_uid, _uuids(node.topology)))
    patch = {"metadata": {"annotations": {keys.LEDGER: ledger}}}
    (await client.call("PATCH", f"/api/v1/nodes/{node.name}", patch, content_type=MERGE_PATCH)).ok()
    placement = encode_placement(PlacementRecord({"main": gpus}, memory_gib={"main": gib} if gib else {}))
    binding = {
        "metadata": {
            "name": name,
            "uid": uid,
            "resourceVersion": version,
            "annotations": {keys.PLACEMENT: placement},
        },
        "target": {"kind": "Node", "name": node.name},
    }
    (await client.call("POST", f"{pods}/{name}/binding", binding)).ok()
