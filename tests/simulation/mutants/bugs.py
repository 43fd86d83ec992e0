"""The bugs themselves: what is put in place of a few lines of the product, or of a simulated kubelet, by `mutants`.

`yield from ()` makes a step of the protocol of a function that asks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import extender.kubernetes.rest as rest
from agent.node.kube import changes
from benchmarks.simulated.double.resources import Object
from extender.binding import bind as binding
from extender.binding.intents import BindPod, Done, FencePod, SwapLedger
from extender.binding.older_claims import drop_older_claims as _drop_older_claims
from extender.binding.outcome import Bound, NotBound, Outcome
from extender.binding.release import ClaimTimers, Task
from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.objects.gpu_pods import GpuPod, has_ended, has_stopped
from extender.cluster.objects.kinds import Pod
from extender.cluster.ownership.standing import Standing, standing_of_pod, standing_of_tombstone
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.kubernetes.reflector import Timing, list_objects
from extender.service import Extender
from extender.verbs.wire import ExtenderBindingArgs
from tests.simulation.world import kubelet
from tests.simulation.world.process import Clock
from tests.simulation.world.scheduler import gpus_of
from topology.request.gpu_request import PodRequest

_protocol: Any = binding
_claim, _settled, _post = (getattr(_protocol._Bind, step) for step in ("_claim", "_settled", "_post"))
_swap_ledger, _create_ledger, _bind_pod = rest._swap_ledger, rest._create_ledger, rest._bind
_clock = Clock.__call__
_bind, _changed, _share_out = Extender.bind, PodCache.changed, PodRequest.share_out


def swap_without(*tested: str) -> Callable[[SwapLedger], rest.Request]:
    """Leave out the tests of these annotations or fields."""

    def swap(intent: SwapLedger) -> rest.Request:
        request = _swap_ledger(intent)
        steps = json.loads(request.body or b"")
        kept = [step for step in steps if step["op"] != "test" or not step["path"].endswith(tested)]
        return replace(request, body=json.dumps(kept).encode())

    return swap


def create_blindly(intent: SwapLedger) -> rest.Request:
    """Create a ledger whatever has become of the node."""
    request = _create_ledger(intent)
    metadata = json.loads(request.body or b"")["metadata"]
    return replace(request, body=json.dumps({"metadata": {"annotations": metadata["annotations"]}}).encode())


def bind_without(*preconditions: str) -> Callable[[BindPod], rest.Request]:
    """Leave out these preconditions of a Binding."""

    def bind(intent: BindPod) -> rest.Request:
        request = _bind_pod(intent)
        body = json.loads(request.body or b"")
        for name in preconditions:
            del body["metadata"][name]
        return replace(request, body=json.dumps(body).encode())

    return bind


def claim_nothing(self: Any, view: Any, pod: Pod, record: Any) -> Any:
    """Choose, and tell nobody."""
    yield from ()
    return pod


def claim_once(self: Any, view: Any, pod: Pod, record: Any) -> Any:
    """Trust in the claim of an earlier round."""
    if getattr(self, "has_claimed", False):
        return pod
    claimed = yield from _claim(self, view, pod, record)
    self.has_claimed = isinstance(claimed, Pod)
    return claimed


def fence_nobody(self: Any, pod: Pod) -> Any:
    """Go on with the version that a Binding under way may rest on."""
    yield from ()
    return pod


def keep_older_claims(self: Any, pod: Pod) -> Any:
    """Claim on one node after the other."""
    yield from ()
    return pod


def drop_without_fence(state: ClusterState, pod: Pod, node: str, ask: Any) -> Any:
    """Drop claims of which a Binding may be under way."""

    def ask_no_fence(intent: Any) -> Any:
        return Done(pod) if isinstance(intent, FencePod) else (yield from ask(intent))

    return (yield from _drop_older_claims(state, pod, node, ask_no_fence))


def withdraw_nothing(self: Any) -> Any:
    """Leave the claim of a refused bind."""
    yield from ()


def settle_any_uid(self: Any, pod: Pod) -> Any:
    """Take a namesake for the pod."""
    self._target = replace(self._target, uid=pod.metadata.uid)
    return (yield from _settled(self, pod))


def post_again_and_again(self: Any, pod: Pod, record: Any) -> Any:
    """Take no for no answer."""
    result = yield from _post(self, pod, record)
    return result if isinstance(result, Bound) else _protocol._Again()


def expire(state: ClusterState, task: Task) -> Any:
    """Take claims back because time has passed."""
    yield from ()
    return frozenset(uid for uid in task.orphans if (pod := state.pods.get(uid)) and pod.node is None)


def impatient(**_: float) -> ClaimTimers:
    """Let claims expire after seconds."""
    return ClaimTimers(orphan_seconds=3.0)


def never(**_: float) -> ClaimTimers:
    """Take no claim for an orphan's."""
    return ClaimTimers(orphan_seconds=1e9)


