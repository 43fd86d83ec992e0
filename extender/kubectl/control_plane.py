"""What the API server says of its version and of our admission policies, to whoever may ask it."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from extender.inspect.control_plane import ControlPlane, PolicyInfo
from extender.kubectl.cleanup import OURS
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send

_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_LABELLED: Final = quote("=".join(OURS), safe="")


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _Metadata(msgspec.Struct):
    name: str


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


Document = TypeVar("Document", _Version, _Policies, _Bindings)


class _NotTold(Exception):
    """The API server does not answer this; the text says why, without words of others."""


async def read_control_plane(config: Kubeconfig) -> ControlPlane:
    """Return what this user may know of it; raises `Unavailable` where there are no credentials."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        return await control_plane(api.send)


async def control_plane(send: Send) -> ControlPlane:
    """Return what the answers to three questions say; where there is none, it is not known, and why not."""
    try:
        version = (await _get(send, "/version", _Version)).git_version
    except _NotTold:
        version = None
    try:
        listed = await _get(send, f"{_POLICIES}?labelSelector={_LABELLED}", _Policies)
        bindings = await _get(send, _BINDINGS, _Bindings)  # one that a person made has no label of ours
    except _NotTold as reason:
        return ControlPlane(api_server=version, policies_unknown=str(reason))
    actions = defaultdict[str, set[str]](set)
    for binding in bindings.items or ():
        actions[binding.spec.policy_name].update(binding.spec.validation_actions or ())
    names = sorted(policy.metadata.name for policy in listed.items or ())
    policies = tuple(PolicyInfo(name=name, actions=tuple(sorted(actions[name]))) for name in names)
    return ControlPlane(api_server=version, policies=policies)


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
