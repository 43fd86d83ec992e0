"""When the node's annotations are written, and with what; knows no API and no clock.

A write happens when something changed, and else once per refresh interval, so that readers see that the agent lives. The
status carries a generation that grows with every write. The last answer of the API is the truth to compare with. So what
others did to our annotations is corrected by the next write. A payload beyond the codec's bounds is never written: the
old one stands, and the status says so.

What containers hold is written with every status, and names its generation, as long as the kubelet can be asked. The
agent scans again before each write. So readers may take a generation for a scan that began after the write before had
ended. The node's version that is named with it stood before that scan began. That is how the extender is answered when it
asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from agent.gpus.discovery import NOTHING, NodeDiscovery
from agent.node.claim_users import as_many_as_fit
from agent.node.look import Look
from agent.node.watch import NodeVersion
from extender.kit.backoff import Backoff, Pauses
from topology.annotations import keys
from topology.annotations.codec import decode_topology, digest, encode_topology
from topology.annotations.records import Observed, decode_observed, encode_observed
from topology.annotations.status_codec import decode_status, encode_status
from topology.errors import PayloadError
from topology.node.slices import MAX_DEVICES
from topology.node.status import GpuStatus, NodeGpuStatus, Outlook

TOO_LARGE: Final = "topology cannot be published, the old one stands"
TOO_MANY_HOLDERS: Final = "the containers that share GPUs are too many to be told"
_OURS = (keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS, keys.OBSERVED)
_OF_THE_PLUGIN: Final = "the device plugin"
"""In every reason why a GPU is withheld, and in no other."""
_OPENS: Final = "it opens once the device plugin offers it whole"
_RESTART: Final = "restart the node's device plugin pod: NVIDIA's takes back no GPU after a critical error (XID)"
_ANY_GENERATION, _ANY_VERSION = 2**63 - 1, "9" * 20
"""As long as they can be."""
_JITTER = 0.1
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 120.0
_NODE: Final = "node"
"""The one key of our backoff: reads and writes of our node."""
# A scan compares what it has found with what the node says, and at rest both are what they were at the scan before.
_encode_topology = lru_cache(8)(encode_topology)
_decode_status = lru_cache(8)(decode_status)
_decode_observed = lru_cache(8)(decode_observed)


@dataclass(frozen=True, slots=True)
class Patch:
    """Annotations to be written, together."""

    annotations: Mapping[str, str]
    refused: PayloadError | None = None
    """Why the topology is not among them."""


class Publication:
    """Our annotations on one node. All times are seconds of one monotonic clock; `random` gives numbers in 0..1."""

    def __init__(self, random: Callable[[], float], refresh_seconds: float, agent_version: str = "") -> None:
        self._random = random
        self._refresh_seconds = refresh_seconds
        self._agent_version = agent_version
        self._published: Mapping[str, str] | None = None
        self._in_doubt = False
        """A read or write has failed, perhaps only its answer: what the node says has to be read again."""
        self._refresh_at = 0.0
        self._backoff = Backoff(Pauses(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, random=random))

    def refresh(self) -> None:
        """Have the next write made at once, whether or not anything has changed."""
        self._refresh_at = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the API has said what it holds; until then nothing may be written."""
        return self._published is not None and not self._in_doubt

    def learned(self, annotations: Mapping[str, str], now: float) -> None:
        """Take in what the node's annotations are, as the API answered a read or a write."""
        if self._published is None or not self._in_doubt:  # else a write may be overdue
            self._refresh_at = now + self._refresh_seconds * (1 - _JITTER + 2 * _JITTER * self._random())
        self._published = {key: annotations[key] for key in _OURS if key in annotations}
        self._in_doubt = False
        self._backoff.forget(_NODE)

    def failed(self, now: float) -> None:
        """Take in that a read or write failed: the next one waits, longer each time, and not all nodes the same."""
        self._in_doubt = True
        self._backoff.failed(_NODE, now)

    def may_ask(self, now: float) -> bool:
        """Whether the API may be called again."""
        return self._backoff.may_begin(_NODE, now)

    def pause_seconds(self, now: float) -> float:
        """Return how long the API must not be called yet after a failure; 0 when it may."""
        return max(0.0, self._backoff.not_before(_NODE) - now)

    def last_discovery(self) -> NodeDiscovery:
        """Return what the node said of itself before this process began, as far as it can be read."""
        published = self._published or {}
        topology, status = NOTHING.topology, NOTHING.status
        try:
            topology = decode_topology(published.get(keys.TOPOLOGY, ""))
            status = decode_status(published.get(keys.STATUS, ""))
        except PayloadError:
            return NodeDiscovery(topology, NOTHING.status)
        return NodeDiscovery(topology, status)

    def patch(
        self, discovery: NodeDiscovery, now: float, look: Look | None = None, heard: NodeVersion | None = None
    ) -> Patch | None:
        """Return what has to be written now, or `None`.

        Args:
            discovery: What the node is.
            now: Monotonic seconds.
            look: The newest look at the kubelet, if anybody looks.
            heard: The newest version of the node that was heard of before the look began, if any was.

        """
        if self._published is None or not self.is_known or not self.may_ask(now):
            return None
        changed: dict[str, str] = {}
        look = _tellable(look)
        before, shown = self._status_before(), self._observed_before()
        said = replace(discovery.status, agent_version=self._agent_version)
        status, refused = _status(said, look, before), None
        observed = _observed(discovery, look)
        try:
            topology = _encode_topology(discovery.topology)
            changed = {keys.TOPOLOGY: topology, keys.TOPOLOGY_DIGEST: digest(topology)}
        except PayloadError as error:
            status, refused = replace(status, reasons=(*status.reasons, TOO_LARGE)), error
        changed = {key: text for key, text in changed.items() if self._published.get(key) != text}
        # Another version alone is no news: it goes with the next write, so that an upgrade does not rewrite all nodes.
        unchanged = before and replace(before, generation=0, agent_version=self._agent_version) == _canonical(status)
        stands = unchanged and _says(shown, observed)
        is_asked_for = heard and observed and heard.asks(shown.node_version if shown else "")
        if not changed and stands and not is_asked_for and now < self._refresh_at:
            return None
        # At the end of the numbers, which only somebody else can have written, it begins anew.
        generation = before.generation + 1 if before and before.generation < _ANY_GENERATION else 1
        changed[keys.STATUS] = _encoded(replace(status, generation=generation))
        if observed:
            version = heard.resource_version if heard else ""
            changed[keys.OBSERVED] = encode_observed(replace(observed, generation=generation, node_version=version))
        return Patch(changed, refused)

    def _observed_before(self) -> Observed | None:
        try:
            return _decode_observed((self._published or {}).get(keys.OBSERVED, ""))
        except PayloadError:
            return None

    def _status_before(self) -> NodeGpuStatus | None:
        try:
            return _decode_status((self._published or {}).get(keys.STATUS, ""))
        except PayloadError:
            return None


