"""Which GPUs each pod of a node has: what its record plans, what the ledger says, and what the node's agent saw.

The agent's report is the fact, and a ledger follows it. But a report knows pods by name only, and may be of a look before the
pod began, when a namesake was there. So it overrules record and ledger only when it accounts for the whole pod and is certainly
about this one: there was no other, or enough reports have come since (`FirstReports`). The GPUs that it names are taken anyway.

A pod that wants the planned GPUs or none is not followed before it runs: its node holds it back till it has these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from extender.cluster.objects.gpu_pods import GpuPod, claims_for, planned_gpus
from extender.cluster.ownership.evidence import Evidence
from topology.annotations.records import Claim, Holder


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
    evidence: Evidence,
) -> tuple[Holding, ...]:
    """Return what each pod that has not stopped holds, by UID; linear in pods, claims and holders.

    A report knows names only. So a GPU that is reported under a pod's name, but claimed for an earlier pod of that name, is
    the earlier one's, whose containers may still run. It counts as this pod's once the agent has looked while this pod ran, and
    has reported exactly as many GPUs as it asks for. Example: `train-0` was deleted and made anew; until the agent has looked
    again, the GPUs under that name are those of the old `train-0`.

    Args:
        pods: Those that are bound to the node.
        claims: Those that are not proven dead.
        holders: GPU → whom the agent saw with it.
        evidence: Says whom a report is about.

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
        if len(named) == pod.gpus and all(evidence.has_replaced(pod, claim) for claim in namesakes.values()):
            namesakes = {}
        seen = {gpu: holders[gpu].container for gpu in named if gpu not in namesakes}
        is_about_it = evidence.is_about(pod, frozenset(seen))
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
