"""The series of the core; each feature declares its own in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final, get_args

from extender.binding.intents import Intent, Reply
from extender.binding.outcome import Failure
from extender.telemetry.metrics import Declaration, SeriesKind, read_gauges
from topology.placement.verdict import Reason

CROWDED: Final = "crowded"
OUT_OF_TIME: Final = "out-of-time"
VERDICTS_BY_VERB: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("fits", "no-fit", "error", CROWDED),
    "prioritize": ("scored", "no-opinion", CROWDED),
    "bind": ("bound", *Failure, CROWDED),
    "preempt": ("victims", "no-victims", OUT_OF_TIME, CROWDED),
}
"""Verb → what may be said to a call of it."""

REQUEST_SECONDS: Final = Declaration(
    "gputopo_extender_request_duration_seconds",
    "Time from the first byte of a verb's body to its answer.",
    SeriesKind.HISTOGRAM,
    labels=("verb",),
    values=tuple(product(VERDICTS_BY_VERB)),
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
VERDICTS: Final = Declaration(
    "gputopo_verdicts",
    "Answers of the verbs.",
    SeriesKind.COUNTER,
    labels=("verb", "reason"),
    values=tuple((verb, reason) for verb, reasons in VERDICTS_BY_VERB.items() for reason in reasons),
)
REFUSALS: Final = Declaration(
    "gputopo_refusals",
    "Filter calls that no node passed, once per reason of a node.",
    SeriesKind.COUNTER,
    labels=("reason",),
    values=tuple(product(Reason)),
)
WAITED_SECONDS: Final = Declaration(
    "gputopo_waited_seconds",
    "Time from a pod's first refusal to its bind, once per reason of its last refusal.",
    SeriesKind.HISTOGRAM,
    labels=("reason",),
    values=tuple(product(Reason)),
    buckets=(1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0),
)
API_REQUESTS: Final = Declaration(
    "gputopo_api_requests",
    "API requests of the bind protocol; `NoAnswer` and `Conflict` should be rare.",
    SeriesKind.COUNTER,
    labels=("intent", "reply"),
    values=tuple((intent.__name__, reply.__name__) for intent, reply in product(get_args(Intent), get_args(Reply))),
)
LEDGER_REPAIRS: Final = Declaration(
    "gputopo_ledger_repairs",
    "Ledgers that were rebuilt, and pods whose claims were corrected.",
    SeriesKind.COUNTER,
    labels=("kind",),
    values=tuple(product(("rebuilt", "adopted", "moved", "restored"))),
)
WATCH_OBJECTS: Final = Declaration(
    "gputopo_watch_objects",
    "Versions of objects that are over 1 MiB, or were skipped unread.",
    SeriesKind.COUNTER,
    labels=("resource", "fate"),
    values=tuple(product(("nodes", "pods", "resourceclaims", "resourceslices"), ("heavy", "unread"))),
)
PODS_REFUSED: Final = Declaration(
    "gputopo_pods_refused",
    "Waiting pods, once per reason of their last refusal.",
    SeriesKind.READ,
    labels=("reason",),
    values=tuple(product(Reason)),
)
_GAUGES: Final = {
    "nodes": "Nodes with a GPU topology.",
    "nodes_closed": "Nodes that are not schedulable for GPU pods.",
    "gpus": "GPUs of all nodes.",
    "gpus_free": "Healthy GPUs that no pod holds, without those set aside.",
    "gpus_free_set_aside": "Free GPUs set aside: their nodes are cordoned, or have a taint outside `scheduling.toleratedTaints`.",
    "gpus_shared": "GPUs with shares of pods.",
    "share_gib_taken": "Memory of shared GPUs in shares.",
    "share_gib_left": "Memory of shared GPUs for further shares.",
    "gpus_in_conflict": "GPUs that two live pods hold, or a pod and a ResourceClaim; should be 0.",
    "pods_on_sick_gpus": "Pods that hold a sick GPU.",
    "nodes_silent": "Nodes whose agent has not written for longer than `agents.silence`.",
    "ledgers_broken": "Ledgers that were lost or changed, and wait to be rebuilt.",
    "pods_unledgered": "Running pods whose GPUs are not yet in a ledger.",
    "nodes_unsettled": "Nodes with a claim whose pod does not run there, or not yet.",
    "topology_classes": "Node types, by their GPUs and links.",
    "assumed_placements": "Pods with a hold, between prioritize and bind.",
    "pods": "GPU pods in the cache.",
    "pods_waiting": "GPU pods without a node.",
    "pods_gated": "Pods behind the scheduling gate `gputopo.dev/plan`.",
    "pods_waiting_for_other_schedulers": "Waiting GPU pods of a scheduler without gputopo; should be 0.",
    "pods_of_other_schedulers": "GPU pods that a scheduler without gputopo placed; should be 0.",
    "watch_silence_seconds": "Time since the last message of the API server, on the quieter watch.",
    "events_dropped": "Events that were not posted.",
    "stands_aside": "Nodes whose GPUs kube-scheduler assigns itself, by DRA.",
    "preconditions_honoured": "1 if the API server respects preconditions of Bindings; 0: nothing is bound. Absent until known.",
    "budgets_known": "1 if PodDisruptionBudgets can be read; 0: preemption keeps to kube-scheduler's victims.",
    "gpus_held_by_claims": "GPUs that ResourceClaims hold, or a part of them.",
    "gpus_used_without_claim": "GPUs that containers use as DRA devices, and no ResourceClaim holds; should be 0 after seconds.",
    "resource_claims_watched": "1 if ResourceClaims are watched; absent if the API server has none.",
    "policies_in_force": "1 if admission policies protect gputopo's annotations; absent until known.",
}
"""Their values are in `extender.telemetry.gauges`, or in `figures` of `extender.core.condition`."""

FAILED_ROUNDS: Final = Declaration(
    "gputopo_failed_rounds",
    "Background rounds and observers that failed; they are retried, and the log says why.",
    SeriesKind.COUNTER,
    labels=("name",),
)
"""`Metrics.begin` makes a series for each round that there is."""

CORE: Final = (
    FAILED_ROUNDS,
    REQUEST_SECONDS,
    VERDICTS,
    REFUSALS,
    WAITED_SECONDS,
    API_REQUESTS,
    LEDGER_REPAIRS,
    WATCH_OBJECTS,
    PODS_REFUSED,
    *read_gauges(_GAUGES),
)
