"""What DRA has to say of one node: which claims hold its GPUs and MIG devices, and which containers have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from topology.annotations.records import ClaimUser, Holder


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What DRA has to say of one node's GPUs."""

    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUID → the claims that hold the GPU or a part of it, by namespace and name; of a MIG device that is offered its own."""
    unmatched: tuple[tuple[str, str], ...] = ()
    """Claims, each with a device of which nobody tells the GPU."""
    tainted: Mapping[str, str] = field(default_factory=dict)
    """UUID → the driver's taint that keeps pods off."""
    is_unheard: bool = False
    """Devices are published there, and what claims hold of them is not known just now."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """Claim that we have allocated → UID of the pod for which it was made.

    Where no feature allocates claims any more, each claim → UID of the only pod that it is reserved for.
    """
    users: Mapping[str, tuple[ClaimUser, ...]] = field(default_factory=dict)
    """UUID → the containers that the agent saw with the device, or a part of it, by claims that hold it."""
    unexplained: Mapping[str, tuple[ClaimUser, ...]] = field(default_factory=dict)
    """UUID → the containers that the agent saw with the device by claims that are gone, or do not hold it."""

    def without(self, is_stale: Callable[[Holder], bool]) -> NodeDevices:
        """Return the same without containers that have stopped since the agent's look."""
        if not self.users and not self.unexplained:
            return self
        return replace(self, users=_kept(self.users, is_stale), unexplained=_kept(self.unexplained, is_stale))

    def seen_with(self, pod: tuple[str, str]) -> frozenset[str]:
        """Return the GPUs that the agent saw a pod with, by its namespace and name."""
        seen = (*self.users.items(), *self.unexplained.items())
        return frozenset(gpu for gpu, users in seen if any((user.namespace, user.name) == pod for user in users))

    def without_ours(self, claimed: Iterable[tuple[str, str]]) -> NodeDevices:
        """Return the same without what claims of ours hold for pods that the ledger names, too: `claimed` are UUIDs and UIDs."""
        if not self.pods:
            return self
        ours = {*claimed}
        held = {
            gpu: claims
            for gpu, claims in self.held.items()
            if not all((gpu, self.pods.get(claim, "")) in ours for claim in claims)
        }
        return replace(self, held=held)

    def missing(self, uuids: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return the claims, each with what it holds, that hold none of these devices for all that is known."""
        strange = self.held.keys() - set(uuids)
        return (*self.unmatched, *((claim, gpu) for gpu in sorted(strange) for claim in self.held[gpu]))


NOTHING = NodeDevices()


def _kept(
    users: Mapping[str, tuple[ClaimUser, ...]], is_stale: Callable[[Holder], bool]
) -> dict[str, tuple[ClaimUser, ...]]:
    kept = ((gpu, tuple(user for user in of if not is_stale(user))) for gpu, of in users.items())
    return {gpu: of for gpu, of in kept if of}
