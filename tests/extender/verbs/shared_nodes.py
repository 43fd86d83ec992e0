"""Random nodes whose GPUs some pods have and others share, and somebody more important who has no place there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import claim, cluster, gpus, pod
from tests.extender.shares import SHARE_GIB, share, sharer, sharing_node

UUIDS = gpus("n1", *range(8))
ASKER = "vip"
IMPORTANCE = 100


@dataclass(frozen=True)
class Guest:
    """A pod on the node, as it was made up."""

    name: str
    gpu: int
    gib: int | None
    """Of its share; `None`: it has the GPU as a whole."""
    sharing_class: str
    priority: int

    def pod(self) -> Pod:
        """Return it as Kubernetes would."""
        gpu = UUIDS[self.gpu]
        if self.gib is None:
            return pod(self.name, 1, on="n1", placed=(gpu,), phase="Running", terminated=False, priority=self.priority)
        return sharer(
            self.name, self.gib, on="n1", gpu=gpu, sharing_class=self.sharing_class, phase="Running", terminated=False,
            priority=self.priority,
        )  # fmt: skip


@dataclass(frozen=True)
class SharedNode:
    """One node of two to four GPUs that count, who is on it, and who asks."""

    size: int
    guests: tuple[Guest, ...]
    asked_gpus: int
    """0: the pod asks for a share."""
    asked_gib: int
    asked_class: str
    beyond_gib: int
    """Used of the first GPU beyond shares."""
    max_gpus: int

    @classmethod
    def random(cls, random: Random) -> SharedNode:
        """Make one up: seven pods at most."""
        size, guests = random.randrange(2, 5), list[Guest]()
        for gpu in range(size):
            left, of_class = SHARE_GIB, random.choice(("", "dev", "prod"))
            while len(guests) < 7 and left and random.random() < 0.75:
                gib = None if left == SHARE_GIB and random.random() < 0.3 else random.randrange(1, left + 1)
                priority = random.choice((-10, 0, 0, 5, 50, IMPORTANCE))
                guests.append(Guest(f"p{len(guests)}", gpu, gib, of_class, priority))
                left = 0 if gib is None else left - gib
        return cls(
            size, tuple(guests),
            asked_gpus=random.choice((0, 0, 0, 1, 2)), asked_gib=random.randrange(1, SHARE_GIB + 1),
            asked_class=random.choice(("", "dev", "prod")), beyond_gib=random.choice((0, 0, 4)),
            max_gpus=random.choice((1, 2, 8)),
        )  # fmt: skip

    @property
    def asker(self) -> Pod:
        """The pod that has no place."""
        if self.asked_gpus:
            return pod(ASKER, self.asked_gpus, priority=IMPORTANCE)
        return sharer(ASKER, self.asked_gib, sharing_class=self.asked_class, priority=IMPORTANCE)

    @property
    def evictable(self) -> tuple[Guest, ...]:
        """Those who matter less."""
        return tuple(guest for guest in self.guests if guest.priority < IMPORTANCE)

    def args(self) -> ExtenderPreemptionArgs:
        """Return a call in which everybody is offered who may go."""
        offered = MetaVictims([MetaPod(guest.name) for guest in self.evictable], 0)
        return ExtenderPreemptionArgs(self.asker, None, {"n1": offered})

    def state(self, gone: Collection[str] = ()) -> ClusterState:
        """Return the cluster, as it would be if some had never been."""
        there = [guest for guest in self.guests if guest.name not in gone]
        return cluster(self._node(there), *(guest.pod() for guest in there))

    def _node(self, there: Sequence[Guest]) -> Node:
        claims = [
            claim(UUIDS[each.gpu], each.name)
            if each.gib is None
            else share(UUIDS[each.gpu], each.name, each.gib, each.sharing_class)
            for each in there
        ]
        seen: dict[str, dict[str, int]] = {}
        for each in there:
            if each.gib is not None:
                seen.setdefault(UUIDS[each.gpu], {})[each.name] = each.gib
        whole = {UUIDS[each.gpu]: each.name for each in there if each.gib is None}
        others = [claim(uuid, "somebody-we-never-heard-of") for uuid in UUIDS[self.size :]]
        return sharing_node(
            *claims, *others, seen=seen, whole=whole, beyond={UUIDS[0]: self.beyond_gib}, max_gpus=self.max_gpus
        )
