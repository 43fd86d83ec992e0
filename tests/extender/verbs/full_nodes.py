"""Random nodes that are full, somebody more important who has no place there, and what kube-scheduler offers for the pod."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import budget, claim, cluster, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import Claim
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

MACHINES = ("a100-pcie-8-pairs", "dgx-1v", "dgx-a100", "l40s-8", "ac922-6", "rtx-a6000-4-pairs", "dgx-1v-dead-link")
ASKER = "vip"
IMPORTANCE = 100
ELSEWHERE = "n2"
WEB = "web"
"""A pod without GPUs that goes in any case."""


@dataclass(frozen=True)
class Guest:
    """A pod on the node, as it was made up."""

    name: str
    gpus: tuple[int, ...]
    priority: int
    cpu: int
    app: str | None
    """Its one label."""
    group: str | None
    has_ended: bool = False

    def pod(self, on: str, placed: tuple[str, ...]) -> Pod:
        """Return it as Kubernetes would."""
        phase = "Failed" if self.has_ended else "Running"
        labels = {"app": self.app} if self.app else None
        return pod(
            self.name, len(placed), on=on, placed=placed, phase=phase, terminated=False, priority=self.priority,
            cpu=str(self.cpu), labels=labels, wants={keys.GROUP: self.group} if self.group else {},
        )  # fmt: skip


@dataclass(frozen=True)
class FullNode:
    """One node, who is on it, and who asks."""

    machine: str
    guests: tuple[Guest, ...]
    elsewhere: tuple[Guest, ...]
    """Members of the same groups on another node."""
    budgets: tuple[tuple[str, str, int, tuple[str, ...]], ...]
    """Name, value of the label `app`, evictions that are allowed, and names of pods that are counted already."""
    knows_budgets: bool
    asked: int
    wants: dict[str, str]
    cpu: int
    offered: tuple[str, ...]
    sick: tuple[int, ...] = ()
    plugin_chooses: bool = False

    @property
    def uuids(self) -> tuple[str, ...]:
        """The node's GPUs."""
        return _uuids("n1", self.machine)

    @classmethod
    def random(cls, random: Random) -> FullNode:
        """Make one up: at most eight GPUs, most of them held."""
        name = random.choice(MACHINES)
        size = len(machine(name))
        left = random.sample(range(size), size)
        guests: list[Guest] = []
        while left and not (len(guests) > 2 and random.random() < 0.05):
            held = tuple(sorted(left.pop() for _ in range(min(len(left), random.choice((1, 1, 1, 1, 2, 2, 3, 4))))))
            guests.append(_guest(random, f"p{len(guests)}", held))
        budgets = tuple(
            (
                f"b{app}",
                app,
                random.choice((0, 0, 1, 1, 2)),
                tuple(random.sample(["p0", "p1"], random.choice((0, 0, 1)))),
            )
            for app in random.sample("abc", random.choice((0, 1, 2)))
        )
        wants = random.choice(
            ({}, {keys.REQUIRED_AFFINITY: "nvlink"}, {keys.MIN_BANDWIDTH: "30"}, {keys.COMMUNICATION: "none"})
        )
        made = cls(
            machine=name,
            guests=tuple(guests),
            elsewhere=tuple(_guest(random, f"e{at}", (at,)) for at in range(random.choice((0, 0, 1, 3)))),
            budgets=budgets,
            knows_budgets=random.random() < 0.75,
            asked=min(size, random.choice((1, 1, 2, 2, 2, 3, 4, 4, 8))),
            wants=wants,
            cpu=random.choice((0, 1, 2, 4)),
            offered=(),
            sick=tuple(random.sample(range(size), random.choice((0, 0, 0, 1)))),
            plugin_chooses=random.random() < 0.2,
        )
        return made._offering(random)

    def _offering(self, random: Random) -> FullNode:
        """Offer what frees as many GPUs as are lacking, as kube-scheduler counts: it spares the most important ones first."""
        busy = {gpu for guest in self.guests for gpu in guest.gpus}
        room = len(machine(self.machine)) - len(busy)
        chosen = list(self.evictable)
        for guest in sorted(self.evictable, key=lambda guest: (-guest.priority, random.random())):
            fewer = [other for other in chosen if other is not guest]
            if room + sum(len(other.gpus) for other in fewer) >= self.asked:
                chosen = fewer
        names = [guest.name for guest in sorted(chosen, key=lambda guest: (-guest.priority, guest.name))]
        if random.random() < 0.15:
            names.insert(random.randrange(len(names) + 1), WEB)
        names = names or [WEB]
        return replace(self, offered=tuple(names))

    @property
    def evictable(self) -> tuple[Guest, ...]:
        """Those who matter less and have not ended."""
        return tuple(guest for guest in self.guests if guest.priority < IMPORTANCE and not guest.has_ended)

    @property
    def asker(self) -> Pod:
        """The pod that has no place."""
        return pod(ASKER, self.asked, wants=self.wants, priority=IMPORTANCE, cpu=str(self.cpu))

    def args(self) -> ExtenderPreemptionArgs:
        """Return the call."""
        offered = MetaVictims([MetaPod(name) for name in self.offered], 0)
        return ExtenderPreemptionArgs(self.asker, None, {"n1": offered})

    def state(self) -> ClusterState:
        """Return the cluster."""
        there = self._others() + self._there(self.guests)
        return cluster(*there, budgets=self._budgets() if self.knows_budgets else None)

    def state_without(self, gone: Collection[str]) -> ClusterState:
        """Return the node alone, as it would be if some of its pods had never been."""
        return cluster(*self._there([guest for guest in self.guests if guest.name not in gone]))

    def _there(self, guests: Sequence[Guest]) -> list[Node | Pod]:
        placed = {guest.name: tuple(self.uuids[at] for at in guest.gpus) for guest in guests}
        claims = tuple(claim(gpu, name) for name, held in placed.items() for gpu in held)
        return [self._node(claims), *(guest.pod("n1", placed[guest.name]) for guest in guests)]

    def _others(self) -> list[Node | Pod]:
        held = dict(zip(self.elsewhere, _uuids(ELSEWHERE, "dgx-a100")[: len(self.elsewhere)], strict=True))
        claims = tuple(claim(gpu, guest.name) for guest, gpu in held.items())
        return [node(ELSEWHERE, claims=claims), *(guest.pod(ELSEWHERE, (gpu,)) for guest, gpu in held.items())]

    def _node(self, claims: tuple[Claim, ...]) -> Node:
        sick = tuple(GpuStatus(self.uuids[at], healthy=False) for at in self.sick)
        plugin = DevicePluginStatus(Mode.OBSERVE if self.plugin_chooses else Mode.ENFORCE, ready=True)
        return node(
            "n1", self.machine, claims=claims, status=encode_status(NodeGpuStatus(1, sick, device_plugin=plugin))
        )

    def _budgets(self) -> list[PodDisruptionBudget]:
        return [budget(name, allowed, *counted, app=app) for name, app, allowed, counted in self.budgets]


@cache
def _uuids(name: str, machine_name: str) -> tuple[str, ...]:
    return gpus(name, *range(len(machine(machine_name))), machine_name=machine_name)


def _guest(random: Random, name: str, held: tuple[int, ...]) -> Guest:
    return Guest(
        name,
        held,
        priority=random.choice((-(2**31), -10, 0, 0, 0, 5, 5, 50, IMPORTANCE, 2**31 - 1)),
        cpu=random.choice((0, 0, 1, 2)),
        app=random.choice((*"abc" * 3, None, None)),
        group=random.choice((None, None, "g", "h")),
        has_ended=random.random() < 0.04,
    )
