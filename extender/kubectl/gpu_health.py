"""What people say of a node's GPUs, written on the node: its agent hears it at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import quote

import msgspec

from extender.cluster.objects.kinds import Node
from extender.kit.nearest import did_you_mean
from extender.kubernetes.documents import BrokenStream, Expired, decoder, message_of
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable, list_objects
from extender.kubernetes.rest import Request
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.overrides import Override, decode_overrides, encode_overrides
from topology.errors import PayloadError

Overrides = dict[str, Override]

_TRIES: Final = 5
"""Somebody else may write the node between our reading and our writing; agents do so often."""


class OverrideRefused(Exception):
    """It was not written; says why."""


class NoSuchNode(OverrideRefused):
    """The cluster has no node of that name."""


async def say(config: Kubeconfig, node: str, gpus: Collection[str], override: Override | None) -> Overrides:
    """Change what is said of some GPUs of a node, and return all that is said then.

    Args:
        config: whose cluster.
        node: its name.
        gpus: UUIDs, or indexes as `nvidia-smi` counts them.
        override: is said of each; `None` takes back what is said, also of a GPU that the node has lost.

    Raises:
        NoSuchNode: there is none of that name.
        Refused: it has no such GPU, what is said already cannot be read, or the API server says no.
        Unavailable: the API server does not answer.

    """
    path = f"/api/v1/nodes/{quote(node, safe='')}"
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        for _ in range(_TRIES):
            status, body = await api.send(Request("GET", path))
            if status == 404:
                raise NoSuchNode(f"no node {node}{did_you_mean(node, await _names(api))}")
            if status != 200:
                raise OverrideRefused(f"node {node}: {message_of(body)}")
            current = decoder(Node)(body)
            overrides = _said(current)
            if override is None:
                lost = overrides.keys() & set(gpus)  # by its UUID a GPU need not be there
                gone = [*lost, *_uuids(current, [gpu for gpu in gpus if gpu not in lost], overrides)]
                overrides = {uuid: word for uuid, word in overrides.items() if uuid not in gone}
            else:
                overrides |= dict.fromkeys(_uuids(current, gpus), override)
            status, body = await api.send(_patch(path, current, overrides))
            if status == 200:
                return overrides
            if status != 409:
                break
        raise OverrideRefused(f"node {node}: {message_of(body)}")


async def _names(api: KubeApi) -> list[str]:
    """Return the names of all nodes; none where they may not be listed."""
    try:
        return [
            node.metadata.name for node in (await list_objects(api.resource("/api/v1/nodes"), decoder(Node))).objects
        ]
    except (Unavailable, BrokenStream, Expired):
        return []


def _patch(path: str, node: Node, overrides: Overrides) -> Request:
    try:
        value = encode_overrides(overrides) if overrides else None
    except PayloadError as error:
        raise OverrideRefused(f"node {node.metadata.name}: that cannot be written: {error}") from error
    version = node.metadata.resource_version
    metadata = {"resourceVersion": version, "annotations": {keys.GPU_HEALTH: value}}
    body = msgspec.json.encode({"metadata": metadata})
    return Request("PATCH", f"{path}?fieldManager=kubectl-gputopo", body, "application/merge-patch+json")


def _said(node: Node) -> Overrides:
    text = (node.metadata.annotations or {}).get(keys.GPU_HEALTH)
    try:
        return decode_overrides(text) if text else {}
    except PayloadError as error:
        raise OverrideRefused(f"node {node.metadata.name}: {keys.GPU_HEALTH} cannot be read: {error}") from error


def _uuids(node: Node, gpus: Collection[str], overrides: Collection[str] = ()) -> list[str]:
    """Return the UUIDs of these GPUs; a message about a missing one names lost GPUs of `overrides`, too."""
    if not gpus:
        return []
    try:
        topology = decode_topology((node.metadata.annotations or {})[keys.TOPOLOGY])
    except KeyError:
        raise OverrideRefused(f"node {node.metadata.name} has no topology yet: does its agent run?") from None
    except PayloadError as error:
        raise OverrideRefused(f"node {node.metadata.name}: {keys.TOPOLOGY} cannot be read: {error}") from error
    uuids = {name: gpu.uuid for gpu in topology.gpus for name in (gpu.uuid, str(gpu.index))}
    for gpu in gpus:
        if gpu not in uuids:
            there = ", ".join(str(present.index) for present in topology.gpus)
            lost = ", ".join(sorted(set(overrides) - uuids.keys()))
            also = f"; {keys.GPU_HEALTH} also names {lost}" if lost else ""
            raise OverrideRefused(f"node {node.metadata.name} has no GPU {gpu}; it has {there}{also}")
    return [uuids[gpu] for gpu in gpus]
