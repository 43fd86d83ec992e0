"""Which GPUs each pod of a node has, or shares of them: what its record plans, what the ledger says, what the node's agent saw.

The agent's report is the fact, and a ledger follows it. But a report knows pods by name only, and may be of a look before the
pod began, when a namesake was there. So it overrules record and ledger only when it accounts for the whole pod and is
certainly about this one. That is when there was no other pod, or enough reports have come since (`FirstReports`). The
GPUs that it names are taken anyway.

A record may have been copied from another pod, and a machine may have got other GPUs. A pod whose record and claims name none of
its node's GPUs holds GPUs that nobody can name, until a report accounts for it.

A pod that wants the planned GPUs or none is not followed before it runs: its node holds it back till it has these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from extender.cluster.objects.gpu_pods import GpuPod, claims_for, sharing_class_of
from extender.cluster.objects.parts import (
    Parts,
    are_shares,
    gib_of,
    has_one_gpu_each,
    of_claims,
    of_sharers,
    together,
    whole,
)
from extender.cluster.ownership.evidence import Evidence
from topology.annotations.records import Claim, Holder, Sharer


@dataclass(frozen=True, slots=True)
class Holding:
    """What one live pod has of GPUs, as far as it is known."""

    pod: GpuPod
    gpus: Parts
    claimed: Parts
    """The same, as the ledger says it."""
    seen: bool = False
    """The agent saw all of it."""
    hidden: int | None = 0
    """How many more GPUs it holds, or GiB of shares, that nobody can name; `None`: nobody knows how many."""
    sharing_class: str = ""
    """Of its shares: as they are claimed, else as the pod says it."""
    is_elsewhere: bool = False
    """Neither its record nor its claims name a GPU of its node, though they name some."""

    @property
    def is_settled(self) -> bool:
        """Whether the ledger says what is known."""
        return self.gpus == self.claimed

    @property
    def outdates_record(self) -> bool:
        """Whether the pod's record does not name the GPUs that the ledger and the agent agree on.

        A pod without a record was bound by others. If they kept to a plan of ours, it has claims, and gets a record at once.
        """
        can_be_written = not self.pod.shares or has_one_gpu_each(self.gpus)
        is_sure = self.seen or (self.pod.placed is None and self.has_all_claims)
        return is_sure and self.is_settled and can_be_written and not self.pod.is_placed_on(self.gpus)

    @property
    def has_all_claims(self) -> bool:
        """Whether as much is claimed for the pod as it asks for."""
        if self.pod.shares:
            return gib_of(self.claimed) >= sum(self.pod.shares)
        return len(self.claimed) >= (self.pod.gpus or 0)

    def claims(self) -> tuple[Claim, ...]:
        """Return the claims that say so, for the pod in its present version."""
        return claims_for(self.pod.pod, self.gpus, self.sharing_class)


def holdings_of(
    pods: Iterable[GpuPod],
    claims: Iterable[Claim],
    holders: Mapping[str, Holder],
    evidence: Evidence,
    sharers: Mapping[str, tuple[Sharer, ...]] = {},
    is_here: Callable[[str], bool] = lambda _: True,
    *,
    has_ledger: bool = False,
) -> tuple[Holding, ...]:
    """Return what each pod that has not stopped holds, by UID; linear in pods, claims, holders and sharers.

    A report knows names only. A GPU may be reported under a pod's name, but claimed for an earlier pod of that name. Then
    it is the earlier one's, whose containers may still run. It counts as this pod's once the agent has looked while this
    pod ran, and has reported exactly as many GPUs as it asks for. Example: `train-0` was deleted and made anew; until the
    agent has looked again, the GPUs under that name are those of the old `train-0`.

    Args:
        pods: Those that are bound to the node.
        claims: Those that are not proven dead.
        holders: GPU → whom the agent saw with it.
        evidence: Says whom a report is about.
        sharers: GPU → all whom the agent saw with parts of it.
        is_here: Whether a GPU or slice is one of the node's.
        has_ledger: Whether the node's ledger can be read. A record that came with a plan then needs its claims: they may have
            been dropped since, when a ledger was rebuilt.

    """
    claims_on: dict[str, list[Claim]] = {}
    by_uid: dict[str, list[Claim]] = {}
    for claim in claims:
        claims_on.setdefault(claim.gpu, []).append(claim)
        by_uid.setdefault(claim.uid, []).append(claim)
    whole_ones, in_parts = _by_name(holders), _by_name_in_parts(sharers)
    holdings = []
    for pod in sorted((pod for pod in pods if not pod.stopped), key=lambda pod: pod.uid):
        named = in_parts.get(pod.key, {}) if pod.shares else whole_ones.get(pod.key, {})
        namesakes = [claim for gpu in named for claim in claims_on.get(gpu, ()) if _is_namesakes(claim, pod)]
        is_all = namesakes and _is_all_of(pod, _with_init_share(pod, named))
        if is_all and all(evidence.has_replaced(pod, claim) for claim in namesakes):
            namesakes = []
        seen = _with_init_share(pod, _minus_namesakes(named, namesakes) if namesakes else named)
        own = by_uid.get(pod.uid, ())
        claimed = of_claims(own) if own else {}
        is_about_it = evidence.is_about(pod, frozenset(seen))
        sharing_class = own[0].sharing_class if own else sharing_class_of(pod.pod) if pod.shares else ""
        believed = _without_lapsed_plan(pod, claimed) if has_ledger else pod
        holdings.append(_holding(believed, claimed, seen, sharing_class, is_about_it=is_about_it, is_here=is_here))
    return tuple(holdings)


def _without_lapsed_plan(pod: GpuPod, claimed: Parts) -> GpuPod:
    has_lapsed = pod.placed and not pod.is_placed_on(claimed) and pod.is_placed_by_plan
    return replace(pod, placed=None) if has_lapsed else pod


def _by_name(holders: Mapping[str, Holder]) -> dict[tuple[str, str], Parts]:
    gpus_of: dict[tuple[str, str], dict[str, str]] = {}
    for gpu, who in holders.items():
        gpus_of.setdefault((who.namespace, who.name), {})[gpu] = who.container
    return {key: whole(gpus) for key, gpus in gpus_of.items()}


def _by_name_in_parts(sharers: Mapping[str, tuple[Sharer, ...]]) -> dict[tuple[str, str], Parts]:
    sharers_of: dict[tuple[str, str], list[tuple[str, Sharer]]] = {}
    for gpu, who in ((gpu, who) for gpu, several in sharers.items() for who in several):
        sharers_of.setdefault((who.namespace, who.name), []).append((gpu, who))
    return {key: of_sharers(seen) for key, seen in sharers_of.items()}


def _is_namesakes(claim: Claim, pod: GpuPod) -> bool:
    return claim.uid != pod.uid and (claim.namespace, claim.name) == pod.key


def _minus_namesakes(named: Parts, namesakes: Iterable[Claim]) -> Parts:
    """Return what is left to the pod of what is reported under its name: of a share its container tells whose it is."""
    theirs = {(claim.gpu, claim.container if claim.memory_gib is not None else None) for claim in namesakes}
    left = {
        gpu: tuple(part for part in parts if (gpu, part.container) not in theirs)
        for gpu, parts in named.items()
        if (gpu, None) not in theirs
    }
    return {gpu: parts for gpu, parts in left.items() if parts}


def _with_init_share(pod: GpuPod, seen: Parts) -> Parts:
    """Return what was seen with what no kubelet lists: an init container's share is on the GPU of those after it."""
    if pod.init_share is None or len(seen) != 1 or gib_of(seen) != pod.listed_gib:
        return seen
    return together(seen, dict.fromkeys(seen, (pod.init_share,)))


