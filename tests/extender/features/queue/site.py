"""A small cluster whose queue is driven round by round against the API double, by a planner that may die at any write.

A scheduler binds every open pod to the node that it was sent to, with the real bind. Time passes only between rounds.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from benchmarks.simulated.double.resources import NODES, PODS, Object
from extender.binding.driver import Driver
from extender.binding.intents import Intent, Reply
from extender.binding.outcome import Bound
from extender.binding.release import release
from extender.features.queue.feature import Queue
from extender.features.queue.settings import QueueSettings
from extender.kit.keyed_locks import KeyedLocks
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from tests.extender.world import Crash, Replica, World, drive
from topology.annotations import keys

RACK = "topology.kubernetes.io/rack"
HALF_SECONDS = 60.0
"""For which a gang may be bound in parts."""


class Site:
    """Racks of nodes, with two GPUs each unless said otherwise, and one planner."""

    def __init__(self, racks: int, nodes: int, random: Random, machine_name: str = "rtx-3090-2") -> None:
        names = {f"r{rack}-{number}": f"r{rack}" for rack in range(racks) for number in range(nodes)}
        self._nodes = tuple(names)
        self.world = World(*names, machine_name=machine_name)
        for name, rack in names.items():
            self.world.patch(NODES, name, {"metadata": {"labels": {RACK: rack}}})
        self.random = random
        self.seconds = 0.0
        self.deaths = 0
        self._writes_left: int | None = None
        self._first_bound: dict[str, float] = {}
        self.replica, self.queue = self._started()
        self.world.store.subscribe(self._check_claims)

    def create(self, gang: str, gpus: list[int], *, is_required: bool = False, priority: int = 0) -> None:
        """Create all pods of a gang; a gang of one is a pod without a group."""
        said = {keys.GROUP: gang, keys.GROUP_SIZE: str(len(gpus)), keys.GANG: "required"}
        said |= {keys.GROUP_AFFINITY: "required-rack" if is_required else "rack"}
        for number, count in enumerate(gpus):
            spec = {
                "containers": [{"name": "main", "resources": {"limits": {keys.GPU_RESOURCE: str(count)}}}],
                "priority": priority,
                "schedulingGates": [{"name": keys.PLAN_GATE}],
            }
            metadata = {"name": f"{gang}.{number}", "annotations": said if len(gpus) > 1 else {}}
            self.world.store.create(PODS, "default", {"metadata": metadata, "spec": spec})

    async def tick(self, *, dies_after: int | None = None, binds: float = 1.0) -> None:
        """Let the queue have one round, and the scheduler bind what is open.

        Args:
            dies_after: The planner dies in this round, after so many requests.
            binds: The probability of each Binding; others come later.

        """
        self.seconds += 2.0
        self.replica.seconds = self.seconds
        self.replica.catch_up()
        self._writes_left = dies_after
        try:
            await self.queue.round()
        except Crash:
            self.deaths += 1
            self.replica, self.queue = self._started()
        self._writes_left = None
        self.replica.catch_up()
        for pod in self._pods():
            node = (pod["metadata"].get("annotations") or {}).get(keys.PLANNED)
            is_open = not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")
            if node and is_open and self.random.random() < binds:
                assert isinstance(self.replica.bind(pod["metadata"]["name"], node), Bound)
        self._release()
        self._check()

    def end(self, gang: str) -> None:
        """Let all pods of a gang end; they are deleted once nothing claims GPUs for them."""
        for pod in self._gangs()[gang]:
            self.world.set_status(pod["metadata"]["name"], "Succeeded", "terminated")

    def bound(self) -> set[str]:
        """Return the gangs all of whose pods are bound."""
        return {gang for gang, pods in self._gangs().items() if all(pod["spec"].get("nodeName") for pod in pods)}

    def waiting(self) -> set[str]:
        """Return the other gangs."""
        return self._gangs().keys() - self.bound()

    def nominated(self) -> set[str]:
        """Return the gangs of which pods behind our gate are nominated."""
        return {
            gang
            for gang, pods in self._gangs().items()
            if any(pod["spec"].get("schedulingGates") and pod["status"].get("nominatedNodeName") for pod in pods)
        }

    def nodes_of(self, gang: str) -> list[str]:
        """Return where its pods are."""
        return sorted(pod["spec"]["nodeName"] for pod in self._gangs()[gang])

    def _release(self) -> None:
        """Take claims of pods that have ended out of the ledgers, as the reconciler does."""
        self.replica.catch_up()
        for task in self.replica.attention.due(self.replica.state, self.seconds):
            drive(release(self.replica.state, task), self.world.execute)
        for pod in self._pods():
            is_claimed = self.replica.state.claimed_on(pod["metadata"]["uid"])
            if pod["status"]["phase"] == "Succeeded" and not is_claimed:
                self.world.delete(pod["metadata"]["name"], 0)
        self.replica.catch_up()

    def _check(self) -> None:
        """No gang is bound in parts for long, and none is spread over racks that requires one."""
        for gang, pods in self._gangs().items():
            nodes = [node for pod in pods if (node := pod["spec"].get("nodeName"))]
            if 0 < len(nodes) < len(pods):
                since = self._first_bound.setdefault(gang, self.seconds)
                assert self.seconds - since < HALF_SECONDS, f"{gang} is half a gang: {nodes} of {len(pods)}"
            else:
                self._first_bound.pop(gang, None)
            if (pods[0]["metadata"].get("annotations") or {}).get(keys.GROUP_AFFINITY) == "required-rack":
                assert len({node.partition("-")[0] for node in nodes}) <= 1, f"{gang} is in two racks"

    def _check_claims(self) -> None:
        """Every pod whose gate is open has claims on the node where it goes, and so have the others of its gang."""
        claimed = {uid for node in self._nodes for uid in self.world.claims(node).values()}
        for gang, pods in self._gangs().items():
            if not any(keys.PLANNED in (pod["metadata"].get("annotations") or {}) for pod in pods):
                continue
            without = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] not in claimed]
            assert not without, f"a gate of {gang} is open, and {without} have no claims"

    def _gangs(self) -> dict[str, list[Object]]:
        gangs = defaultdict[str, list[Object]](list)
        for pod in self._pods():
            if pod["status"]["phase"] != "Succeeded":
                gangs[pod["metadata"]["name"].partition(".")[0]].append(pod)
        return gangs

    def _pods(self) -> list[Object]:
        return [*self.world.store.list(PODS).items]

    def _started(self) -> tuple[Replica, Queue]:
        """Start a planner that knows nothing but the API."""
        replica = Replica(self.world)
        replica.seconds = self.seconds
        driver = Driver(self._execute, replica.clock, 10.0)
        metrics = Metrics("digest", Queue.declarations)
        settings = QueueSettings(enabled=True)
        queue = Queue(
            replica.state,
            driver,
            replica.clock,
            metrics,
            EventRecorder(_nowhere),
            settings,
            KeyedLocks().plain,
            life_seconds=60.0,
        )
        return replica, queue

    async def _execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        if self._writes_left is not None:
            if not self._writes_left:
                raise Crash
            self._writes_left -= 1
        return self.world.execute(intent)


async def _nowhere(request: Request) -> tuple[int, bytes]:
    return 201, b""
