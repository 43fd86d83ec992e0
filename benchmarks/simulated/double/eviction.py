"""The Eviction API: a delete that the budgets of its pod allow. Every pod that runs counts as ready."""

from __future__ import annotations

from benchmarks.simulated.double.resources import BUDGETS, PODS, Object
from benchmarks.simulated.double.status import StatusError, success
from benchmarks.simulated.double.store import ObjectStore


def evict(store: ObjectStore, namespace: str, name: str, eviction: Object, *, dry_run: bool = False) -> Object:
    """Carry out an eviction, or refuse it with 429 where a budget allows none now; a dry run writes nothing."""
    pod = store.get(PODS, namespace, name)
    options = eviction.get("deleteOptions") or {}
    if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
        _spend(store, namespace, pod, dry_run=dry_run)
    store.delete(PODS, namespace, name, preconditions=options.get("preconditions"), dry_run=dry_run)
    return success("pods", name, pod["metadata"]["uid"], code=201)


def _spend(store: ObjectStore, namespace: str, pod: Object, *, dry_run: bool) -> None:
    """Take one disruption off the pod's budget."""
    labels = pod["metadata"].get("labels") or {}
    for budget in store.list(BUDGETS, namespace).items:
        wanted = budget["spec"]["selector"]["matchLabels"]
        if wanted.items() <= labels.items():
            left = (budget.get("status") or {}).get("disruptionsAllowed", 0) - 1
            if left < 0:
                raise StatusError(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
                )
            store.modify(
                BUDGETS,
                namespace,
                budget["metadata"]["name"],
                lambda old, left=left: {**old, "status": old["status"] | {"disruptionsAllowed": left}},  # type: ignore[misc]
                dry_run=dry_run,
            )
