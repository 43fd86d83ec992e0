"""What the claims of a pod request of our class, as a request for the planner; or why they cannot be met, in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

import msgspec
from msgspec.structs import replace

from extender.cluster.caches.resource_claims import lean_claim
from extender.cluster.objects.devices import ClaimMeta, ClaimSpec, ResourceClaim
from extender.features.dra.cel_cost import MAX_COST
from extender.features.dra.cel_source import MAX_TOKENS
from extender.features.dra.claim_spec import (
    MATCHES_NOTHING,
    MAX_DEVICES,
    MIG_CLASS,
    OUR_CLASS,
    OUR_CLASSES,
    DeviceClaim,
    DeviceClass,
    DeviceToleration,
    Exactly,
    FirstAvailable,
    RefusedField,
    RequestSpec,
)
from extender.features.dra.profiles import profile_in
from extender.features.dra.selectors import MAX_EXPRESSION_BYTES, Selectors, UnreadableSelector
from topology.annotations import keys
from topology.errors import RequestError

MAX_EXPRESSIONS: Final = 8
"""Distinct selectors of a pod."""
MAX_ALTERNATIVES: Final = 8
"""Of a pod, all of its requests together: each may be looked for on all nodes. Kubernetes allows so many for one request."""
MAX_CLAIM_BYTES: Final = 64 * 1024
"""Of a claim's JSON that is kept, but for finalizers; that of a larger one is not, and the claim is refused."""
_OPERATORS: Final = ("", "Equal", "Exists")
_UID_CHARACTERS: Final = 64
"""More than a UID has; users may write longer ones."""
_TOO_MANY: Final = f"more than {MAX_ALTERNATIVES} combinations of alternatives for a pod"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """So many GPUs or MIG devices for one request of one claim."""

    claim_uid: str
    name: str
    """As the results of an allocation have it: `gpus`, or `gpus/large` of an alternative."""
    count: int
    selectors: tuple[str, ...] = ()
    """CEL expressions, those of the class first; each device has to match all."""
    profile: str = ""
    """Of the MIG devices that it requests, as NVIDIA spells it; empty: GPUs."""
    tolerations: tuple[DeviceToleration, ...] = ()
    """Are written into the allocation, so that a later taint ends no pod. GPUs with taints are not planned at all."""


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """What all claims of a pod request of our class, of each `firstAvailable` one alternative.

    All of its requests accept the same devices.
    """

    requests: tuple[DeviceRequest, ...]
    match_attributes: tuple[str, ...] = ()
    """Qualified names of attributes of which all devices of the pod have the same value."""

    @property
    def gpus(self) -> int:
        """GPUs of the pod, or MIG devices."""
        return sum(request.count for request in self.requests)

    @property
    def profile(self) -> str:
        """The profile of its MIG devices; empty: it requests GPUs."""
        return self.requests[0].profile

    @property
    def class_name(self) -> str:
        """The DeviceClass of its devices."""
        return MIG_CLASS if self.profile else OUR_CLASS

    @property
    def selectors(self) -> tuple[str, ...]:
        """Expressions that every device has to match."""
        return self.requests[0].selectors


class _Expressions:
    """The distinct expressions of a pod, which are bounded together: each may have to be evaluated for each GPU."""

    def __init__(self, selectors: Selectors, namespace: str) -> None:
        self._selectors = selectors
        self._namespace = namespace
        self._seen: set[str] = set()
        self._bytes = self._cost = self._tokens = 0

    def check(self, field: str, expression: str) -> None:
        if expression in self._seen:
            return
        self._seen.add(expression)
        self._bytes += len(expression.encode())
        if len(self._seen) > MAX_EXPRESSIONS or self._bytes > MAX_EXPRESSION_BYTES:
            reason = (
                f"more than {MAX_EXPRESSIONS} expressions or {MAX_EXPRESSION_BYTES} bytes for the selectors of a pod"
            )
            raise RefusedField(field, reason)
        try:
            source = self._selectors.read(expression, self._namespace)
        except UnreadableSelector as error:
            raise RefusedField(field, str(error)) from None
        self._cost += source.cost
        self._tokens += source.tokens
        if self._cost > MAX_COST or self._tokens > MAX_TOKENS:
            raise RefusedField(field, "the selectors of the pod are too expensive together")


