"""What pods may share of a node's GPUs: what its agent offers, less what is taken, whoever has it.

The kubelet of the node knows a GPU either as a whole or as GiB, by the devices that its containers hold. It takes a moment to
change over. So a GPU that the agent still reports as shared is not given whole, and one reported as whole is not given in
shares. That holds also where the pods that held it are proven to have stopped.
"""

from __future__ import annotations

from collections.abc import Mapping

from extender.cluster.objects.payloads import NodePayloads
from extender.cluster.ownership.takers import Use
from topology.node.status import DevicePluginStatus, Mode
from topology.placement.shares import NO_SHARES, NOT_NOW, ONLY_ENFORCE, SharedGpu, Shares
from topology.value.coming_back import MANY_PODS

_ONLY_ENFORCE, _NOT_NOW = Shares(refused=ONLY_ENFORCE), Shares(refused=NOT_NOW)


def known_as_shared(payloads: NodePayloads) -> frozenset[str]:
    """Return the GPUs of which the node's kubelet gives out shares alone, as far as its agent has told."""
    observed, plugin = payloads.observed.value, payloads.device_plugin
    if observed is None or plugin is None or plugin.mode is not Mode.ENFORCE:
        return frozenset()
    return frozenset(observed.shared)


def shares_of(
    payloads: NodePayloads, uses: Mapping[str, Use], free: int, fit: int, hidden_gib: int, *, as_told: bool = True
) -> Shares:
    """Return what pods may share; linear in GPUs. Nodes that share nothing are alike.

    Args:
        payloads: What the node's annotations say.
        uses: GPU → what is taken of it, of those that are shared.
        free: GPUs that nobody has, whole or in part, as a mask over positions.
        fit: GPUs that may be given to pods at all.
        hidden_gib: What shares add up to of which nobody knows on which GPU they are: it counts against each.
        as_told: Whether GPUs are as the agent last told, shared or whole; not where it is asked how they would be.

    """
    gpus, status, plugin = payloads.topology.value, payloads.status.value, payloads.device_plugin
    if gpus is None or status is None or plugin is None:
        return NO_SHARES
    if (closed := _refused(plugin)) is not None:
        return closed
    assert plugin.sharing is not None, "else it is refused"
    reported = {gpu.uuid: gpu for gpu in status.gpus}
    observed = payloads.observed.value if as_told else None
    as_shared, held = known_as_shared(payloads) if observed else (), observed.gpus if observed else ()
    share_gib, shared, shareable, beyond = [], [], 0, 0
    for position, uuid in enumerate(gpus.uuids):
        gpu, use = reported.get(uuid), uses.get(uuid)
        size = gpu.share_gib or 0 if gpu else 0
        left = size - (gpu.beyond_shares_gib if gpu else 0) - hidden_gib
        beyond |= (1 << position) if size and gpu and gpu.beyond_shares_gib else 0
        if use is not None or uuid in as_shared:
            is_open = fit >> position & 1 and (use is None or use.sharing_class is not None)
            left = left - (use.memory_gib if use else 0) if is_open else 0
            class_ = use.sharing_class if use else None
            pods = min(use.pods, MANY_PODS) if use else 0
            shared.append(SharedGpu(position, left, class_ if is_open else "", pods))
        elif free >> position & 1 and left > 0 and uuid not in held:
            shareable |= 1 << position
            size = left
        share_gib.append(size)
    more = max(0, plugin.sharing.max_gpus - len(shared))
    return Shares(tuple(share_gib), tuple(shared), shareable, more, beyond)


def _refused(plugin: DevicePluginStatus) -> Shares | None:
    if plugin.mode is Mode.OBSERVE:
        return _ONLY_ENFORCE
    if plugin.sharing is None:
        return NO_SHARES
    return None if plugin.sharing.max_gpus else _NOT_NOW
