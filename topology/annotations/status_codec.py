"""The status of a node, to text and back. `null` and absence mean "unknown"; what all GPUs have in common is said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from topology.annotations.payload import Count, Moment, Schema, Text, Uuid, known, read, write
from topology.errors import PayloadError
from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager
from topology.node.model import MAX_GPUS
from topology.node.offers import OfferForm, ResourceOffer
from topology.node.sharing import Limits, Sharing
from topology.node.slices import MAX_DEVICES
from topology.node.status import DevicePluginStatus, GpuStatus, LinkFault, MigStrategy, Mode, NodeGpuStatus, Outlook

MAX_NUMA_NODES_WITH_CPUS = 64
"""More than any machine has; a claim of more is a forged or broken payload."""
NumaNodeKey = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,3})$")]


Gib = Annotated[int, Field(ge=0, le=2**20)]


class _Offer(Schema):
    resource: Text
    form: Literal["whole", "shared", "sliced"]
    parts: Annotated[int, Field(ge=1, le=2**16)] = 1


class _StatusTraits(Schema):
    mig_enabled: bool | None = None
    offers: Annotated[list[_Offer], Field(max_length=16)] | None = None
    share_gib: Gib | None = None


_TRAITS = ("mig_enabled", "offers", "share_gib")


class _Outlook(Schema):
    next: Text
    until: Moment | None = None
    remedy: Text = ""


class _GpuStatus(_StatusTraits):
    healthy: bool
    reasons: list[Text] = Field(default_factory=list)
    memory_used_gib: Gib | None = None
    sick_since: Moment | None = None
    outlook: _Outlook | None = None
    doubtful: bool = False
    beyond_shares_gib: Gib = 0


class _LinkFault(Schema):
    gpu: Uuid
    link: Annotated[int, Field(ge=0, le=255)]
    reason: Text
    since: Moment | None = None
    until: Moment | None = None


class _NumaCpus(Schema):
    total: Annotated[int, Field(ge=1, le=2**16)]
    free: Annotated[int, Field(ge=0, le=2**16)]


class _TopologyManager(Schema):
    policy: Literal["best-effort", "restricted", "single-numa-node"]
    scope: Literal["container", "pod"] = "container"
    cpus: dict[NumaNodeKey, _NumaCpus] = Field(default_factory=dict, max_length=MAX_NUMA_NODES_WITH_CPUS)


class _Sharing(Schema):
    max_gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)]
    limits: Literal["cgroup", "mps", "none"]
    reasons: Annotated[list[Text], Field(max_length=16)] = Field(default_factory=list)


class _DevicePlugin(Schema):
    mode: Literal["observe", "enforce"]
    ready: bool
    session: Annotated[str, StringConstraints(pattern=r"^[!-~]{0,64}$")] = ""
    reasons: Annotated[list[Text], Field(max_length=16)] = Field(default_factory=list)
    mig: Literal["none", "single", "mixed"] = "none"
    topology_manager: _TopologyManager | None = None
    also_offered: list[Uuid] = Field(default_factory=list, max_length=MAX_GPUS)
    sharing: _Sharing | None = None


class _Status(Schema):
    generation: Count
    every_gpu: _StatusTraits = _StatusTraits()
    gpus: dict[Uuid, _GpuStatus] = Field(default_factory=dict, max_length=MAX_DEVICES)
    link_faults: list[_LinkFault] = Field(default_factory=list)
    reasons: list[Text] = Field(default_factory=list)
    device_plugin: _DevicePlugin | None = None
    agent_version: Text | None = None


def encode_status(status: NodeGpuStatus) -> str:
    """Return the canonical text; GPUs by UUID, link faults by GPU and link; raises `PayloadError`."""
    every = _in_common(status.gpus)
    gpus: dict[str, Any] = {}
    for gpu in sorted(status.gpus, key=lambda gpu: gpu.uuid):
        if gpu.uuid in gpus:
            raise PayloadError("$.gpus", "the same UUID twice")
        gpus[gpu.uuid] = known(
            {
                "healthy": gpu.healthy,
                "reasons": list(gpu.reasons) or None,
                "memory_used_gib": gpu.memory_used_gib,
                "sick_since": gpu.sick_since,
                "outlook": _encode_outlook(gpu.outlook) if gpu.outlook else None,
                "doubtful": gpu.doubtful or None,
                "beyond_shares_gib": gpu.beyond_shares_gib or None,
                **{name: trait for name, trait in _traits(gpu).items() if name not in every},
            }
        )
    payload: dict[str, Any] = {"generation": status.generation}
    if every:
        payload["every_gpu"] = every
    payload["gpus"] = gpus
    if status.link_faults:
        faults = sorted(status.link_faults, key=lambda fault: (fault.gpu, fault.link))
        payload["link_faults"] = [known(asdict(fault)) for fault in faults]
    if status.reasons:
        payload["reasons"] = list(status.reasons)
    if plugin := status.device_plugin:
        payload["device_plugin"] = {"mode": plugin.mode.value, "ready": plugin.ready} | known(
            {
                "session": plugin.session or None,
                "reasons": list(plugin.reasons) or None,
                "mig": None if plugin.mig is MigStrategy.NONE else plugin.mig.value,
                "topology_manager": _encode_manager(plugin.topology_manager) if plugin.topology_manager else None,
                "also_offered": sorted(plugin.also_offered) or None,
                "sharing": _encode_sharing(plugin.sharing) if plugin.sharing else None,
            }
        )
    if status.agent_version:
        payload["agent_version"] = status.agent_version
    return write(_Status, payload)


def _encode_sharing(sharing: Sharing) -> dict[str, Any]:
    said: dict[str, Any] = {"max_gpus": sharing.max_gpus, "limits": sharing.limits.value}
    return said | ({"reasons": list(sharing.reasons)} if sharing.reasons else {})


def _encode_manager(manager: TopologyManager) -> dict[str, Any]:
    said: dict[str, Any] = {"policy": manager.policy.value, "scope": manager.scope.value}
    cpus = {str(each.numa_node): {"total": each.total, "free": each.free} for each in manager.cpus}
    return said | ({"cpus": cpus} if cpus else {})


def _traits(gpu: GpuStatus) -> dict[str, Any]:
    """Return what GPUs of one node mostly have in common."""
    return {
        "mig_enabled": gpu.mig_enabled,
        "offers": None if gpu.offers is None else list(map(_encode_offer, gpu.offers)),
        "share_gib": gpu.share_gib,
    }


def _in_common(gpus: Sequence[GpuStatus]) -> dict[str, Any]:
    if len(gpus) < 2:
        return {}
    first, *others = map(_traits, gpus)
    return known({name: trait for name, trait in first.items() if all(other[name] == trait for other in others)})


def _encode_offer(offer: ResourceOffer) -> dict[str, Any]:
    return {"resource": offer.resource, "form": offer.form.value} | ({"parts": offer.parts} if offer.parts > 1 else {})


def _encode_outlook(outlook: Outlook) -> dict[str, Any]:
    return {"next": outlook.next} | known({"until": outlook.until, "remedy": outlook.remedy or None})


def decode_status(text: str | bytes) -> NodeGpuStatus:
    """Return the status, GPUs by UUID; raises `PayloadError`."""
    payload = read(_Status, text)
    return NodeGpuStatus(
        generation=payload.generation,
        gpus=tuple(_decode_gpu(uuid, said, payload.every_gpu) for uuid, said in sorted(payload.gpus.items())),
        link_faults=tuple(LinkFault(**fault.model_dump()) for fault in payload.link_faults),
        reasons=tuple(payload.reasons),
        device_plugin=_decode_device_plugin(payload.device_plugin) if payload.device_plugin else None,
        agent_version=payload.agent_version or "",
    )


def _decode_gpu(uuid: str, said: _GpuStatus, every: _StatusTraits) -> GpuStatus:
    mig, offers, share = ((said if trait in said.model_fields_set else every) for trait in _TRAITS)
    return GpuStatus(
        uuid,
        healthy=said.healthy,
        reasons=tuple(said.reasons),
        memory_used_gib=said.memory_used_gib,
        mig_enabled=mig.mig_enabled,
        sick_since=said.sick_since,
        outlook=Outlook(said.outlook.next, said.outlook.until, said.outlook.remedy) if said.outlook else None,
        doubtful=said.doubtful,
        offers=None if offers.offers is None else tuple(map(_decode_offer, offers.offers)),
        share_gib=share.share_gib,
        beyond_shares_gib=said.beyond_shares_gib,
    )


def _decode_offer(said: _Offer) -> ResourceOffer:
    return ResourceOffer(said.resource, OfferForm(said.form), said.parts)


def _decode_device_plugin(said: _DevicePlugin) -> DevicePluginStatus:
    manager = _decode_manager(said.topology_manager) if said.topology_manager else None
    return DevicePluginStatus(
        Mode(said.mode),
        said.ready,
        said.session,
        tuple(said.reasons),
        MigStrategy(said.mig),
        manager,
        frozenset(said.also_offered),
        _decode_sharing(said.sharing) if said.sharing else None,
    )


def _decode_sharing(said: _Sharing) -> Sharing:
    return Sharing(said.max_gpus, Limits(said.limits), tuple(said.reasons))


def _decode_manager(said: _TopologyManager) -> TopologyManager:
    cpus = sorted((int(numa_node), each.total, each.free) for numa_node, each in said.cpus.items())
    return TopologyManager(Policy(said.policy), Scope(said.scope), tuple(NumaCpus(*each) for each in cpus))