def is_ours(claim: ResourceClaim) -> bool:
    """Whether any request of the claim names a class of ours; the claim may still be refused."""
    return names_any(claim, OUR_CLASSES)


def names_any(claim: ResourceClaim, classes: Collection[str]) -> bool:
    """Whether any request of the claim names one of these classes."""
    return _first_named(claim, classes) is not None


def kept(claim: ResourceClaim, reserved: Collection[str]) -> ResourceClaim:
    """Return what is read of a claim: of ours what it requests, of others what they hold, and one reserved class of theirs."""
    if is_ours(claim):
        return trimmed(claim)
    lean, name = lean_claim(claim, with_owners=True), _first_named(claim, reserved)
    return lean if name is None else replace(lean, spec=_of_class_alone(name))


def holdings_of(claim: ResourceClaim) -> ResourceClaim:
    """Return what a claim holds; of ours also its class and its pod, whose GPUs are in a ledger, too."""
    if not is_ours(claim):
        return lean_claim(claim)
    lean = lean_claim(claim, with_owners=True)
    return replace(
        lean, metadata=replace(lean.metadata, annotations=_mark(claim)), spec=_of_class_alone(_class_of(claim))
    )


def _mark(claim: ResourceClaim) -> dict[str, str] | None:
    """Return the annotation that says for which pod a claim is, where no owner says so."""
    uid = claim.pod if claim.is_standalone else ""
    return {keys.CLAIM_POD: uid} if 0 < len(uid) <= _UID_CHARACTERS else None


def trimmed(claim: ResourceClaim) -> ResourceClaim:
    """Return what is read of a claim of ours: without annotations of others, and without its devices where it is too large.

    All finalizers stay, as they are written back with ours.
    """
    metadata = claim.metadata
    name_and_ours = ClaimMeta(
        metadata.name,
        metadata.namespace,
        metadata.uid,
        metadata.resource_version,
        deletion_timestamp=metadata.deletion_timestamp,
        annotations={
            key: value
            for key, value in (metadata.annotations or {}).items()
            if key.startswith(keys.USER_PREFIX) or key == keys.CLAIM_POD
        },
        owner_references=[owner for owner in metadata.owner_references or () if owner.controller],
        finalizers=metadata.finalizers,
    )
    json_bytes = len(msgspec.json.encode((name_and_ours.annotations, claim.spec.devices)))
    if json_bytes <= MAX_CLAIM_BYTES:
        return replace(claim, metadata=name_and_ours)
    return replace(
        claim,
        metadata=replace(name_and_ours, annotations=_mark(claim)),
        spec=_of_class_alone(_class_of(claim), json_bytes),
    )


def read_demands(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass], selectors: Selectors
) -> tuple[DeviceDemand, ...]:
    """Read what claims request: the alternatives in the order in which kube-scheduler tries them on a node, at least one.

    It goes through the alternatives of the last request first, and leaves out what has too many devices for one claim.

    Raises `RequestError` with the path within the claim that cannot be met.

    Args:
        claims: All claims of one pod that are of our class, at least one; those that have an allocation count like others.
        classes: Ours, by name.
        selectors: Compiles expressions.

    """
    of_claims, expressions = list[list[DeviceDemand]](), _Expressions(selectors, claims[0].metadata.namespace)
    for claim in claims:
        try:
            of_claims.append(_of_claim(claim, classes, expressions))
            if prod(map(len, of_claims)) > MAX_ALTERNATIVES:
                raise RefusedField("spec.devices.requests", _TOO_MANY)
            demands = tuple(map(_together, product(*of_claims)))
        except RefusedField as refused:
            raise RequestError(f"ResourceClaim {claim.name}", str(refused)) from None
    return demands


