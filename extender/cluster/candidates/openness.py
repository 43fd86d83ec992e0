"""Why no GPU of a node may be given away: one sentence per rule, the same for all nodes, so that kube-scheduler can count them.

Running pods keep their claims whatever is said here; only new ones go elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.cluster.objects.health_signs import Sign
from extender.cluster.objects.kinds import Node
from extender.cluster.objects.node_devices import NOTHING, NodeDevices
from extender.cluster.objects.payloads import NO_TOPOLOGY, NOT_UNDERSTOOD, RESTLESS, NodePayloads
from extender.cluster.objects.published_parts import PublishedParts
from extender.cluster.ownership.holdings import Holding
from topology.annotations.pauses import PAUSED
from topology.node.offers import OfferForm
from topology.node.status import GpuStatus, Mode
from topology.placement.verdict import ASK_WHO, UNKNOWN_GPUS

LEDGER_MISSING = "GPU ledger is missing and is being written"
DUPLICATE_PUBLISHER = "a GPU of the node is published by another node, too"
NOT_READY = "node is not ready"
AGENT_NOT_READY = "GPU agent is not ready"
AGENT_SILENT = "GPU agent has not reported for too long"
PLUGIN_NOT_READY = "GPU device plugin is not ready"
NONE_WHOLE = "GPU device plugin offers no whole GPU of the node"
BY_DRA = "GPUs of the node are handed out by DRA"
FOR_CLAIMS_ALONE = "only a DRA driver offers the GPUs of the node, and the extender allocates no ResourceClaims"
NOT_BY_CLAIM = "GPUs of the node are not handed out by DRA"
UNKNOWN_DEVICE = "a ResourceClaim holds a device, and nobody tells which GPU that is"
CLAIMS_UNHEARD = "ResourceClaims for the node's GPUs are not known just now"
MIG_CHANGES = "MIG manager is changing the node's slices"
CLOSED_BY_OTHERS = "closed by"
MIG_STATE = "nvidia.com/mig.config.state"
"""A label that the MIG manager writes; `success` or `failed` when it has ended."""
_IN_CHANGE = frozenset({"pending", "rebooting"})
_SEE_LOG = "see the log of the node's agent"
_UNPAUSE = "the GPU operator takes its labels back, or a person the annotation gputopo.dev/pause"
_REMEDIES = (
    (DUPLICATE_PUBLISHER, "delete the Node object that the machine had before"),
    (NOT_READY, "see the conditions of the node"),
    (AGENT_NOT_READY, _SEE_LOG),
    (AGENT_SILENT, _SEE_LOG),
    (PLUGIN_NOT_READY, "kubectl gputopo node tells why"),
    (NONE_WHOLE, "kubectl gputopo node tells how it offers them; shared ones are not served"),
    (BY_DRA, "a device plugin has to offer them, or the pod to ask by a ResourceClaim"),
    (FOR_CLAIMS_ALONE, "a device plugin has to offer them, or the extender to allocate claims (`dra.enabled`)"),
    (NOT_BY_CLAIM, "its DRA driver has to publish them, and no device plugin to offer them"),
    (UNKNOWN_DEVICE, "its DRA driver has to publish the UUID; kubectl gputopo node names claim and device"),
    (CLAIMS_UNHEARD, "the extender has to hear of them again; see its log"),
    (MIG_CHANGES, f"it opens when the label {MIG_STATE} says that it has ended"),
    (CLOSED_BY_OTHERS, "the health agent that says so takes it back; kubectl gputopo node names it"),
    (NO_TOPOLOGY, "an agent has to run there"),
    (RESTLESS, "look for a link that comes and goes"),
    (UNKNOWN_GPUS, ASK_WHO),
    (NOT_UNDERSTOOD, "upgrade the older one of agent and extender"),
    ("GPU ledger", "it is rebuilt within seconds"),
)
"""Words of a reason, and what opens the node again; the first that occur count."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a node from elsewhere than its own annotations."""

    is_duplicate_publisher: bool = False
    """It owns none of the GPUs that it publishes."""
    not_owned: frozenset[str] = frozenset()
    """UUIDs of the GPUs that it publishes and does not own."""
    agent_is_silent: bool = False
    """Its agent has not written for too long, as this process has seen it."""
    agent_is_ready: bool | None = None
    """What the agent's pod says; `None`: there is no such pod."""
    agent_restarts: bool = False
    """It was ready less than a minute ago."""
    is_left_to_dra: bool = False
    """A DeviceClass maps our resource, and no device plugin offers it there: kube-scheduler allocates devices itself."""
    is_for_claims_alone: bool = False
    """Its GPUs are published as devices of DRA, no device plugin offers them, and nobody here allocates claims."""
    by_claim: bool = False
    """No device plugin offers its GPUs, and a feature allocates ResourceClaims for them."""
    free_cpu_milli: int | None = None
    """CPU that no pod there has asked for; `None`: nobody knows."""
    signs: tuple[Sign, ...] = ()
    """What other health agents say of its GPUs, what closes it first."""
    dra: NodeDevices = NOTHING
    """What DRA has to say of its GPUs."""
    parts: PublishedParts | None = None
    """The MIG devices that are offered there by ResourceClaims; `None`: those that the agent publishes count."""
    set_aside: str | None = None
    """Why pods that tolerate no special taint do not go there."""
    paused: str = ""
    """Why no new GPU pod is to come there; empty where that is nobody's wish."""


