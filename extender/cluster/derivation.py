"""Derive what one node has to give from the node, its claims and its pods.

A GPU is free when it is healthy, is no MIG parent, and every claim on it is proven dead. Neither an unplanned container
nor a ResourceClaim may hold it. A pod that holds a device holds its silicon (`Silicon`): the GPU of a slice and the slices
of a GPU. That includes devices that are published no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from extender.cluster.candidates.openness import Surroundings, is_ledger_lost, is_ledger_missing, why_closed
from extender.cluster.candidates.shape import Shape, in_steps
from extender.cluster.ledger_room import claims_left
from extender.cluster.masks import (
    chosen_blindly,
    doubtful_devices,
    excluded_across,
    excluded_devices,
    mask_of,
    silicon_of,
    unfit_devices,
)
from extender.cluster.node_view import NodeView, plugin_chooses
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Node
from extender.cluster.objects.node_devices import NodeDevices
from extender.cluster.objects.payloads import NodePayloads
from extender.cluster.ownership.conflicts import conflicts_of, hidden_gib, hidden_gpus, hidden_slices
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.ownership.holdings import Holding, holdings_of
from extender.cluster.ownership.standing import Standing
from extender.cluster.ownership.takers import Use, uses_of
from extender.cluster.ownership.unledgered import unledgered_of
from extender.cluster.shares import known_as_shared, shares_of
from topology.annotations.records import Claim, Holder, Observed, Sharer
from topology.node.silicon import Silicon
from topology.node.status import DevicePluginStatus, MigStrategy
from topology.placement.claims_left import ClaimsLeft


def derive(
    node: Node, payloads: NodePayloads, pods: Collection[GpuPod], evidence: Evidence, surroundings: Surroundings
) -> NodeView:
    """Build the view of one node; linear in GPUs, claims and pods.

    Args:
        node: The node.
        payloads: What its annotations say.
        pods: Those bound to it that ask for GPUs.
        evidence: Judges the claims of its ledger, and whom its agent saw.
        surroundings: What is known from elsewhere.

    """
    gpus, ledger, observed = payloads.topology.value, payloads.ledger.value, payloads.observed.value
    devices = gpus.devices if gpus else ()
    known = frozenset(devices)
    claims = tuple((claim, evidence.standing(claim)) for claim in ledger.claims) if ledger else ()
    holders = _holders(observed, evidence) if observed else {}
    standing_claims = [claim for claim, standing in claims if standing is not Standing.FREE]
    is_plugins_choice = plugin_chooses(payloads, by_claim=surroundings.by_claim)
    sharers = _sharers(observed, evidence) if observed and observed.shared and not is_plugins_choice else {}
    in_question = _in_question(pods, payloads, standing_claims)
    silicon = silicon_of(gpus, standing_claims)
    is_here = partial(_is_here, known, devices, silicon)
    has_ledger = ledger is not None
    holdings = holdings_of(in_question, standing_claims, holders, evidence, sharers, is_here, has_ledger=has_ledger)
    uses = uses_of(standing_claims, holdings, holders, sharers)
    is_lost = is_ledger_lost(payloads, holdings)
    taken = {gpu for held in holdings for gpu in held.pod.placed or ()}.union(holders, known_as_shared(payloads))
    claimed = {claim.gpu for claim in standing_claims}
    # Of a MIG device that is not published just now its GPU counts, with all of its parts.
    ours = ((claim.gpu if claim.gpu in known else claim.parent or claim.gpu, claim.uid) for claim in standing_claims)
    dra = surroundings.dra.without_ours(ours).without(evidence.is_stale)
    foreign = _foreign(observed, surroundings.dra, silicon)
    closed = excluded_devices(devices, silicon, {*dra.held, *dra.unexplained, *dra.tainted, *surroundings.not_owned})
    exhausted = 0
    if surroundings.parts is not None:
        closed |= mask_of(devices, surroundings.parts.unusable)
        used = {*dra.held, *dra.unexplained, *taken, *claimed}
        exhausted = mask_of(devices, surroundings.parts.counters.exhausted_beside(used))
    fit = (1 << len(devices)) - 1 & ~(mask_of(devices, foreign) | closed | unfit_devices(payloads))
    across = excluded_across(devices, silicon, taken | claimed)
    blindly = 0
    if gpus and across and is_plugins_choice:
        blindly = chosen_blindly(gpus, across & fit & ~mask_of(devices, taken | claimed))
    usable = fit & ~(excluded_devices(devices, silicon, taken) | blindly | exhausted)
    free = usable & ~excluded_devices(devices, silicon, claimed)
    left = claims_left(payloads, lambda: unledgered_of(claims, holdings, holders, sharers), claimed)
    doubtful = doubtful_devices(payloads)
    return NodeView(
        node=node,
        payloads=payloads,
        uuids=gpus.uuids if gpus else (),
        devices=devices,
        shape=_shape(node, payloads, holdings, holders, free, doubtful, surroundings, fit & ~across, uses, left),
        usable=usable,
        fit=fit,
        doubtful=doubtful,
        holders=holders,
        sharers=sharers,
        uses=uses,
        claims=claims,
        holdings=holdings,
        conflicts=conflicts_of(holdings, gpus.memory_gib if gpus and uses else {}, silicon),
        is_broken=payloads.is_ledger_broken or is_lost or is_ledger_missing(payloads),
        is_new=payloads.ledger.text is None and not is_lost,
        silicon=silicon,
        signs=surroundings.signs,
        dra=dra,
        foreign=foreign,
        not_owned=surroundings.not_owned,
        set_aside=surroundings.set_aside,
        by_claim=surroundings.by_claim,
    )


def _is_here(known: frozenset[str], devices: tuple[str, ...], silicon: Silicon, device: str) -> bool:
    """Whether a device belongs to the node or is a slice of an earlier cut of its GPUs; any does where none is known."""
    if not devices or device in known:
        return True
    return silicon.is_gone(device) and excluded_devices(devices, silicon, (device,)) != 0


def _foreign(observed: Observed | None, reported: NodeDevices, silicon: Silicon) -> frozenset[str]:
    """Return the GPUs with foreign processes.

    The agent cannot tell which GPU a claim's device is, and counts its processes, too. They are as old as the `reported`
    users, some of which may have stopped since.
    """
    used = (silicon.slices.get(device, device) for device in (*reported.users, *reported.unexplained))
    return frozenset(observed.foreign_processes if observed else ()).difference(used)


def _holders(observed: Observed, evidence: Evidence) -> dict[str, Holder]:
    """Return a holder of each GPU that anybody still holds, whole or in parts."""
    holders = {}
    for gpu, who in observed.gpus.items():
        for holder in (who, *observed.shared.get(gpu, ())):
            if not evidence.is_stale(holder):
                holders[gpu] = holder
                break
    return holders


def _sharers(observed: Observed, evidence: Evidence) -> dict[str, tuple[Sharer, ...]]:
    """Return the GPUs that the agent calls shared, each with all who still hold parts of it."""
    return {gpu: tuple(who for who in of if not evidence.is_stale(who)) for gpu, of in observed.shared.items()}


def _shape(
    node: Node,
    payloads: NodePayloads,
    holdings: Sequence[Holding],
    holders: Mapping[str, Holder],
    free: int,
    doubtful: int,
    surroundings: Surroundings,
    fit: int,
    uses: Mapping[str, Use],
    left: ClaimsLeft,
) -> Shape:
    """Return the node's shape; closed nodes of one class are alike, whatever is free there."""
    gpus, cpu_milli = payloads.topology.value, surroundings.free_cpu_milli
    plugin = None if surroundings.by_claim else payloads.device_plugin
    topology_class = gpus.topology_class if gpus else None
    if closed := why_closed(node, payloads, holdings, surroundings):
        return Shape(topology_class, 0, closed)
    return Shape(
        topology_class,
        free,
        doubtful=doubtful & free,
        hidden=hidden_gpus(holdings),
        plugin_chooses=plugin_chooses(payloads, by_claim=surroundings.by_claim),
        topology_manager=plugin.topology_manager if plugin else None,
        perhaps_free=_perhaps_free(payloads, plugin, holders, holdings, uses)
        if plugin and plugin.topology_manager
        else 0,
        cpu_milli=None if cpu_milli is None else in_steps(cpu_milli),
        mig=_strategy(payloads, by_claim=surroundings.by_claim),
        hidden_slices=hidden_slices(holdings),
        shares=shares_of(payloads, uses, free, fit, hidden_gib(holdings)),
        claims_left=left,
        by_claim=surroundings.by_claim,
    )


