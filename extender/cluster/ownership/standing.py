"""Whether a claim still stands: what is known of the pod that it was made for, and what that proves.

Deletion is no proof that a GPU is free, and absence from a cache is no proof of anything. Only `FREE` lets go of a GPU:

- the pod is bound to another node, which is for ever (R1);
- none of its containers runs or will run again (R1, R2: `pods.has_stopped`);
- it was deleted without ever being bound, as the DELETED event shows (R2);
- it is gone, and the node has another UID than when the claim was made (R2);
- it is gone, or was called ended without a word of its containers, and the agent did not see the GPU held since (R2). The
  agent has written since a live read of the node, which was made when that was already known. Pods that were deleted by
  force or unobserved, and those that a kubelet did not admit, wait for this. An agent writes when it is asked, and every
  few minutes even when nothing changes.

Where we allocate a ResourceClaim for the pod, the claim is `CLAIMED` until that one is gone or has other devices. An allocation
may be under way. Where that is excluded, a ResourceClaim without devices does not count.

An unbound pod's claim is `PENDING`, even when the pod is being deleted: only a fence makes sure that no Binding is under way
(R3).
"""

from __future__ import annotations

from enum import StrEnum

from extender.cluster.caches.tombstones import Tombstone
from extender.cluster.objects.gpu_pods import GpuPod, has_ended


class Standing(StrEnum):
    """What is known of a claim's pod."""

    HELD = "held"
    """Bound to the node, and its containers may run."""
    PENDING = "pending"
    """Not bound: a Binding may be under way, or will never come."""
    UNSEEN = "unseen"
    """Not in the cache; only a live read can tell."""
    GONE = "gone"
    """Deleted or ended, and nothing shows yet that its containers have stopped."""
    FREE = "free"
    """Proven: the GPU is not used by this claim and will not be."""
    CLAIMED = "claimed"
    """Its pod does not use it, and a ResourceClaim that was made for the pod holds the GPU, or may."""


def standing_of_pod(pod: GpuPod, node: str, *, reported_free: bool) -> Standing:
    """Return the standing of a claim on `node` whose pod exists; `reported_free`: see the module's last rule."""
    if pod.node is None:
        # A Binding fails on every version but the claim's own, and an ended pod was a living one then.
        return Standing.FREE if has_ended(pod.pod) else Standing.PENDING
    if pod.node != node or pod.stopped:
        return Standing.FREE
    if pod.ended:
        return Standing.FREE if reported_free else Standing.GONE
    return Standing.HELD


def standing_of_tombstone(
    tombstone: Tombstone | None, node: str, *, other_incarnation: bool, reported_free: bool
) -> Standing:
    """Return the standing of a claim on `node` whose pod is not in the cache.

    `other_incarnation`: the claim is about a former node of that name. `reported_free`: see the module's last rule.
    """
    if tombstone is None:
        return Standing.UNSEEN
    if tombstone.stopped or tombstone.never_ran_on(node):
        return Standing.FREE
    if not tombstone.gone:
        return Standing.UNSEEN
    return Standing.FREE if other_incarnation or reported_free else Standing.GONE
