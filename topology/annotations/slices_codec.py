"""MIG devices in the topology payload: what all of one profile have in common is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from topology.annotations.payload import Schema, Uuid
from topology.errors import PayloadError
from topology.node.model import MAX_GPUS
from topology.node.slices import MAX_SLICES_PER_GPU, Slice

Name = Annotated[str, StringConstraints(pattern=r"^([1-9]c\.)?[1-9]g\.[0-9]{1,4}gb([+-][a-z.,]{1,16})?$")]
Small = Annotated[int, Field(ge=0, le=255)]


class Profile(Schema):
    """What all slices of a profile have."""

    memory_bytes: Annotated[int, Field(ge=0, le=2**50)]
    size: Small


class _Slice(Schema):
    gpu: Annotated[int, Field(ge=0, le=1023)]
    uuid: Uuid
    profile: Name
    start: Small
    gi: Small
    ci: Small = 0
    memory_bytes: Annotated[int, Field(ge=0, le=2**50)] | None = None
    size: Small | None = None


Slices = Annotated[list[_Slice], Field(max_length=MAX_GPUS * MAX_SLICES_PER_GPU)]


def encode_slices(slices: Sequence[Slice]) -> dict[str, Any]:
    """Return the parts of the payload that tell of slices; none where there are none."""
    if not slices:
        return {}
    first = {each.profile: each for each in reversed(slices)}
    profiles = {name: {"memory_bytes": first[name].memory_bytes, "size": first[name].size} for name in sorted(first)}
    return {"mig_profiles": profiles, "slices": [_encoded(each, profiles[each.profile]) for each in slices]}


def _encoded(each: Slice, usual: Mapping[str, int]) -> dict[str, Any]:
    said = {"gpu": each.gpu, "uuid": each.uuid, "profile": each.profile, "start": each.start, "gi": each.gpu_instance}
    own = {"memory_bytes": each.memory_bytes, "size": each.size}
    different = {name: value for name, value in own.items() if value != usual[name]}
    return said | ({"ci": each.compute_instance} if each.compute_instance else {}) | different


def decode_slices(profiles: Mapping[str, Profile], slices: Sequence[_Slice]) -> tuple[Slice, ...]:
    """Return the slices; raises `PayloadError` for one whose profile is not told."""
    return tuple(_decoded(profiles, each, f"$.slices[{position}]") for position, each in enumerate(slices))


def _decoded(profiles: Mapping[str, Profile], each: _Slice, path: str) -> Slice:
    usual = profiles.get(each.profile)
    memory_bytes = each.memory_bytes if usual is None or each.memory_bytes is not None else usual.memory_bytes
    size = each.size if usual is None or each.size is not None else usual.size
    if memory_bytes is None or size is None:
        raise PayloadError(path, "a profile that mig_profiles does not tell")
    return Slice(each.gpu, each.uuid, each.profile, memory_bytes, each.start, size, each.gi, each.ci)
