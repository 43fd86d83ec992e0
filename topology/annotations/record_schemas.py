"""How ledgers, placements and what agents observe are written as JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from topology.annotations.payload import Count, Schema, Text, Uuid
from topology.node.links import Affinity
from topology.node.model import MAX_NICS
from topology.node.slices import MAX_DEVICES

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""A DNS subdomain: every Kubernetes name that occurs here is one."""


ShareGib = Annotated[int, Field(ge=1, le=2**20)]


class HolderSchema(Schema):
    """A container that has a device."""

    namespace: Name
    name: Name
    container: Name


class SharerSchema(HolderSchema):
    """A container that has parts of a GPU."""

    parts: Annotated[int, Field(ge=1, le=2**16)] = 1


class ClaimUserSchema(HolderSchema):
    """A container that has devices by a ResourceClaim."""

    claim: Name
    pool: Text
    devices: Annotated[list[Text], Field(max_length=MAX_DEVICES)]


class ClaimSchema(HolderSchema):
    """One claim of a ledger."""

    gpu: Uuid
    uid: Uuid
    resource_version: Annotated[str, StringConstraints(pattern=r"^[!-~]{0,64}$")] = ""
    exact: bool = False
    memory_gib: ShareGib | None = None
    sharing_class: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")] = ""
    compute_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    parent: Uuid | None = None


class LedgerSchema(Schema):
    """A node's ledger."""

    generation: Count
    node_uid: Annotated[str, StringConstraints(pattern=r"^[!-~]{0,96}$")] = ""
    claims: Annotated[list[ClaimSchema], Field(max_length=MAX_DEVICES)]
    gpus: Annotated[list[Uuid], Field(max_length=MAX_DEVICES)] | None = None


MAX_CONTAINERS = 256
"""That one placement names."""

GbPerS = Annotated[float, Field(ge=0, le=1e6)]


class BandwidthSchema(Schema):
    """What the GPUs of a placement reach together."""

    low: GbPerS
    point: GbPerS
    high: GbPerS
    measured: bool = False


class PlannedOnSchema(Schema):
    """The node of a placement that was written before the Binding."""

    node: Name
    fence: Annotated[str, StringConstraints(pattern=r"^[!-~]{0,64}$")] = ""


class PlacementSchema(Schema):
    """A pod's placement."""

    containers: Annotated[
        dict[Name, Annotated[list[Uuid], Field(max_length=MAX_DEVICES)]], Field(max_length=MAX_CONTAINERS)
    ]
    affinity: Annotated[str, StringConstraints(pattern=f"^({'|'.join(Affinity)})$")] | None = None
    bandwidth_gb_per_s: BandwidthSchema | None = None
    ledger_generation: Count | None = None
    nics: Annotated[list[Text], Field(max_length=MAX_NICS)] = Field(default_factory=list)
    memory_gib: Annotated[dict[Name, ShareGib], Field(max_length=MAX_CONTAINERS)] = Field(default_factory=dict)
    limits: Literal["cgroup", "mps", "none"] | None = None
    planned: PlannedOnSchema | None = None


class ObservedSchema(Schema):
    """What an agent observed."""

    gpus: Annotated[dict[Uuid, HolderSchema], Field(max_length=MAX_DEVICES)]
    generation: Count = 0
    strangers: Annotated[dict[Uuid, Annotated[int, Field(ge=1, le=2**20)]], Field(max_length=MAX_DEVICES)] = Field(
        default_factory=dict
    )
    """Foreign processes; agents that are out there write them under this key."""
    node_version: Annotated[str, StringConstraints(pattern=r"^[0-9]{0,20}$")] = ""
    shared: Annotated[dict[Uuid, list[SharerSchema]], Field(max_length=MAX_DEVICES)] = Field(default_factory=dict)
    claimed: list[ClaimUserSchema] = Field(default_factory=list)
