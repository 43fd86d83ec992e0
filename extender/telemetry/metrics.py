"""What Prometheus scrapes: times and verdicts as they happen, the state of the cluster when it asks.

No label ever holds the name of a pod, a node or a GPU. Every series exists from the start, but for sizes of pods that no machine
has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from statistics import fmean
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.binding.intents import Intent, Reply
from extender.binding.outcome import Failure
from extender.inspect.fragmentation import Fits
from extender.kubernetes.burden import FATES
from extender.kubernetes.eviction import Answer
from topology.placement.verdict import Reason
from topology.request.gpu_request import Communication

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
CROWDED: Final = "crowded"
OUT_OF_TIME: Final = "out-of-time"
VERDICTS: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("fits", "no-fit", "error", CROWDED),
    "prioritize": ("scored", "no-opinion", CROWDED),
    "bind": ("bound", *Failure, CROWDED),
    "preempt": ("victims", "no-victims", OUT_OF_TIME, CROWDED),
}
"""Verb → what may be said to a call of it."""
RESOURCES: Final = ("nodes", "pods", "resourceclaims", "resourceslices")
REPAIRS: Final = ("rebuilt", "adopted", "moved", "restored")
NOMINATIONS: Final = ("made", "failed", "served", "elsewhere", "lost", "withdrawn")
WAITS: Final = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
RATIOS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
LOSSES: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

Figures = Mapping[str, float]
"""Gauge name, without the prefix → value."""


class Metrics:
    """The series of one extender, in a registry of their own."""

    def __init__(self, config_digest: str) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "gputopo_extender_request_duration_seconds",
            "Time from the first byte of a verb's body to its answer.",
            ["verb"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._verdicts = Counter(
            "gputopo_verdicts", "Answers of the verbs by what they said.", ["verb", "reason"], registry=self._registry
        )
        self._refusals = Counter(
            "gputopo_refusals",
            "Calls of filter that no node passed, once for each reason that some node gave.",
            ["reason"],
            registry=self._registry,
        )
        self._waited = Histogram(
            "gputopo_waited_seconds",
            "Time from a pod's first refusal to its binding, once for each reason of its last refusal.",
            ["reason"],
            buckets=WAITS,
            registry=self._registry,
        )
        self._replies = Counter(
            "gputopo_api_requests",
            "What the protocol asked of the Kubernetes API, and what came back.",
            ["intent", "reply"],
            registry=self._registry,
        )
        self._repairs = Counter(
            "gputopo_ledger_repairs",
            "Ledgers rebuilt, and pods whose claims were adopted, moved or restored to what they hold.",
            ["kind"],
            registry=self._registry,
        )
        self._objects = Counter(
            "gputopo_watch_objects",
            "Versions of objects that are far larger than any serves a purpose, or that were passed over unread.",
            ["resource", "fate"],
            registry=self._registry,
        )
        self._failures = Counter(
            "gputopo_failed_rounds",
            "Rounds of work between calls that failed, and features that failed to take note of a call; tried again.",
            ["name"],
            registry=self._registry,
        )
        self._evictions = Counter(
            "gputopo_evictions",
            "Evictions that were asked for, of pods whose GPUs fell sick and that ask to be evicted then.",
            ["answer"],
            registry=self._registry,
        )
        self._placeholders = Counter(
            "gputopo_node_requests",
            "Placeholders, which ask autoscalers for nodes: those that were created or not, and what became of them.",
            ["outcome"],
            registry=self._registry,
        )
        self._nominations = Counter(
            "gputopo_nominations",
            "Nominations by which a queue is planned ahead: those that were made or not, and what became of them.",
            ["outcome"],
            registry=self._registry,
        )
        self._ratio = Histogram(
            "gputopo_placement_bandwidth_ratio",
            "Predicted bandwidth of the GPUs that a pod got, two or more, over that of the best so many of the empty machine.",
            ["communication"],
            buckets=RATIOS,
            registry=self._registry,
        )
        self._loss = Histogram(
            "gputopo_placement_loss",
            "What the pods to come lose by a placement, times λ: what was taken off its score.",
            buckets=LOSSES,
            registry=self._registry,
        )
        self._waits = Gauge(
            "gputopo_waiting_seconds",
            "How long the pods have waited since their first refusal that wait now, by each reason of their last one.",
            ["reason", "of"],
            registry=self._registry,
        )
        self._room = Gauge(
            "gputopo_fragmentation_pods",
            "Pods of so many GPUs, joined by NVLink, for which there is room: now, by the count of free GPUs, if all were free.",
            ["gpus", "when"],
            registry=self._registry,
        )
        for communication in Communication:
            self._ratio.labels(communication)
        self.waiting({})
        for answer in Answer:
            self._evictions.labels(answer)
        for verb, reasons in VERDICTS.items():
            for reason in reasons:
                self._verdicts.labels(verb, reason)
        for reason in Reason:
            self._refusals.labels(reason)
            self._waited.labels(reason)
        for intent, reply in product(get_args(Intent), get_args(Reply)):
            self._replies.labels(intent.__name__, reply.__name__)
        for outcome in NOMINATIONS:
            self._nominations.labels(outcome)
        for kind in REPAIRS:
            self._repairs.labels(kind)
        for resource, fate in product(RESOURCES, FATES):
            self._objects.labels(resource, fate)
        build = Info("gputopo_build", "Version and configuration of this process.", registry=self._registry)
        build.info({"version": version("gputopo"), "config": config_digest})
        self._timers = {verb: self._seconds.labels(verb) for verb in VERDICTS}

    def answered(self, verb: str, reason: str, seconds: float) -> None:
        """Count one answer of a verb."""
        self._timers[verb].observe(seconds)
        self._verdicts.labels(verb, reason).inc()

    def refused(self, reasons: Iterable[Reason]) -> None:
        """Count one call of filter that no node passed."""
        for reason in reasons:
            self._refusals.labels(reason).inc()

    def waited(self, reasons: Iterable[Reason], seconds: float) -> None:
        """Count one pod that is bound after it was refused."""
        for reason in reasons:
            self._waited.labels(reason).observe(seconds)

    def placed(self, communication: Communication, ratio: float) -> None:
        """Count one pod with several GPUs, by its bandwidth over the best."""
        self._ratio.labels(communication).observe(ratio)

    def lost(self, loss: float) -> None:
        """Count one placement by what it costs the pods to come."""
        self._loss.observe(loss)

    def waiting(self, waits: Mapping[Reason, Sequence[float]]) -> None:
        """Show how long the pods have waited that wait now, in seconds by reason."""
        for reason in Reason:
            seconds = waits.get(reason, (0.0,))
            self._waits.labels(reason, "longest").set(max(seconds))
            self._waits.labels(reason, "mean").set(fmean(seconds))

    def room(self, found: Mapping[int, Fits]) -> None:
        """Show what there is room for, by GPUs of a pod; sizes that no machine has any more are gone."""
        self._room.clear()
        for gpus, fits in found.items():
            for when, pods in (("now", fits.now), ("by_count", fits.by_count), ("empty", fits.empty)):
                self._room.labels(str(gpus), when).set(pods)

    def replied(self, intent: str, reply: str) -> None:
        """Count one reply of the Kubernetes API."""
        self._replies.labels(intent, reply).inc()

    def repaired(self, kind: str) -> None:
        """Count one repair of a ledger."""
        self._repairs.labels(kind).inc()

    def failed(self, name: str, times: int = 1) -> None:
        """Count failures of a round or a feature; none creates its series."""
        self._failures.labels(name).inc(times)

    def evicted(self, answer: Answer) -> None:
        """Count one answer to a request for an eviction."""
        self._evictions.labels(answer).inc()

    def node_requested(self, outcome: str) -> None:
        """Count one placeholder, or what became of one."""
        self._placeholders.labels(outcome).inc()

    def nominated(self, outcome: str) -> None:
        """Count one nomination, or what became of one."""
        self._nominations.labels(outcome).inc()

    def burdened(self, resource: str, fate: str) -> None:
        """Count one heavy object, or one that was passed over."""
        self._objects.labels(resource, fate).inc()

    def watch(self, read: Callable[[], Figures], refused: Callable[[], Mapping[str, int]]) -> None:
        """Ask `read` for the gauges of `GAUGES`, and `refused` for the pods that wait by reason, whenever somebody scrapes."""
        self._registry.register(_Gauges(read))
        self._registry.register(_Refused(refused))

    def exposition(self) -> bytes:
        """Return all series in the text format."""
        return generate_latest(self._registry)


class Recent:
    """What is made when it is asked for, and then serves everybody for some seconds."""

    def __init__(self, make: Callable[[], bytes], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._made: bytes | None = None
        self._made_at = 0.0

    def at(self, now: float) -> bytes:
        """Return it as of `now` (monotonic, in seconds), or not long before."""
        if self._made is None or now - self._made_at >= self._seconds:
            self._made, self._made_at = self._make(), now
        return self._made


GAUGES: Final = {
    "nodes": "Nodes with a GPU topology.",
    "nodes_closed": "Nodes none of whose GPUs may be given away, for a reason that `inspect` tells.",
    "gpus": "GPUs of all nodes.",
    "gpus_free": "GPUs that are healthy and that nobody holds, on nodes that are not set aside.",
    "gpus_free_set_aside": "The same on nodes that are cordoned, or have a taint that not all pods with GPUs tolerate.",
    "gpus_shared": "GPUs of which pods have shares.",
    "share_gib_taken": "Memory of these GPUs that is some pod's share, GiB.",
    "share_gib_left": "Memory of these GPUs that the next shares can have, GiB.",
    "gpus_in_conflict": "GPUs that two live pods hold, or a pod and a ResourceClaim.",
    "pods_on_sick_gpus": "Pods that hold a GPU that has fallen sick.",
    "nodes_silent": "Nodes whose agent has not written for too long.",
    "ledgers_broken": "Ledgers that are lost or cannot be trusted, and wait to be rebuilt.",
    "pods_unledgered": "Running pods whose GPUs the ledger does not say, or not yet.",
    "nodes_unsettled": "Nodes with a claim whose pod does not run there, or not yet.",
    "topology_classes": "Different machines among the nodes.",
    "assumed_placements": "Pods between prioritize and bind for which GPUs are held.",
    "pods": "Pods in the cache: those that ask for GPUs.",
    "placeholders": "Placeholders that ask autoscalers for a node; no other gauge counts them.",
    "pods_waiting": "Those of them that are not bound.",
    "pods_waiting_for_other_schedulers": "Those of them that name a scheduler which does not ask us: we never place these.",
    "pods_of_other_schedulers": "Pods that hold GPUs of our nodes and were placed by a scheduler that does not ask us.",
    "watch_silence_seconds": "Since the API server was last heard, on the quieter of the two watches.",
    "events_dropped": "Events that were not posted.",
    "stands_aside": "Nodes that are closed because kube-scheduler hands out their GPUs itself, by DRA.",
    "preconditions_honoured": "Whether the API server honours the preconditions of a Binding; absent until it is known.",
    "measured_figures": "Measured bandwidths in the place of predictions, on the machines there are; absent without a file.",
    "measured_refused": "Measured bandwidths that are not believed; the log says which and why.",
    "measured_unreadable": "Whether the file of measured bandwidths cannot be read as it is now; what it said before stands.",
    "measured_error_ratio": "How far off its prediction that measured bandwidth is that is farthest off; 0.2: by a fifth.",
    "budgets_known": "Whether PodDisruptionBudgets are read; preempt keeps to the victims of kube-scheduler otherwise.",
    "gpus_held_by_claims": "GPUs of which ResourceClaims (DRA) hold the whole or a part.",
    "resource_claims_watched": "Whether ResourceClaims are heard of; absent where the API server has none.",
    "group_sizes_read": "Whether sizes of groups are read off other objects; absent where nobody wants it.",
    "policies_in_force": "Whether admission policies keep others from forging our annotations; absent until it is known.",
}


class _Gauges(Collector):
    def __init__(self, read: Callable[[], Figures]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(f"gputopo_{name}", text) for name, text in GAUGES.items()]

    def collect(self) -> Iterable[Metric]:
        figures = self._read()
        for name, text in GAUGES.items():
            if name in figures:
                yield GaugeMetricFamily(f"gputopo_{name}", text, value=figures[name])


class _Refused(Collector):
    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family, waiting = self._family(), self._read()
        for reason in Reason:
            family.add_metric([reason], waiting.get(reason, 0))
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        text = "Pods that wait, once for each reason of their last refusal."
        return GaugeMetricFamily("gputopo_pods_refused", text, labels=["reason"])
