"""Nodes with MIG slices, and pods that ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec.structs import replace as struct_replace

from extender.cluster.objects.kinds import Container, Node, Pod, ResourceRequirements
from tests.extender.builders import node, pod
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.records import Claim, Holder, Observed, encode_observed
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.node.slices import Slice
from topology.node.status import DevicePluginStatus, GpuStatus, MigStrategy, Mode, NodeGpuStatus


def cut(name: str, layout: Mapping[int, tuple[str, ...]], run: str = "a") -> NodeTopology:
    """Return an HGX H100 whose GPUs are cut up so, by index; `run` tells the UUIDs of one cut from the next one's."""
    whole = machine("hgx-h100", host=name)
    slices = []
    for gpu, profiles in layout.items():
        start = 0
        for number, profile in enumerate(profiles):
            size = {"1g": 1, "2g": 2, "3g": 4, "7g": 8}[profile.partition(".")[0]]
            slices.append(Slice(gpu, f"MIG-{name}-{gpu}-{number}{run}", profile, size * 10**10, start, size, number, 0))
            start += size
    gpus = tuple(replace(gpu, mig_enabled=gpu.index in layout) for gpu in whole.gpus)
    return replace(whole, gpus=gpus, slices=tuple(slices))


def cut_node(
    topology: NodeTopology,
    name: str = "n1",
    *,
    strategy: MigStrategy = MigStrategy.MIXED,
    mode: Mode = Mode.ENFORCE,
    sick: tuple[str, ...] = (),
    held: Mapping[str, str] | None = None,
    claims: tuple[Claim, ...] | None = (),
    labels: Mapping[str, str] | None = None,
    version: int = 1,
) -> Node:
    """Build the node that publishes this."""
    gpus = tuple(GpuStatus(uuid, healthy=False) for uuid in sick)
    status = NodeGpuStatus(version, gpus, device_plugin=DevicePluginStatus(mode, ready=True, mig=strategy))
    holders = {device: Holder("ml", pod_name, "main") for device, pod_name in (held or {}).items()}
    return node(
        name,
        claims=claims,
        labels=labels,
        version=version,
        topology=encode_topology(topology),
        status=encode_status(status),
        observed=encode_observed(Observed(holders)),
    )


def slice_pod(
    name: str,
    profile: str,
    count: int = 1,
    *,
    on: str | None = None,
    placed: tuple[str, ...] | None = None,
    phase: str | None = None,
    priority: int | None = None,
) -> Pod:
    """Build a pod of one container that asks for slices."""
    plain = pod(name, on=on, placed=placed, phase=phase, priority=priority, terminated=False if phase else None)
    asked: dict[str, str | int] = {keys.MIG_PREFIX + profile: count}
    spec = struct_replace(plain.spec, containers=[Container("main", ResourceRequirements(asked))])
    return struct_replace(plain, spec=spec)