def _tellable(look: Look | None) -> Look | None:
    """Return what can be told of a look; where nobody can be told who holds what, no pod may come to the node.

    Some of those who have devices by ResourceClaims are left out first: the claims tell that such a device is held.
    """
    if look is None or look.held is None:
        return look
    is_small = not look.shared and len(look.held) <= MAX_DEVICES
    if not look.claimed and is_small:
        return look
    longest = Observed(look.held, _ANY_GENERATION, dict.fromkeys(look.held, 1), _ANY_VERSION, look.shared, look.claimed)
    try:
        encode_observed(longest)
    except PayloadError:
        if look.claimed:
            return _tellable(replace(look, claimed=as_many_as_fit(longest)))
        plugin = replace(look.plugin, ready=False, reasons=(*look.plugin.reasons, TOO_MANY_HOLDERS))
        return replace(look, plugin=plugin, held=None, shared={})
    return look


def _observed(discovery: NodeDiscovery, look: Look | None) -> Observed | None:
    """Return what containers hold and who else computes, or `None` when the kubelet was not looked at or did not say."""
    if look is None or look.held is None:
        return None
    foreign = {uuid: count for uuid, count in discovery.computing.items() if uuid not in look.held}
    return Observed(look.held, foreign_processes=foreign, shared=look.shared, claimed=look.claimed)


def _status(status: NodeGpuStatus, look: Look | None, before: NodeGpuStatus | None) -> NodeGpuStatus:
    """Return the status with what is seen of the device plugin, and the GPUs that it keeps back closed.

    As long as nobody knows what it offers, what was told before stands: an agent may have started anew, and its node too.
    """
    if look is None:
        return status
    published = {gpu.uuid: gpu for gpu in before.gpus} if before else {}
    gpus = tuple(_as_offered(gpu, look, published.get(gpu.uuid)) for gpu in status.gpus)
    slices = look.withheld.keys() - {gpu.uuid for gpu in status.gpus}
    gpus += tuple(_as_offered(GpuStatus(uuid), look, published.get(uuid)) for uuid in sorted(slices))
    return replace(status, gpus=gpus, device_plugin=look.plugin)


def _as_offered(gpu: GpuStatus, look: Look, published: GpuStatus | None) -> GpuStatus:
    if look.offers is not None:
        offers, why = look.offers.get(gpu.uuid), look.withheld.get(gpu.uuid)
    elif published is not None:
        offers, why = published.offers, next((reason for reason in published.reasons if _OF_THE_PLUGIN in reason), None)
    else:
        return gpu
    gpu = replace(gpu, offers=offers)
    if why is None:
        return gpu
    outlook = gpu.outlook or Outlook(_OPENS, remedy="" if offers else _RESTART)
    return replace(gpu, healthy=False, doubtful=False, reasons=(*gpu.reasons, why), outlook=outlook)


def _says(shown: Observed | None, observed: Observed | None) -> bool:
    """Whether the node says already what was observed; without a look there is nothing new to say."""
    return observed is None or (shown is not None and replace(shown, generation=0, node_version="") == observed)


def _canonical(status: NodeGpuStatus) -> NodeGpuStatus:
    """Return the status as its readers will see it, for comparison."""
    return _decode_status(_encoded(replace(status, generation=0)))


def _encoded(status: NodeGpuStatus) -> str:
    """Encode a status; one that is too large says less, but always which GPUs are unhealthy."""
    try:
        return encode_status(status)
    except PayloadError:
        bare = tuple(replace(gpu, reasons=gpu.reasons[:1]) for gpu in status.gpus)
        return encode_status(replace(status, gpus=bare, link_faults=()))
