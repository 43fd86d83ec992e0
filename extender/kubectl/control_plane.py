"""What the API server says of its version, of our admission policies and of who plans the queue, to those who may read it."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from extender.config.defaults import QUEUE_LEASE
from extender.inspect.control_plane import ControlPlane, PlannerInfo, PolicyInfo
from extender.kit.clock import Instant
from extender.kubectl.cleanup import OURS
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.lease import DURATION_SECONDS, LONGEST_SECONDS
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send

_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_LEASES: Final = (
    f"/apis/coordination.k8s.io/v1/leases?fieldSelector={quote(f'metadata.name={QUEUE_LEASE}', safe='')}&limit=100"
)
"""In any namespace: nothing says where gputopo is. Others may have Leases of that name."""
_MAX_CHARACTERS: Final = 253
"""Of a name that is shown."""
_LABELLED: Final = quote("=".join(OURS), safe="")


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Policy(msgspec.Struct):
    metadata: _Metadata


class _Policies(msgspec.Struct):
    items: list[_Policy] | None = None


class _BindingSpec(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    validation_actions: list[str] | None = None


class _Binding(msgspec.Struct):
    spec: _BindingSpec


class _Bindings(msgspec.Struct):
    items: list[_Binding] | None = None


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _LeaseSpec


class _Leases(msgspec.Struct):
    items: list[_Lease] | None = None


Document = TypeVar("Document", _Version, _Policies, _Bindings, _Leases)


class _NotTold(Exception):
    """The API server does not answer this; the text says why, without words of others."""


async def read_control_plane(config: Kubeconfig) -> ControlPlane:
    """Return what this user may know of it; raises `Unavailable` where there are no credentials."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        return await control_plane(api.send, Instant(time.monotonic(), time.time()))


async def control_plane(send: Send, now: Instant) -> ControlPlane:
    """Return what the answers to four questions say; where there is none, it is not known, and why not."""
    try:
        version = (await _get(send, "/version", _Version)).git_version
    except _NotTold:
        version = None
    planners, planners_unknown = await _planners(send, now)
    plane = ControlPlane(api_server=version, planners=planners, planners_unknown=planners_unknown)
    try:
        listed = await _get(send, f"{_POLICIES}?labelSelector={_LABELLED}", _Policies)
        bindings = await _get(send, _BINDINGS, _Bindings)  # one that a person made has no label of ours
    except _NotTold as reason:
        return plane.model_copy(update={"policies_unknown": str(reason)})
    actions = defaultdict[str, set[str]](set)
    for binding in bindings.items or ():
        actions[binding.spec.policy_name].update(binding.spec.validation_actions or ())
    names = sorted(policy.metadata.name for policy in listed.items or ())
    policies = tuple(PolicyInfo(name=name, actions=tuple(sorted(actions[name]))) for name in names)
    return plane.model_copy(update={"policies": policies})


async def _planners(send: Send, now: Instant) -> tuple[tuple[PlannerInfo, ...] | None, str]:
    """Return who holds the Leases of queues; else why that is not known."""
    try:
        leases = await _get(send, _LEASES, _Leases)
    except _NotTold as reason:
        return None, str(reason)
    return tuple(_planner(lease, now) for lease in leases.items or ()), ""


def _planner(lease: _Lease, now: Instant) -> PlannerInfo:
    spec = lease.spec
    return PlannerInfo(
        namespace=lease.metadata.namespace,
        holder=(spec.holder_identity or "")[:_MAX_CHARACTERS] if spec.renew_time else "",
        silent_seconds=now.age_seconds(spec.renew_time),
        lease_seconds=min(spec.lease_duration_seconds or DURATION_SECONDS, LONGEST_SECONDS),
    )


async def _get(send: Send, path: str, form: type[Document]) -> Document:
    plural = path.partition("?")[0].rpartition("/")[2]
    try:
        status, body = await send(Request("GET", path))
    except Unavailable as error:
        raise _NotTold(f"the API server does not answer about {plural}") from error
    if status == 403:
        raise _NotTold(f"no right to list {plural}")
    if status == 404:
        raise _NotTold(f"the API server has no {plural}")
    if status != 200:
        raise _NotTold(f"the API server answers {status} about {plural}")
    try:
        return msgspec.json.decode(body, type=form)
    except (ValueError, RecursionError) as error:
        raise _NotTold(f"the API server's answer about {plural} cannot be read") from error