def why_closed(
    node: Node, payloads: NodePayloads, holdings: Sequence[Holding], surroundings: Surroundings
) -> str | None:
    """Return the first reason that there is."""
    return (
        _closed_by_itself(node, payloads, holdings, surroundings)
        or surroundings.paused
        or (BY_DRA if surroundings.is_left_to_dra else None)
        or (FOR_CLAIMS_ALONE if surroundings.is_for_claims_alone else None)
        or _closed_by_claims(payloads, surroundings.dra)
        or _closed_by_agent(payloads, surroundings)
        or (UNKNOWN_GPUS if any(holding.hidden is None for holding in holdings) else None)
        or (surroundings.signs[0].closes if surroundings.signs else None)
    )


def _closed_by_itself(
    node: Node, payloads: NodePayloads, holdings: Sequence[Holding], surroundings: Surroundings
) -> str | None:
    if surroundings.is_duplicate_publisher:
        return DUPLICATE_PUBLISHER
    if payloads.defect is not None:
        return payloads.defect
    if is_ledger_missing(payloads) or is_ledger_lost(payloads, holdings):
        return LEDGER_MISSING
    is_ready = all(
        condition.status == "True" for condition in node.status.conditions or () if condition.type == "Ready"
    )
    if not is_ready:
        return NOT_READY
    return MIG_CHANGES if (node.metadata.labels or {}).get(MIG_STATE) in _IN_CHANGE else None


def _closed_by_agent(payloads: NodePayloads, surroundings: Surroundings) -> str | None:
    status, plugin = payloads.status.value, payloads.device_plugin
    does_without = plugin is not None and plugin.mode is Mode.OBSERVE and surroundings.agent_restarts
    if surroundings.agent_is_ready is False and not does_without:
        return AGENT_NOT_READY
    if surroundings.agent_is_silent:
        return AGENT_SILENT
    if plugin is not None and plugin.mode is Mode.ENFORCE and not plugin.ready:
        return PLUGIN_NOT_READY
    return NONE_WHOLE if status and not surroundings.by_claim and _is_none_offered_whole(status.gpus) else None


def _closed_by_claims(payloads: NodePayloads, devices: NodeDevices) -> str | None:
    if devices.is_unheard:
        return CLAIMS_UNHEARD
    gpus = payloads.topology.value
    return UNKNOWN_DEVICE if devices.missing(gpus.devices if gpus else ()) else None


def _is_none_offered_whole(gpus: Sequence[GpuStatus]) -> bool:
    """Whether it is known of each GPU how somebody else's device plugin offers it, and none is had by one pod alone."""
    offers = [gpu.offers for gpu in gpus]
    return bool(offers) and all(
        made is not None and all(offer.form is OfferForm.SHARED for offer in made) for made in offers
    )


def what_opens(closed: str) -> str:
    """Say what would help a node that is closed for this reason."""
    if closed.startswith(PAUSED):  # and goes on in the words of a person
        return _UNPAUSE
    return next((remedy for words, remedy in _REMEDIES if words in closed), _SEE_LOG)


def is_ledger_missing(payloads: NodePayloads) -> bool:
    """Whether a machine with GPUs has no ledger."""
    return payloads.ledger.text is None and payloads.topology.text is not None


def is_ledger_lost(payloads: NodePayloads, holdings: Sequence[Holding]) -> bool:
    """Whether there was a ledger, as far as is known, which is not there any more."""
    return payloads.ledger.text is None and (payloads.had_ledger or any(holding.pod.placed for holding in holdings))