def _is_all_of(pod: GpuPod, parts: Parts) -> bool:
    """Whether this is all that the pod asks for."""
    if pod.shares:
        return are_shares(parts) and gib_of(parts) == sum(pod.shares)
    return len(parts) == pod.gpus


def _holding(
    pod: GpuPod,
    claimed: Parts,
    seen: Parts,
    sharing_class: str,
    *,
    is_about_it: bool,
    is_here: Callable[[str], bool],
) -> Holding:
    if seen == claimed:
        seen = claimed  # the same for nearly all pods of a large cluster: one dictionary is enough
    planned = claimed if pod.is_placed_on(claimed) else pod.placed or {}
    holds_back = bool(planned) and seen != claimed and pod.waits_for_its_own
    is_all = _is_all_of(pod, seen) and (is_about_it or seen == claimed or not planned) and not holds_back
    gpus = seen if is_all else planned or (together(claimed, seen) if seen else claimed)
    written = (*planned, *claimed)
    is_elsewhere = bool(written) and not any(map(is_here, written))
    return Holding(
        pod,
        gpus,
        claimed,
        seen=is_all and (is_about_it or not planned),
        hidden=_hidden(pod, {}, {}, seen) if is_elsewhere else _hidden(pod, planned, claimed, seen),
        sharing_class=sharing_class,
        is_elsewhere=is_elsewhere,
    )


def _hidden(pod: GpuPod, planned: Parts, claimed: Parts, seen: Parts) -> int | None:
    if pod.gpus is None:
        return None
    if pod.claimed is not None:
        return 0  # its ResourceClaims name all that it has
    if pod.shares:
        return max(0, sum(pod.shares) - gib_of(together(planned, claimed, seen)))
    return max(0, pod.gpus - len(planned.keys() | claimed.keys() | seen.keys()))