def stopped_when_deleted(pod: Pod) -> bool:
    """Take the request for the deed."""
    return pod.metadata.deletion_timestamp is not None or has_stopped(pod)


def stopped_when_crashed(pod: Pod) -> bool:
    """Believe that a deleted pod's crashed containers stay down."""
    statuses = pod.status.container_statuses or []
    crashed = bool(statuses) and all(status.state.terminated is not None for status in statuses)
    return (crashed and pod.metadata.deletion_timestamp is not None) or has_stopped(pod)


def stopped_when_ended(pod: Pod) -> bool:
    """Believe a final phase, whoever wrote it."""
    return has_ended(pod)


def free_when_deleting(pod: Any, node: str, **facts: bool) -> Standing:
    """Let go of the claims of pods that are being deleted."""
    return Standing.FREE if pod.pod.metadata.deletion_timestamp is not None else standing_of_pod(pod, node, **facts)


def free_when_absent(tombstone: Any, node: str, **facts: bool) -> Standing:
    """Take what is not in the cache for dead."""
    return Standing.FREE if tombstone is None else standing_of_tombstone(tombstone, node, **facts)


def free_when_gone(tombstone: Any, node: str, **facts: bool) -> Standing:
    """Take what is gone for stopped."""
    return (
        Standing.FREE if tombstone is not None and tombstone.gone else standing_of_tombstone(tombstone, node, **facts)
    )


def free_by_next_report(self: Any, known: Any, claim: Any) -> bool:
    """Believe a report that may have been under way for long."""
    baseline, report = self._all.get((known.name, claim.uid)), known.report
    if baseline is None or baseline.report == report or report.observed is None:
        return False
    return claim.gpu not in report.observed.gpus


def first_version_only(self: Any, item: Pod) -> None:
    """Hear of new pods, and of nothing that happens to them."""
    if item.metadata.uid not in self._pods:
        _changed(self, item)


def deaf(self: Any, item: Pod) -> None:
    """Hear nothing."""


async def list_with_version_of_last_item(*args: Any) -> Any:
    """Go on from where the last object was changed."""
    listed = await list_objects(*args)
    found = listed.objects
    return replace(listed, version=found[-1].metadata.resource_version if found else listed.version)


def patient_for_ever(**timing: Any) -> Timing:
    """Wait for a silent stream."""
    return Timing(**timing | {"silence_seconds": 1e9})


def newer_always(*_: Any) -> bool:
    """Take whatever comes last for the newest."""
    return False


def share_out_too_few(self: PodRequest, gpus: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Leave out one GPU of several."""
    return {container: share[:-1] or share for container, share in _share_out(self, gpus).items()}


async def bind_and_keep_the_lock(self: Any, args: ExtenderBindingArgs) -> Outcome:
    """Unlock the node after success only."""
    outcome = await _bind(self, args)
    if isinstance(outcome, NotBound):
        lock = self._node_locks.plain(args.node)
        self.dangling = [*getattr(self, "dangling", []), lock]
        await lock.acquire()
    return outcome


def oldest_of_the_same_size(pod: Object, pods: list[Object]) -> Object:
    """Match by size: the oldest pod that asks for as many, and has a record."""
    alike = [other for other in pods if gpus_of(other) == gpus_of(pod) and kubelet.is_placed(other)]
    return min(alike, key=lambda other: str(other["metadata"]["uid"]), default=pod)


def last_bound(pod: Object, pods: list[Object]) -> Object:
    """Take the order of the Bindings for the order in which the kubelet asks."""
    waiting = [other for other in pods if kubelet.is_placed(other) and "startTime" not in other["status"]]
    return max(waiting, key=lambda other: int(other["metadata"]["resourceVersion"]), default=pod)


def wall_clock_only(self: Clock) -> Instant:
    """Measure everything with the clock that people set."""
    wall = _clock(self).wall
    return Instant(wall, wall)


def write_blindly(known: Mapping[str, str], annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Report over whatever has been reported since."""
    return [step for step in changes(known, annotations) if step["op"] != "test"]


def known_for_sure(state: ClusterState, pod: GpuPod) -> Any:
    """Trust the cache."""
    yield from ()
    return True


def fence_unneeded(self: Any, node: str) -> bool:
    """Take a ledger that is not there for one that never was."""
    return False


def heard_enough(state: ClusterState, node: str) -> Any:
    """Rebuild from the pods that were heard of."""
    yield from ()
    return True


def blocked_by_bound_pods_only(view: Any, moving: Any, held: Any) -> bool:
    """Take a claim away from whoever is not in the cache."""
    return any(
        standing is Standing.HELD and claim.gpu in held.gpus and claim.uid not in moving
        for claim, standing in view.claims
    )
