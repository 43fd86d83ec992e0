"""The series of the core; each feature declares its own in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final, get_args

from extender.binding.intents import Intent, Reply
from extender.binding.outcome import Failure
from extender.telemetry.metrics import Declaration, Kind, read_gauges
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
    Kind.HISTOGRAM,
    labels=("verb",),
    values=tuple(product(VERDICTS_BY_VERB)),
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
VERDICTS: Final = Declaration(
    "gputopo_verdicts",
    "Answers of the verbs by what they said.",
    Kind.COUNTER,
    labels=("verb", "reason"),
    values=tuple((verb, reason) for verb, reasons in VERDICTS_BY_VERB.items() for reason in reasons),
)
REFUSALS: Final = Declaration(
    "gputopo_refusals",
    "Calls of filter that no node passed, once for each reason that some node gave.",
    Kind.COUNTER,
    labels=("reason",),
    values=tuple(product(Reason)),
)
WAITED_SECONDS: Final = Declaration(
    "gputopo_waited_seconds",
    "Time from a pod's first refusal to its binding, once for each reason of its last refusal.",
    Kind.HISTOGRAM,
    labels=("reason",),
    values=tuple(product(Reason)),
    buckets=(1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0),
)
API_REQUESTS: Final = Declaration(
    "gputopo_api_requests",
    "What the protocol asked of the Kubernetes API, and what came back.",
    Kind.COUNTER,
    labels=("intent", "reply"),
    values=tuple((intent.__name__, reply.__name__) for intent, reply in product(get_args(Intent), get_args(Reply))),
)
LEDGER_REPAIRS: Final = Declaration(
    "gputopo_ledger_repairs",
    "Ledgers rebuilt, and pods whose claims were adopted, moved or restored to what they hold.",
    Kind.COUNTER,
    labels=("kind",),
    values=tuple(product(("rebuilt", "adopted", "moved", "restored"))),
)
WATCH_OBJECTS: Final = Declaration(
    "gputopo_watch_objects",
    "Versions of objects that are far larger than any serves a purpose, or that were passed over unread.",
    Kind.COUNTER,
    labels=("resource", "fate"),
    values=tuple(product(("nodes", "pods", "resourceclaims", "resourceslices"), ("heavy", "unread"))),
)
PODS_REFUSED: Final = Declaration(
    "gputopo_pods_refused",
    "Pods that wait, once for each reason of their last refusal.",
    Kind.READ,
    labels=("reason",),
    values=tuple(product(Reason)),
)
_GAUGES: Final = {
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
    "budgets_known": "Whether PodDisruptionBudgets are read; preempt keeps to the victims of kube-scheduler otherwise.",
    "gpus_held_by_claims": "GPUs of which ResourceClaims (DRA) hold the whole or a part.",
    "resource_claims_watched": "Whether ResourceClaims are heard of; absent where the API server has none.",
    "policies_in_force": "Whether admission policies keep others from forging our annotations; absent until it is known.",
}
"""Their values are in `extender.telemetry.gauges`, or in `figures` of `extender.core.condition`."""

FAILED_ROUNDS: Final = Declaration(
    "gputopo_failed_rounds",
    "Rounds of work between calls that failed, and features that failed to take note of a call; tried again.",
    Kind.COUNTER,
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
