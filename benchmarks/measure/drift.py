"""What pods' links were seen to carry beside what was predicted for their GPUs: pure.

In a ring each GPU sends as many bytes a second as nccl-tests counts for the bus bandwidth. So GPUs that all sent more than the
high end of the prediction are a finding about the model. Less is none: a job that does not communicate proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

import msgspec

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import read_placement
from topology.bandwidth.predict import Bandwidth
from topology.node.links import Affinity

UUID_LABELS = ("uuid", "UUID")
"""Of our agent and of DCGM's exporter."""


class DriftVerdict(StrEnum):
    """What a rate says of the prediction."""

    MORE = "more than predicted"
    REACHED = "reached"
    NONE = "proves nothing"


@dataclass(frozen=True, slots=True)
class Seen:
    """One pod."""

    pod: str
    node: str
    gpus: tuple[str, ...]
    seen_gb_per_s: float
    """The least of what its GPUs have each sent at most."""
    predicted: Bandwidth

    @property
    def finding(self) -> DriftVerdict:
        """What that says."""
        if self.seen_gb_per_s > self.predicted.high:
            return DriftVerdict.MORE
        return DriftVerdict.REACHED if self.seen_gb_per_s >= self.predicted.low else DriftVerdict.NONE


class UnreadableRates(Exception):
    """No answer of Prometheus; the text says why."""


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: list[_Sample]


class _Answer(msgspec.Struct):
    data: _Data


def read_rates(text: bytes) -> dict[str, float]:
    """Read bytes a second by UUID from what Prometheus answered to an instant query; raises `UnreadableRates`."""
    try:
        answer = msgspec.json.decode(text, type=_Answer)
        if answer.data.result_type != "vector":
            raise UnreadableRates(f"a {answer.data.result_type}, and no instant vector")
        samples = [(sample.metric, float(sample.value[1])) for sample in answer.data.result]
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise UnreadableRates(f"no answer of Prometheus to a query: {error}") from error
    found: dict[str, float] = {}
    for metric, rate in samples:
        uuid = next((metric[label] for label in UUID_LABELS if label in metric), None)
        if uuid is None:
            raise UnreadableRates("a series without a label uuid or UUID")
        if isfinite(rate):
            found[uuid] = max(rate, found.get(uuid, 0.0))
    return found


def compare(views: Iterable[NodeView], rates: Mapping[str, float]) -> tuple[Seen, ...]:
    """Return the pods whose NVLinks were seen, those that exceed their prediction most first.

    Left out are pods on one GPU or over PCIe, those that hold other GPUs than were planned, and those with a GPU without rate.
    """
    found = [seen for view in views for seen in _seen_on(view, rates)]
    return tuple(sorted(found, key=lambda seen: (-seen.seen_gb_per_s / seen.predicted.high, seen.pod)))


def _seen_on(view: NodeView, rates: Mapping[str, float]) -> Iterable[Seen]:
    for held in view.holdings:
        record = read_placement(held.pod.pod)
        if record is None or record.bandwidth is None or record.affinity is not Affinity.NVLINK:
            continue
        gpus = {gpu for gpus in record.containers.values() for gpu in gpus}
        if gpus == set(held.gpus) and all(gpu in rates for gpu in gpus):
            least = min(rates[gpu] for gpu in gpus) / 1e9
            yield Seen("/".join(held.pod.key), view.name, tuple(sorted(gpus)), least, record.bandwidth)