def _class_of(claim: ResourceClaim) -> str:
    """Return the class of ours that a claim of ours names first."""
    return _first_named(claim, OUR_CLASSES) or OUR_CLASS


def _first_named(claim: ResourceClaim, classes: Collection[str]) -> str | None:
    """Return the first of these classes that a request of the claim names, `None` where it names none."""
    for request in _listed(claim.spec.devices, "requests"):
        for way in (request.get("exactly"), *_listed(request, "firstAvailable")):
            name = way.get("deviceClassName") if isinstance(way, Mapping) else None
            if isinstance(name, str) and name in classes:
                return name
    return None


def _of_class_alone(name: str, json_bytes: int | None = None) -> ClaimSpec:
    return ClaimSpec({"requests": [{"exactly": {"deviceClassName": name}}]}, json_bytes)


def _listed(mapping: Mapping[str, object] | None, key: str) -> list[Mapping[str, object]]:
    values = (mapping or {}).get(key)
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


def _of_class(name: str, device_class: DeviceClass | None) -> tuple[str, ...]:
    """Return the expressions of a class of ours but for the one that nothing matches."""
    if device_class is None:
        raise RefusedField(f"DeviceClass {name}", "does not exist, or cannot be read")
    expressions = [selector.cel.expression for selector in device_class.spec.selectors or ()]
    if MATCHES_NOTHING not in expressions:
        reason = f"lacks the selector `{MATCHES_NOTHING}`, without which kube-scheduler allocates devices itself"
        raise RefusedField(f"DeviceClass {name}", reason)
    return tuple(expression for expression in expressions if expression != MATCHES_NOTHING)


def _of_claim(
    claim: ResourceClaim, classes: Mapping[str, DeviceClass], expressions: _Expressions
) -> list[DeviceDemand]:
    """Return what one claim requests, its alternatives in order."""
    devices = read_devices(claim)
    ways = [_ways(f"spec.devices.requests[{at}]", request) for at, request in enumerate(devices.requests or ())]
    if prod(map(len, ways)) > MAX_ALTERNATIVES:
        raise RefusedField("spec.devices.requests", _TOO_MANY)
    for at, configuration in enumerate(devices.config or ()):
        if configuration.opaque is None:
            raise RefusedField(f"spec.devices.config[{at}]", "this kind of configuration is not known")
    read = [[_read(claim, *way, classes, expressions) for way in of_request] for of_request in ways]
    demands = [DeviceDemand(requests, _match_attributes(devices, requests)) for requests in product(*read)]
    possible = [demand for demand in demands if demand.gpus <= MAX_DEVICES]
    if not possible:
        raise RefusedField("spec.devices.requests", f"more than {MAX_DEVICES} devices")
    return possible


def read_devices(claim: ResourceClaim) -> DeviceClaim:
    """Read what a claim requests; what is not known is refused, as it may speak against devices."""
    if claim.spec.json_bytes:
        reason = f"{claim.spec.json_bytes} bytes with our annotations, more than {MAX_CLAIM_BYTES}"
        raise RefusedField("spec.devices", reason)
    try:
        return msgspec.convert(claim.spec.devices or {}, DeviceClaim)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise RefusedField(f"spec.devices{path.rstrip('`')}", reason) from None


def _ways(path: str, request: RequestSpec) -> list[tuple[str, str, Exactly | FirstAvailable]]:
    """Return path, name and text of what a request would have, in order."""
    if request.exactly is not None and not request.first_available:
        return [(f"{path}.exactly", request.name, request.exactly)]
    if request.first_available and request.exactly is None:
        return [
            (f"{path}.firstAvailable[{at}]", f"{request.name}/{alternative.name}", alternative)
            for at, alternative in enumerate(request.first_available)
        ]
    raise RefusedField(path, "neither exactly nor firstAvailable")


