"""What a pod's page says of it beside its placement: what it requests, when that relaxes, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, read_placement, read_request
from extender.cluster.state import ClusterState
from extender.inspect.inspection import BandwidthInfo, bandwidth_info
from extender.kit.clock import Instant
from topology.annotations import keys
from topology.bandwidth.predict import predict
from topology.errors import RequestError
from topology.placement.verdict import Reason

REASONS: Final = {
    Reason.CLOSED: "nodes take no pods with GPUs now",
    Reason.UNDECIDED: "the search for GPUs goes on",
    Reason.NO_GPUS: "nodes have no GPUs",
    Reason.TOO_FEW_FREE: "too few GPUs are free",
    Reason.UNSUITABLE_GPUS: "GPUs of another kind",
    Reason.DRIVER: "driver or CUDA too old",
    Reason.NIC: "no NIC near the GPUs",
    Reason.AFFINITY: "free GPUs are not near enough to each other",
    Reason.BANDWIDTH: "free GPUs are too slow together",
    Reason.GROUP: "nodes away from its group",
    Reason.SHARING: "no GPU to share",
    Reason.LEDGER_FULL: "nodes with no room for further claims",
    Reason.KUBELET: "kubelets would not admit it",
}
"""Why nodes refuse a pod, in a few words; metrics and JSON have the keys."""
AFFINITIES: Final = {
    "nvlink": "NVLink",
    "pcie-switch": "one PCIe switch",
    "numa-node": "one NUMA node",
    "system": "across NUMA nodes",
}
"""How near GPUs are to each other, in a few words."""
_MAX_CHARACTERS: Final = 253
"""Of a value that is shown."""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """One thing that a pod requests."""

    what: str
    value: str


@dataclass(frozen=True, slots=True)
class EventLine:
    """What Kubernetes reports of a pod."""

    at: str
    """As the API writes times."""
    kind: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class BandwidthStory:
    """What a placed pod's GPUs give each other, by the model and by measurement."""

    predicted: BandwidthInfo | None = None
    measured: BandwidthInfo | None = None
    """`None` where no such set was measured on a node of this type."""


def request_lines(pod: GpuPod) -> Iterator[RequestLine]:
    """Yield what a pod requests by annotations, in words; unreadable ones as they are."""
    for key, value in sorted((pod.pod.metadata.annotations or {}).items()):
        if key.startswith(keys.USER_PREFIX):
            words = AFFINITIES.get(value, value)[:_MAX_CHARACTERS]
            yield RequestLine(key.removeprefix(keys.USER_PREFIX).replace("-", " "), words)


def relaxation(state: ClusterState, pod: GpuPod, now: Instant) -> str:
    """Say when a waiting pod's requirements relax, or that they have; empty where they never do."""
    try:
        request = read_request(pod.pod, state.resource, state.indexes.groups.words)
    except RequestError:
        return ""
    if pod.node is not None or request.relax_after_seconds is None:
        return ""
    if pod.is_gated:
        return f"relaxes {_minutes(request.relax_after_seconds)} after its scheduling gate opens"
    left = request.relax_after_seconds - state.indexes.gates.waited_seconds(pod.pod, now)
    return f"relaxes in {_minutes(left)}" if left > 0 else "has relaxed: what it required of links is a preference now"


def bandwidth_story(state: ClusterState, pod: GpuPod) -> BandwidthStory:
    """Return what is predicted of a placed pod's GPUs, and what was measured of such a set."""
    record, view = read_placement(pod.pod), state.views.get(pod.node or "")
    if record is None or record.bandwidth is None:
        return BandwidthStory()
    predicted = None if record.bandwidth.measured else record.bandwidth
    measured = record.bandwidth if record.bandwidth.measured else None
    topology_class = view.shape.topology_class if view else None
    if view is not None and topology_class is not None and topology_class.measured_sets is not None:
        placed = {gpu for gpus in record.containers.values() for gpu in gpus}
        mask = sum(1 << position for position, uuid in enumerate(view.uuids) if uuid in placed)
        if mask.bit_count() == len(placed) > 1:
            predicted = predicted or predict(topology_class.wiring, mask)[0]
            instead = topology_class.measured_sets.instead_of(predicted, mask)
            measured = instead if instead.measured else None
    return BandwidthStory(bandwidth_info(predicted), bandwidth_info(measured))


def _minutes(seconds: float) -> str:
    """Return a duration as people say it.

    >>> [_minutes(seconds) for seconds in (20, 61, 7 * 60, 7_300)]
    ['1 min', '2 min', '7 min', '2 h 2 min']
    """
    hours, minutes = divmod(-(-int(seconds) // 60) or 1, 60)
    return " ".join(filter(None, (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "")))
