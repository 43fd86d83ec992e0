"""Which GPUs each pod of a node has: what its record plans, what the ledger says, and what the node's agent saw.

The agent's report is the fact, and a ledger follows it. But a report knows pods by name only, and may be of a look before the
pod began, when a namesake was there. So it overrules record and ledger only when it accounts for the whole pod and is certainly
about this one: there was no other, or enough looks have been made since (`Sightings`). The GPUs that it names are taken anyway.

A pod that wants the planned GPUs or none is not followed before it runs: its node holds it back till it has these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from extender.cluster.pods import GpuPod, claims_for, planned_gpus
from topology.records import Claim, Holder


@dataclass(frozen=True, slots=True)
class Holding:
    """The GPUs of one live pod, as far as they are known."""

    pod: GpuPod
    gpus: Mapping[str, str]
    """GPU → container."""
    claimed: Mapping[str, str]
    """The same, as the ledger says it."""
    seen: bool = False
    """The agent saw all of it."""
    hidden: int | None = 0
    """How many more it holds that nobody can name; `None`: nobody knows how many."""

    @property
    def is_settled(self) -> bool:
        """Whether the ledger says what is known."""
        return self.gpus == self.claimed

    @property
    def outdates_record(self) -> bool:
        """Whether the pod's record does not name the GPUs that the ledger and the agent agree on."""
        return self.seen and self.is_settled and self.pod.placed != frozenset(self.gpus)

    def claims(self) -> tuple[Claim, ...]:
        """Return the claims that say so, for the pod in its present version."""
        return claims_for(self.pod.pod, containers_of(self.gpus))


def containers_of(gpus: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return container → GPUs.

    >>> containers_of({"GPU-b": "main", "GPU-a": "main"})
    {'main': ('GPU-a', 'GPU-b')}
    """
    return {name: tuple(sorted(gpu for gpu in gpus if gpus[gpu] == name)) for name in sorted(set(gpus.values()))}


def holdings_of(
    pods: Iterable[GpuPod],
    claims: Iterable[Claim],
    holders: Mapping[str, Holder],
    is_about: Callable[[GpuPod, frozenset[str]], bool],
    has_replaced: Callable[[GpuPod, Claim], bool],
) -> tuple[Holding, ...]:
    """Return what each pod that has not stopped holds, by UID; linear in pods, claims and holders.

    What is claimed for a namesake is not seen with a pod, as that one's containers may run on, though it is gone; unless the pod
    ran by the time of the look, and no more GPUs are reported under their name than it must have.

    Args:
        pods: Those that are bound to the node.
        claims: Those that are not proven dead.
        holders: GPU → whom the agent saw with it.
        is_about: Says whether the GPUs that are reported under a pod's name are certainly its own.
        has_replaced: Says whether a pod ran by the time of the look, and the claim's, of the same name, was gone.

    """
    claim_on = {claim.gpu: claim for claim in claims}
    claimed: dict[str, dict[str, str]] = {}
    for gpu, claim in claim_on.items():
        claimed.setdefault(claim.uid, {})[gpu] = claim.container
    reported: dict[tuple[str, str], list[str]] = {}
    for gpu, who in holders.items():
        reported.setdefault((who.namespace, who.name), []).append(gpu)
    found = []
    for pod in sorted((pod for pod in pods if not pod.stopped), key=lambda pod: pod.uid):
        named = reported.get(pod.key, ())
        namesakes = {gpu: claim_on[gpu] for gpu in named if gpu in claim_on and _is_namesakes(claim_on[gpu], pod)}
        if len(named) == pod.gpus and all(has_replaced(pod, claim) for claim in namesakes.values()):
            namesakes = {}
        seen = {gpu: holders[gpu].container for gpu in named if gpu not in namesakes}
        is_about_it = is_about(pod, frozenset(seen))
        found.append(_holding(pod, claimed.get(pod.uid, {}), seen, is_about_it=is_about_it))
    return tuple(found)


def _is_namesakes(claim: Claim, pod: GpuPod) -> bool:
    return claim.uid != pod.uid and (claim.namespace, claim.name) == pod.key


def _holding(pod: GpuPod, claimed: dict[str, str], seen: dict[str, str], *, is_about_it: bool) -> Holding:
    planned = _planned(pod, claimed)
    named = planned.keys() | claimed.keys() | seen.keys()
    hidden = None if pod.gpus is None else max(0, pod.gpus - len(named))
    if seen == claimed:
        seen = claimed  # the same for nearly all pods of a large cluster: one dictionary is enough
    holds_back = bool(planned) and seen != claimed and pod.waits_for_its_own
    if len(seen) == pod.gpus and (is_about_it or seen == claimed or not planned) and not holds_back:
        return Holding(pod, seen, claimed, seen=is_about_it or not planned, hidden=hidden)
    if planned:
        return Holding(pod, planned, claimed, hidden=hidden)
    return Holding(pod, claimed | seen, claimed, hidden=hidden)


def _planned(pod: GpuPod, claimed: Mapping[str, str]) -> Mapping[str, str]:
    """Return what the record says; it is read again only where the ledger does not say the same."""
    if not pod.placed:
        return {}
    return claimed if claimed.keys() == pod.placed else planned_gpus(pod.pod)


@dataclass(slots=True)
class _Sighting:
    entry: frozenset[str]
    looks: int
    is_new: bool = False


class Sightings:
    """Since when the reports of a node are about a pod: counted from the first version of the pod that was bound there."""

    def __init__(self) -> None:
        self._first: dict[str, _Sighting] = {}

    def is_about(self, uid: str, entry: frozenset[str], looks: int) -> bool:
        """Whether a report is of a look at this very pod.

        It is if it says something else of that name than the report that was there when the pod was bound; else after two more
        looks, because the first of them may have been under way by then.

        Args:
            uid: The pod, which is bound to the node.
            entry: The GPUs that the report names for a pod of its name.
            looks: The agent's count of its looks.

        """
        first = self._first.get(uid)
        if first is None or (looks < first.looks and not first.is_new):
            first = self._first[uid] = _Sighting(entry, looks)
        first.is_new = first.is_new or entry != first.entry or looks >= first.looks + 2
        return first.is_new

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._first.pop(uid, None)
