"""PodGroups of kube-scheduler whose members it tries one after the other and binds together, or not at all.

kube-scheduler (1.36 and later, KEP-4671) asks filter about each member and assumes the earlier ones in its own memory. It
binds the first member only when all have been tried. It says nothing of this to an extender, so it is remembered here:

- A trial is one walk through the members. A member that is asked about a second time begins the next trial. The group is
  then tried again, or on other nodes, or as if pods of lower priority were gone. A bind ends the trial as well.
- In a trial each member leaves to the earlier ones what they were offered, always. Each is offered one node, so that it is known
  which.
- The bind of the first member decides for its trial: if one member's GPUs are not free any more, none is bound.
- kube-scheduler hears of each refused bind by itself. Until it has heard of all, it counts the others as placed, and may try
  one member again without them. So that member has to wait for them.

A group whose trials are forgotten, by a restart or for want of room, is bound pod by pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Pod
from extender.kit.fair_table import FairTable
from topology.request.gpu_request import GpuRequest

GangKey = tuple[str, str]
"""Namespace and name of a PodGroup."""
LIMIT: Final = 256
"""PodGroups, shared between namespaces."""
MOST_OFFERS: Final = 1024
"""Of one PodGroup in all its trials but the last; the oldest trials are forgotten first."""


@dataclass(slots=True)
class MemberOffer:
    """What one member was offered in one trial."""

    hold: Hold
    request: GpuRequest
    may_bind: bool | None = None
    """`None`: no member of the trial has come to be bound yet."""


Trial = dict[str, MemberOffer | None]
"""By UID, in the order in which they were asked about; `None`: no node would do."""


@dataclass(slots=True)
class _Refused:
    until: float
    """Monotonic seconds after which nobody waits for this member."""
    has_come: bool = False
    """Whether its bind has come."""


@dataclass(slots=True)
class _Gang:
    trials: list[Trial] = field(default_factory=list)
    """The oldest first."""
    is_over: bool = True
    """Whether the next question begins a trial, whoever it is about."""
    refused: dict[str, _Refused] = field(default_factory=dict)
    """Members whose trial was refused, and that filter has not been asked about since, by UID."""

    @property
    def current(self) -> Trial:
        return self.trials[-1] if self.trials and not self.is_over else {}

    def begin(self) -> None:
        """Begin a trial, and forget the oldest ones that there is no room for."""
        offers = sum(map(len, self.trials))
        while self.trials and offers > MOST_OFFERS:
            offers -= len(self.trials.pop(0))
        self.trials.append({})
        self.is_over = False

    def forget(self, uid: str) -> None:
        """Forget a member, and the earlier trials that nothing is left of: a tenant can create and delete pods for ever."""
        self.refused.pop(uid, None)
        for trial in self.trials:
            trial.pop(uid, None)
        self.trials[:-1] = filter(None, self.trials[:-1])


class Gangs:
    """The trials of each PodGroup."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._gangs = FairTable[GangKey, _Gang](limit)
        self._key_of: dict[str, GangKey] = {}

    def ask(self, pod: Pod) -> Collection[str]:
        """Take note that filter is asked about a member; returns the UIDs whose offers a new trial makes void."""
        uid, key = pod.metadata.uid, gang_of(pod)
        if key is None:
            return ()
        gang = self._gangs.get(key)
        if gang is None:
            gang = _Gang()
            forgotten = self._gangs.put(key, key[0], gang)
            if forgotten is not None:
                self._forget_members(forgotten)
        trial, void = gang.current, tuple[str, ...]()
        # It is asked about twice in one trial where the nominated node, which kube-scheduler tries first, would not do.
        is_again = bool(trial) and next(reversed(trial)) == uid and trial[uid] is None
        if gang.is_over or (uid in trial and not is_again):
            void = tuple(gang.trials[-1]) if gang.trials else ()
            gang.begin()
        gang.current[uid] = None
        gang.refused.pop(uid, None)
        self._key_of[uid] = key
        return void

    def offer(self, uid: str, hold: Hold, request: GpuRequest) -> None:
        """Take note of what a member is offered in this trial."""
        gang = self._gang(uid)
        if gang is not None and uid in gang.current:
            gang.current[uid] = MemberOffer(hold, request)

    def beside(self, uid: str) -> Collection[str]:
        """Return the UIDs of the other members of the current trial."""
        gang = self._gang(uid)
        return gang.current.keys() - {uid} if gang is not None else ()

    def offered(self, uid: str, node: str) -> MemberOffer | None:
        """Return the last offer of a node to a member."""
        gang = self._gang(uid)
        trial = _trial_of(gang, uid, node) if gang is not None else None
        return trial[uid] if trial else None

    def together(self, uid: str, node: str) -> Mapping[str, MemberOffer]:
        """Return the offers of the trial in which a member was offered this node last, by UID, its own included."""
        gang = self._gang(uid)
        trial = _trial_of(gang, uid, node) if gang is not None else None
        return {member: offer for member, offer in (trial or {}).items() if offer is not None}

    def newest(self, uid: str, node: str) -> Mapping[str, MemberOffer]:
        """Return the newest offer of each member since the trial before that one.

        Where kube-scheduler skips members, it cannot be told which of them a trial began with. Two offers of one GPU tell it.
        """
        gang = self._gang(uid)
        trial = _trial_of(gang, uid, node) if gang is not None else None
        if gang is None or trial is None:
            return {}
        first = max(0, next(at for at, earlier in enumerate(gang.trials) if earlier is trial) - 1)
        later = (members.items() for members in gang.trials[first:])
        return {member: offer for members in later for member, offer in members if offer is not None}

    def decide(self, uid: str, node: str, *, may_bind: bool) -> None:
        """Let the members of that trial be bound, or none of them; the trial is over."""
        gang = self._gang(uid)
        if gang is not None:
            gang.is_over = True
            for member, offer in self.together(uid, node).items():
                offer.may_bind = may_bind
                if not may_bind:
                    gang.refused[member] = _Refused(offer.hold.expires)

    def refuse(self, uid: str) -> None:
        """Take note that the bind of a member has come, and is refused."""
        gang = self._gang(uid)
        if gang is not None and uid in gang.refused:
            gang.refused[uid].has_come = True

    def end_trial(self, uid: str) -> None:
        """Let the next question begin a trial."""
        gang = self._gang(uid)
        if gang is not None:
            gang.is_over = True

    def others_are_refused(self, uid: str, now: float) -> bool:
        """Whether binds of other members have still to come, and will be refused; linear in the members."""
        return any(not other.has_come and now < other.until for other in self._refused_before(uid))

    def others_are_to_be_tried(self, uid: str, now: float) -> bool:
        """Whether other members were refused, and filter has not been asked about them since; linear in the members."""
        return any(now < other.until for other in self._refused_before(uid))

    def forget(self, uid: str) -> None:
        """Forget a member that is bound, or gone."""
        gang = self._gang(uid)
        if gang is None:
            return
        key = self._key_of.pop(uid)
        gang.forget(uid)
        if not any(gang.trials):
            self._gangs.pop(key)

    def trials(self, namespace: str, name: str) -> list[int]:
        """Return how many members each remembered trial of a PodGroup has, those that no node would take included."""
        gang = self._gangs.get((namespace, name))
        return [*map(len, gang.trials)] if gang is not None else []

    def __len__(self) -> int:
        return len(self._gangs)

    def _refused_before(self, uid: str) -> Iterator[_Refused]:
        gang = self._gang(uid)
        return (other for member, other in gang.refused.items() if member != uid) if gang is not None else iter(())

    def _gang(self, uid: str) -> _Gang | None:
        key = self._key_of.get(uid)
        return None if key is None else self._gangs.get(key)

    def _forget_members(self, gang: _Gang) -> None:
        for trial in gang.trials:
            for uid in trial:
                self._key_of.pop(uid, None)


def gang_of(pod: Pod) -> GangKey | None:
    """Return the PodGroup that kube-scheduler tries a pod with."""
    group = pod.spec.scheduling_group
    name = group.pod_group_name if group else None
    return (pod.metadata.namespace, name) if name else None


def _trial_of(gang: _Gang, uid: str, node: str) -> Trial | None:
    for trial in reversed(gang.trials):
        offer = trial.get(uid)
        if offer is not None and offer.hold.node == node:
            return trial
    return None