def _read(
    claim: ResourceClaim,
    path: str,
    name: str,
    way: Exactly | FirstAvailable,
    classes: Mapping[str, DeviceClass],
    expressions: _Expressions,
) -> DeviceRequest:
    ours = way.device_class_name
    if ours not in OUR_CLASSES:
        reason = f"{ours} in a claim of {_class_of(claim)}: a claim has either devices of ours or of other classes"
        raise RefusedField(f"{path}.deviceClassName", reason)
    of_class = _of_class(ours, classes.get(ours))
    if way.allocation_mode not in ("", "ExactCount"):
        raise RefusedField(f"{path}.allocationMode", f"{way.allocation_mode} is not supported")
    if isinstance(way, Exactly) and way.admin_access:
        raise RefusedField(f"{path}.adminAccess", "not supported")
    if way.capacity is not None:
        raise RefusedField(f"{path}.capacity", "not supported, GPUs are allocated whole")
    for at, toleration in enumerate(way.tolerations or ()):
        if toleration.operator not in _OPERATORS:
            raise RefusedField(f"{path}.tolerations[{at}].operator", f"{toleration.operator} is not known")
    of_request = [selector.cel.expression for selector in way.selectors or ()]
    for where, expression in (
        *((f"DeviceClass {ours}", expression) for expression in of_class),
        *((f"{path}.selectors[{at}].cel.expression", expression) for at, expression in enumerate(of_request)),
    ):
        expressions.check(where, expression)
    count = way.count or 1
    if count < 0:
        raise RefusedField(f"{path}.count", f"{count} devices")
    every, profile = (*of_class, *of_request), ""
    if ours == MIG_CLASS:
        if isinstance(way, FirstAvailable):
            raise RefusedField(path, f"not supported for {MIG_CLASS}: request one profile by `exactly`")
        profile = profile_in(f"{path}.selectors", every)
    return DeviceRequest(claim.metadata.uid, name, count, every, profile, tuple(way.tolerations or ()))


def is_for(requests: Iterable[str], name: str) -> bool:
    """Whether what names these requests is for one; what names a request is for all of its alternatives."""
    return name in requests or name.partition("/")[0] in requests


def _match_attributes(devices: DeviceClaim, requests: Sequence[DeviceRequest]) -> tuple[str, ...]:
    """Return the attributes that all devices of a claim have in common if these requests are met."""
    attributes = list[str]()
    for at, constraint in enumerate(devices.constraints or ()):
        path = f"spec.devices.constraints[{at}]"
        if constraint.match_attribute is None:
            raise RefusedField(path, "only matchAttribute is supported")
        named = constraint.requests
        are_meant = [not named or is_for(named, request.name) for request in requests]
        if not all(are_meant) and any(are_meant):
            raise RefusedField(f"{path}.requests", "supported for all requests of a claim only")
        if all(are_meant):
            attributes.append(constraint.match_attribute)
    return tuple(attributes)


def _together(demands: Sequence[DeviceDemand]) -> DeviceDemand:
    """Return what the claims of a pod request together: the same of every device."""
    if len(demands) > 1 and any(demand.match_attributes for demand in demands):
        raise RefusedField("spec.devices.constraints", "supported for a pod's only claim of our class")
    requests = tuple(request for demand in demands for request in demand.requests)
    if len({request.profile for request in requests}) > 1:
        reason = "a pod gets GPUs, or MIG devices of one profile"
        raise RefusedField("spec.devices.requests", reason)
    if requests[0].profile and any(demand.match_attributes for demand in demands):
        raise RefusedField("spec.devices.constraints", f"not supported for {MIG_CLASS}")
    if len({frozenset(request.selectors) for request in requests}) > 1:
        raise RefusedField("spec.devices.requests", "all requests of a pod need the same selectors")
    return DeviceDemand(requests, demands[0].match_attributes)
