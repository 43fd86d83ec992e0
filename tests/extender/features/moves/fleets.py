"""Random fragmented fleets: enough GPUs are free for the pods that wait, and on no node as many as one of them needs.

In fleets of parts most GPUs are shared or cut into slices, and pods wait for whole GPUs, shares and slices.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import ClassVar, Final

from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.features.moves.feature import Moves
from extender.features.moves.search import worthwhile_plan
from extender.kit.clock import Instant
from extender.kubernetes.evictor import EVICTED
from extender.planning.units import PendingPod, Unit
from extender.verbs.pod_context import PodContext
from tests.extender.features.moves.sharing_agents import SHARE_GIB, SLICES, WHOLE_GPUS, SharingAgents, gib, slices
from tests.extender.features.moves.site import CHEAP, MoveSite, Wanted
from topology.annotations import keys
from topology.effort import finish

NODES: Final = 12
GPUS_OF_NODE: Final = 8
WAITING_GPUS: Final = 4
_EXPENSIVE: Final = {keys.MOVABLE: "true", keys.RESTART_COST: "10h"}
_FORBIDDEN: Final = {**CHEAP, "karpenter.sh/do-not-disrupt": "true"}
_KINDS: Final[tuple[dict[str, str], ...]] = (CHEAP, CHEAP, CHEAP, CHEAP, _EXPENSIVE, _FORBIDDEN, {})


class FragmentedFleet:
    """Twelve nodes full of small pods, and one to three larger ones that wait, or a gang with so many members.

    In every second fleet most owners with several pods restart them together, and half of these do so at once. Few others may
    move there.
    """

    nodes: ClassVar[int] = NODES

    def __init__(self, seed: int, members: int = 0) -> None:
        self.random, self.is_gang = Random(f"fleet {seed}"), bool(members)
        self._restarts = Random(f"restarts {seed}")
        self._has_wholes = self._restarts.random() < 0.5
        self._number = 0
        """Of the next ReplicaSet."""
        self.site = MoveSite(self.nodes, self.random, agents=self._agents())
        with self.site.world.unchecked():  # that takes as long as all that follows
            self._fill()
        self.site.world.check()
        self.waiting = [f"w{number}" for number in range(members or self.random.randint(1, 3))]
        gang = {keys.GROUP: "gang", keys.GROUP_SIZE: str(members), keys.GANG: "required"} if members else {}
        wanted = self._wanted()
        for name in self.waiting:
            self.site.single(name, wanted, **gang)
            wanted = wanted if members else self._wanted()

    def _agents(self) -> SharingAgents | None:
        return None

    def _wanted(self) -> Wanted:
        """Return what the next pod waits for."""
        return WAITING_GPUS

    def _fill(self) -> None:
        """Every third fleet has pods of one GPU only, and at most two free ones on a node: two pods have to move."""
        is_fine = self.random.random() < 1 / 3
        most_free, sizes = (2, (1,)) if is_fine else (WAITING_GPUS - 1, (1, 1, 2, 2, 3))
        left = {name: GPUS_OF_NODE - self.random.randint(1, most_free) for name in self.site.nodes}
        while any(left.values()):
            gpus = self.random.choice(sizes)
            there = [name for name, count in left.items() if count >= gpus]
            if not there:
                continue
            nodes = self.random.sample(there, min(len(there), self.random.choice((1, 1, 2, 3))))
            self._add(gpus, *nodes)
            for name in nodes:
                left[name] -= gpus

    def _add(self, wanted: Wanted, *nodes: str, device: int | None = None, **annotations: str) -> None:
        """Create an owner with a pod on each of these nodes."""
        kind, budget, is_rare = (
            self.random.choice(_KINDS),
            self.random.random() < 0.4,
            self._restarts.random() < 0.8,
        )
        is_whole = self._has_wholes and len(nodes) > 1 and is_rare
        stays = self._has_wholes and len(nodes) == 1 and is_rare
        self.site.replica_set(
            f"rs{self._number}",
            wanted,
            *nodes,
            annotations={**({} if stays else kind), **annotations},
            budget=budget and not is_whole,
            is_whole=is_whole,
            restarts=is_whole and self._restarts.random() < 0.5,
            priority=self.random.choice((0, 0, 0, 0, 10)),
            device=device,
        )
        self._number += 1

    async def play(self, most_ticks: int = 150, deaths: int = 0) -> None:
        """Let time pass until no plan helps any more; the planner dies so often in the middle of plans."""
        for _ in range(most_ticks):
            is_mid_plan = bool(self.site.moves.plans) and self.site.deaths < deaths
            await self.site.tick(dies_after=self.random.randint(0, 6) if is_mid_plan else None)
            if not self.site.moves.plans and not self.site.under_way() and not self.helped():
                return

    def helped(self) -> list[str]:
        """Return the pods that wait and for which a plan exists."""
        moves, names = self.site.moves, list[str]()
        for name in self.waiting:
            pod = moves.state.pods.find("default", name)
            if pod and not pod.node:
                now = moves.clock()
                unit = moves.queue.gang_of(pod.uid) or _alone(moves, pod, now)
                nodes = moves.nodes_as_planned(now, unit.key)
                if finish(worthwhile_plan(moves.state, nodes, unit, moves.settings, moves.limits, moves.jobs, now)):
                    names.append(name)
        return names

    def in_vain(self) -> list[str]:
        """Return the pods for which others were evicted, and that are not bound."""
        notes = (event.note for event in self.site.recorder.events if event.reason == EVICTED)
        served = {match[1] for note in notes if (match := re.search(r"room for default/(\S+),", note))}
        names = self.waiting if self.is_gang and served else served
        return sorted(name for name in names if not self.site.node_of(name))

    def incomplete(self) -> dict[str, int]:
        """Return ReplicaSet → how many of its pods have no node."""
        bound = Counter({name: len(nodes) for name, nodes in self.site.owners().items()})
        return {name: count for name, wanted in self.site.wanted().items() if (count := wanted - bound[name])}

    def misplaced(self) -> list[str]:
        """Return the owners of which no pod has exactly what was promised when a pod of theirs was evicted last.

        Pods that restart together may find room elsewhere while the GPUs that they come back to are not free yet.
        """
        promised = dict[str, tuple[str, dict[str, int]]]()
        for room in self.site.moves._settling:
            for moved, place in room.plan.moves:
                if moved.uid in room.evicted and not moved.restart_group:
                    devices = self.site.replica.state.views[place.node].devices
                    gib = Counter[str]()
                    for at, amount, _ in place.held.shares:
                        gib[devices[at]] += amount
                    names = {devices[at]: gib[devices[at]] for at in place.placement.gpus}
                    promised[owner_of(place.pod) or ""] = place.node, names
        return sorted(owner for owner, place in promised.items() if place not in self.site.places_of(owner))


class FleetOfParts(FragmentedFleet):
    """Six nodes. Each GPU has one to three shares of one class, or a pod of its own, or is one of a few that are free."""

    nodes = 6

    def _agents(self) -> SharingAgents | None:
        return SharingAgents(Random(f"agents {self.random.random()}"), chance_to_vanish=0.3)

    def _wanted(self) -> Wanted:
        return self.random.choice((1, 2, 2, gib(60), gib(70), slices(3)))

    def _fill(self) -> None:
        for node in self.site.nodes:
            free = self.random.sample(range(WHOLE_GPUS), self.random.choice((0, 0, 1)))
            for device in set(range(WHOLE_GPUS)).difference(free):
                if self.random.random() < 0.3:
                    self._add(1, node, device=device)
                else:
                    self._share(node, device)
            left = SLICES - self.random.choice((1, 2))
            while left:
                count = min(left, self.random.choice((1, 1, 2)))
                self._add(slices(count), node)
                left -= count
        for _ in range(3):
            if len(there := [node for node in self.site.nodes if self._has_room(node, 10)]) > 1:
                self._add(gib(10), *self.random.sample(there, 2))

    def _has_room(self, node: str, size: int) -> bool:
        self.site.replica.catch_up()
        shares = self.site.replica.state.views[node].shape.shares
        return any(shares.room_gib(device, "") >= size for device in range(WHOLE_GPUS))

    def _share(self, node: str, device: int) -> None:
        left, wants = SHARE_GIB, {keys.SHARING_CLASS: "dev"} if self.random.random() < 0.1 else {}
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3))):
            if (size := self.random.choice((10, 20, 30, 40))) <= left:
                self._add(gib(size), node, device=device, **wants)
                left -= size


def _alone(moves: Moves, pod: GpuPod, now: Instant) -> Unit:
    return Unit.alone(PendingPod(pod.pod, PodContext.read(moves.state, pod.pod, now).request))