def _in_question(pods: Iterable[GpuPod], payloads: NodePayloads, standing_claims: Iterable[Claim]) -> list[GpuPod]:
    """Return the pods that may hold GPUs: one that was called ended does for as long as it has claims."""
    claimants = {claim.uid for claim in standing_claims}
    is_whole = payloads.ledger.text is not None and payloads.ledger.problem is None
    return [pod for pod in pods if not (pod.ended and is_whole and pod.uid not in claimants)]


def _strategy(payloads: NodePayloads, *, by_claim: bool) -> MigStrategy:
    """Return how the node's slices are offered; where there are none, nodes are alike however they would be."""
    gpus, plugin = payloads.topology.value, payloads.device_plugin
    if by_claim:
        return MigStrategy.MIXED if gpus and gpus.topology_class.node.slices else MigStrategy.NONE
    return plugin.mig if plugin and gpus and gpus.topology_class.node.slices else MigStrategy.NONE


def _perhaps_free(
    payloads: NodePayloads,
    plugin: DevicePluginStatus,
    holders: Mapping[str, Holder],
    holdings: Iterable[Holding],
    shared: Iterable[str],
) -> int:
    """Return the GPUs that the kubelet may count as free: not those that it does not offer whole, or that stay with a pod."""
    gpus, status = payloads.topology.value, payloads.status.value
    if gpus is None or status is None:
        return 0
    staying = {held.pod.key for held in holdings if held.pod.pod.metadata.deletion_timestamp is None}
    held = [gpu for gpu, who in holders.items() if (who.namespace, who.name) in staying]
    kept = {*held, *shared, *(status.unhealthy - plugin.also_offered)}
    return (1 << len(gpus.uuids)) - 1 & ~mask_of(gpus.uuids, kept.intersection(gpus.uuids))
