"""Nodes whose GPUs are shared, and pods with shares of them, in one line each."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from extender.cluster.objects.kinds import Container, Node, Pod, ResourceRequirements
from tests.extender.builders import DGX, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import (
    Claim,
    Holder,
    Observed,
    PlacementRecord,
    Sharer,
    encode_observed,
    encode_placement,
)
from topology.annotations.status_codec import encode_status
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

SHARE_GIB = 39
"""Of the 40 GiB of a DGX A100's GPUs."""
Seen = Mapping[str, Mapping[str, int]]
"""GPU → pod → GiB, as an agent saw it."""


def share(gpu: str, uid: str, gib: int, sharing_class: str = "", container: str = "main") -> Claim:
    """Claim a share for the pod that `sharer(uid)` builds."""
    return Claim(gpu, uid, "ml", uid, container, "1", memory_gib=gib, sharing_class=sharing_class)


def sharing_node(
    *claims: Claim,
    seen: Seen | None = None,
    whole: Mapping[str, str] | None = None,
    beyond: Mapping[str, int] | None = None,
    max_gpus: int = 8,
    name: str = "n1",
    machine_name: str = DGX,
    reports: int = 1,
    version: int = 1,
    generation: int = 1,
) -> Node:
    """Build a node in mode enforce that shares its GPUs; `whole` is GPU → pod, `beyond` GPU → GiB used beyond shares."""
    every = gpus(name, *range(8), machine_name=machine_name)
    states = tuple(GpuStatus(gpu, share_gib=SHARE_GIB, beyond_shares_gib=(beyond or {}).get(gpu, 0)) for gpu in every)
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(max_gpus, Limits.NONE))
    return node(
        name, machine_name, claims=claims, version=version, generation=generation,
        status=encode_status(NodeGpuStatus(reports, states, device_plugin=plugin)),
        observed=encode_observed(saw(seen or {}, whole or {})),
    )  # fmt: skip


def saw(shares: Seen, whole: Mapping[str, str] = {}) -> Observed:
    """Return a report of the agent's."""
    shared = {gpu: tuple(Sharer("ml", name, "main", gib) for name, gib in of.items()) for gpu, of in shares.items()}
    first = {gpu: Holder("ml", next(iter(of)), "main") for gpu, of in shares.items()}
    return Observed({gpu: Holder("ml", name, "main") for gpu, name in whole.items()} | first, shared=shared)


def sharer(
    name: str,
    gib: int | Mapping[str, int] = 10,
    *,
    on: str | None = None,
    gpu: str | Mapping[str, str] | None = None,
    sharing_class: str = "",
    wants: Mapping[str, str] | None = None,
    phase: str | None = None,
    terminated: bool | None = None,
    deleting: bool = False,
    version: int = 1,
    uid: str = "",
    priority: int | None = None,
) -> Pod:
    """Build a pod with a share for `main`, or for each container that is named; `gpu` is what its record says."""
    asked = gib if isinstance(gib, Mapping) else {"main": gib}
    annotations = dict(wants or {}) | ({keys.SHARING_CLASS: sharing_class} if sharing_class else {})
    if gpu is not None:
        of = gpu if isinstance(gpu, Mapping) else dict.fromkeys(asked, gpu)
        record = PlacementRecord({container: (of[container],) for container in asked}, memory_gib=dict(asked))
        annotations[keys.PLACEMENT] = encode_placement(record)
    made = pod(
        name, on=on, wants=annotations, phase=phase, terminated=terminated, deleting=deleting, version=version, uid=uid,
        priority=priority,
    )  # fmt: skip
    containers = [Container(each, ResourceRequirements({keys.SHARE_RESOURCE: count})) for each, count in asked.items()]
    return replace(made, spec=replace(made.spec, containers=containers))


def sharing(
    name: str, gpu: str, gib: int = 10, sharing_class: str = "", *, on: str = "n1", version: int = 1, uid: str = ""
) -> Pod:
    """Build a pod that runs with a share of this GPU."""
    return sharer(
        name, gib, on=on, gpu=gpu, sharing_class=sharing_class, phase="Running", terminated=False, version=version,
        uid=uid,
    )  # fmt: skip
