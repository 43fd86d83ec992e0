"""The trace's servers and pods as objects of the API: a thousandth of a GPU is a GiB of GPUs that have 1000 of them."""

from __future__ import annotations

from dataclasses import replace

from agent.gpus.discovery import NodeDiscovery
from agent.node.publish import Publication
from benchmarks.placement.cluster import ServerSpec
from benchmarks.placement.jobs import PodSize
from benchmarks.processes.client import Json
from topology.annotations import keys
from topology.annotations.records import Ledger, Observed, encode_ledger, encode_observed
from topology.formats.catalog import GIB
from topology.node.sharing import Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.value.fragmentation import WHOLE_GPU_MILLI


def node_of(name: str, server: ServerSpec) -> Json:
    """Return a Ready node whose agent is the device plugin and lets pods share all GPUs."""
    gpus = tuple(
        replace(gpu, uuid=f"GPU-{name}-{gpu.index}", memory_bytes=WHOLE_GPU_MILLI * GIB) for gpu in server.topology.gpus
    )
    status = NodeGpuStatus(
        generation=0,
        gpus=tuple(GpuStatus(gpu.uuid, share_gib=WHOLE_GPU_MILLI) for gpu in gpus),
        device_plugin=DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(len(gpus))),
    )
    publication = Publication(random=lambda: 0.5, refresh_seconds=300)
    publication.learned({}, now=0)
    patch = publication.patch(NodeDiscovery(replace(server.topology, gpus=gpus), status), now=0)
    assert patch is not None, "a new node's agent has everything to say"
    resources = {
        "cpu": f"{server.cpu_milli}m",
        "memory": f"{server.memory_mib}Mi",
        "pods": "1000",
        keys.GPU_RESOURCE: str(len(gpus)),
        keys.SHARE_RESOURCE: str(WHOLE_GPU_MILLI * len(gpus)),
    }
    ledger = Ledger(0, gpus=tuple(gpu.uuid for gpu in gpus))
    annotations = {keys.OBSERVED: encode_observed(Observed({})), keys.LEDGER: encode_ledger(ledger)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {**patch.annotations, **annotations}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "nothing runs here"}],
        },
    }


def pod_of(name: str, pod: PodSize) -> Json:
    """Return the pod as its owner would write it."""
    asked = {keys.SHARE_RESOURCE: str(pod.gpu_milli)} if pod.shares else {keys.GPU_RESOURCE: str(pod.gpus)}
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi", **asked}
    annotations = {keys.GPU_MODEL: ",".join(pod.models)} if pod.models else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "a", "resources": {"requests": requests, "limits": asked}}]},
    }
