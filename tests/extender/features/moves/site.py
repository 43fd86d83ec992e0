"""A small cluster where pods move: queue and moves are driven round by round against the API double, and may die at any write.

Pods of ReplicaSets come back behind the gate. A kubelet ends deleted pods, and a scheduler binds each open pod to the node that
it was sent to, with the real bind. Time passes only between rounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec

from benchmarks.simulated.double.api import HttpRequest, answer
from benchmarks.simulated.double.api import Reply as HttpReply
from benchmarks.simulated.double.resources import BUDGETS, JOBS, LEASES, PODS, Object
from extender.binding.driver import Driver
from extender.binding.intents import Intent, Reply
from extender.binding.outcome import Bound
from extender.binding.release import release
from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.config.defaults import QUEUE_LEASE
from extender.core.queue_outlook import QueueOutlook
from extender.features.moves.feature import Moves
from extender.features.moves.settings import MovesSettings
from extender.features.queue.feature import Queue
from extender.features.queue.settings import QueueSettings
from extender.kit.keyed_locks import KeyedLocks
from extender.kubernetes.events import Event, EventRecorder
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from tests.extender.features.moves.sharing_agents import SharingAgents
from tests.extender.world import Crash, Replica, World, drive
from topology.annotations import keys
from topology.annotations.records import decode_placement

Wanted: TypeAlias = int | Mapping[str, str]
"""Whole GPUs, or the limits of a container."""
TICK_SECONDS: Final = 2.0
INSTALLED_IN: Final = "default"
AT_ONCE: Final = MovesSettings.model_validate(
    {"enabled": True, "after": "0s", "betweenMoves": "0s", "namespacePerHour": 1000, "perHour": 1000}
)
"""No limits but those of a plan."""
CHEAP: Final = {keys.MOVABLE: "true", keys.RESTART_COST: "1m"}


class Kept(EventRecorder):
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> bool:
        self.events.append(event)
        return True


class MoveSite:
    """Nodes, ReplicaSets with budgets, and one planner."""

    def __init__(
        self,
        nodes: int,
        random: Random,
        settings: MovesSettings = AT_ONCE,
        machine_name: str = "hgx-h100",
        agents: SharingAgents | None = None,
    ) -> None:
        self.nodes = tuple(f"n{number}" for number in range(nodes))
        self.world = World(*self.nodes, machine_name=machine_name)
        self.agents = agents
        """Of nodes that share GPUs and have slices; `None`: nobody reports."""
        if agents:
            agents.start(self.world, self.nodes)
        self.world.store.create(LEASES, INSTALLED_IN, {"metadata": {"name": QUEUE_LEASE}, "spec": {}})
        self.random, self.settings = random, settings
        self.seconds = 0.0
        self.recorder = Kept()
        self.evicted: list[Object] = []
        """The pods as they were when they were evicted."""
        self.evicted_at: list[float] = []
        self.read: list[str] = []
        """Paths of what was read beside the watches, the driver and the Lease."""
        self.outcomes = Counter[str]()
        """Of all plans, over all planners."""
        self.deaths = 0
        self._writes_left: int | None = None
        self._replicas: dict[str, tuple[int, Object]] = {}
        """ReplicaSet → how many pods it has, and their template."""
        self._restarting: dict[str, set[str]] = {}
        """LeaderWorkerSet that restarts all of its pods if one is missing → the pods that it has created last."""
        self._names = 0
        self.is_leader = True
        self.kubelet_works = True
        self.replica, self.queue, self.moves = self._started()

    def replica_set(
        self,
        name: str,
        gpus: Wanted,
        *nodes: str,
        annotations: dict[str, str] | None = CHEAP,
        budget: bool = False,
        namespace: str = "default",
        job: Object | None = None,
        is_whole: bool = False,
        restarts: bool = False,
        device: int | None = None,
        **spec: Any,
    ) -> None:
        """Create a ReplicaSet, or a Job with this spec, with one running pod on each of these nodes.

        A budget lets one of the pods be missing. A whole one is a LeaderWorkerSet with one replica. The pods get this device,
        or a share of it.
        """
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}
        labels = {"app": name}
        if is_whole:
            owner["kind"] = "StatefulSet"
            labels |= {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/group-index": "0"}
        if restarts:
            self._restarting[name] = set()
        if job is not None:
            made = self.world.store.create(JOBS, "default", {"metadata": {"name": name}, "spec": job})
            owner |= {"apiVersion": "batch/v1", "kind": "Job", "uid": made["metadata"]["uid"]}
        metadata = {"annotations": annotations or {}, "labels": labels, "ownerReferences": [owner]}
        template = {"metadata": metadata, "spec": _spec(gpus) | spec}
        self._replicas[name] = len(nodes), template
        for node in nodes:
            created = self._create(name, template, sent_to=node)
            self.replica.catch_up()
            if device is not None:
                self.replica.state.holds.put(self.uid_of(created), _on_device(node, device, gpus, annotations or {}))
            assert isinstance(self.replica.bind(created, node), Bound)
        if budget:
            spec = {"selector": {"matchLabels": {"app": name}}}
            body = {"metadata": {"name": name}, "spec": spec, "status": {"disruptionsAllowed": 1}}
            self.world.store.create(BUDGETS, "default", body)

    def one_more(self, name: str) -> str:
        """Create one more pod of a ReplicaSet behind the gate; returns its name."""
        replicas, template = self._replicas[name]
        self._replicas[name] = replicas + 1, template
        return self._create(name, template)

    def single(self, name: str, gpus: Wanted, on: str = "", **annotations: str) -> None:
        """Create a pod of nobody's: on a node, or behind the gate."""
        gates = {} if on else {"schedulingGates": [{"name": keys.PLAN_GATE}]}
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": _spec(gpus) | gates}
        self.world.store.create(PODS, "default", body)
        if on:
            self.replica.catch_up()
            assert isinstance(self.replica.bind(name, on), Bound)

    async def settle(self, most_ticks: int = 60) -> None:
        """Let time pass until nothing is under way any more."""
        for _ in range(most_ticks):
            await self.tick()
            if not self.moves.plans and not self.under_way():
                return

    def under_way(self) -> list[str]:
        """Return the pods that are leaving, or that come back and have a place."""
        now = self.seconds
        return [
            pod["metadata"]["name"]
            for pod in self.pods()
            if "deletionTimestamp" in pod["metadata"]
            or (keys.PLANNED in (pod["metadata"].get("annotations") or {}) and not pod["spec"].get("nodeName"))
            or self.replica.state.holds.firm_of(pod["metadata"]["uid"], now)
        ]

    async def tick(self, *, dies_after: int | None = None) -> None:
        """Let queue and moves have one round, and everybody else do their work; the planner may die after so many requests."""
        self.seconds += TICK_SECONDS
        self._catch_up()
        self._writes_left = dies_after
        try:
            await self.queue.round()
            await self.moves.round()
        except Crash:
            self.deaths += 1
            self.replica, self.queue, self.moves = self._started()
        self._writes_left = None
        self._catch_up()
        self._schedule()
        if self.agents:
            self.agents.report(self.world)
        if self.kubelet_works:
            self._be_kubelet()
        self._be_controller()

    async def queue_alone(self) -> None:
        """Let the queue have a round before which the moves have seen nothing."""
        self.seconds += TICK_SECONDS
        self._catch_up()
        await self.queue.round()

    def uid_of(self, name: str) -> str:
        """Return the UID of a pod."""
        pod = self.world.find(name)
        assert pod
        return str(pod["metadata"]["uid"])

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which nobody does anything."""
        self.seconds += seconds

    def pods(self) -> list[Object]:
        """Return all pods."""
        return [*self.world.store.list(PODS).items]

    def node_of(self, name: str) -> str | None:
        """Return where a pod is bound."""
        pod = self.world.find(name)
        return pod["spec"].get("nodeName") if pod else None

    def owners(self) -> dict[str, list[str]]:
        """Return ReplicaSet → the nodes of its pods that are bound and stay."""
        nodes = defaultdict[str, list[str]](list)
        for pod in self.pods():
            if "deletionTimestamp" not in pod["metadata"] and (node := pod["spec"].get("nodeName")):
                nodes[(pod["metadata"].get("labels") or {}).get("app", "")].append(node)
        return nodes

    def places_of(self, owner: str) -> list[tuple[str, dict[str, int]]]:
        """Return the node of each pod of an owner, and its devices, with the GiB that it has of each; 0: all."""
        places = list[tuple[str, dict[str, int]]]()
        for pod in self.pods():
            owners = [each["uid"] for each in pod["metadata"].get("ownerReferences") or ()]
            text = (pod["metadata"].get("annotations") or {}).get(keys.PLACEMENT)
            if owners == [owner.rpartition("/")[2]] and text and (node := pod["spec"].get("nodeName")):
                record, amounts = decode_placement(text), Counter[str]()
                for container, devices in record.containers.items():
                    for device in devices:
                        amounts[device] += record.memory_gib.get(container, 0)
                places.append((node, dict(amounts)))
        return places

    def wanted(self) -> dict[str, int]:
        """Return ReplicaSet → how many pods it has."""
        return {name: replicas for name, (replicas, _) in self._replicas.items()}

    def reservations(self) -> dict[str, str]:
        """Return what is held, and where."""
        return self.replica.state.holds.places(self.seconds)

    def started_anew(self) -> None:
        """Let the planner die, and another one start that knows nothing but the API."""
        self.replica, self.queue, self.moves = self._started()

    def _create(self, name: str, template: Object, *, sent_to: str = "") -> str:
        """Create a pod behind the gate, or one whose gate the queue has opened."""
        self._names += 1
        pod_name = f"{name}-{self._names}"
        if name in self._restarting:
            self._restarting[name].add(pod_name)
        gates = {} if sent_to else {"schedulingGates": [{"name": keys.PLAN_GATE}]}
        planned = {keys.PLANNED: sent_to} if sent_to else {}
        annotations = {**template["metadata"]["annotations"], **planned}
        metadata = {**template["metadata"], "name": pod_name, "annotations": annotations}
        self.world.store.create(PODS, "default", {"metadata": metadata, "spec": {**template["spec"], **gates}})
        return pod_name

    def _catch_up(self) -> None:
        self.replica.seconds = self.seconds
        self.replica.catch_up()
        budgets = self.world.store.list(BUDGETS).items
        self.replica.state.budgets.replaced([msgspec.convert(budget, PodDisruptionBudget) for budget in budgets])

    def _schedule(self) -> None:
        for pod in self.pods():
            node = (pod["metadata"].get("annotations") or {}).get(keys.PLANNED)
            is_open = not pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")
            if node and is_open and "deletionTimestamp" not in pod["metadata"]:
                outcome = self.replica.bind(pod["metadata"]["name"], node)
                # A new planner believes an agent's last report, though it was made before pods ended. The next one is better.
                assert isinstance(outcome, Bound) or (self.agents and self.deaths), outcome
        self._catch_up()

    def _be_kubelet(self) -> None:
        for pod in self.pods():
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            if "deletionTimestamp" in pod["metadata"] and phase != "Succeeded":
                if self.agents and self.agents.only_they_tell():
                    self.world.delete(name, 0)
                else:
                    self.world.set_status(name, "Succeeded", "terminated")
            elif pod["spec"].get("nodeName") and phase != "Running" and phase != "Succeeded":
                self.world.set_status(name, "Running", "running")
                moment = datetime.fromtimestamp(self.replica.clock().wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                self.world.patch(PODS, name, {"status": {"startTime": moment}}, "status")
        self._catch_up()
        for task in self.replica.attention.due(self.replica.state, self.seconds):
            drive(release(self.replica.state, task), self.world.execute)
        for pod in self.pods():
            is_claimed = self.replica.state.claimed_on(pod["metadata"]["uid"])
            if pod["status"].get("phase") == "Succeeded" and not is_claimed:
                self.world.delete(pod["metadata"]["name"], 0)
        self._catch_up()

    def _restart(self) -> None:
        """Delete all pods of the LeaderWorkerSets of which one is missing or leaves."""
        here = {pod["metadata"]["name"] for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]}
        for created in self._restarting.values():
            if not created <= here:
                for name in created & here:
                    self.world.delete(name)
                created.clear()

    def _be_controller(self) -> None:
        """Create the pods that are missing, and count what budgets allow."""
        self._restart()
        pods = self.pods()
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        counts = Counter((pod["metadata"].get("labels") or {}).get("app", "") for pod in alive)
        for name, (replicas, template) in self._replicas.items():
            for _ in range(replicas - counts[name]):
                self._create(name, template)
        running = Counter(
            (pod["metadata"].get("labels") or {}).get("app", "")
            for pod in alive
            if pod["status"].get("phase") == "Running"
        )
        for budget in self.world.store.list(BUDGETS).items:
            name = budget["metadata"]["name"]
            allowed = max(0, running[name] - (self._replicas[name][0] - 1))
            assert running[name] >= self._replicas[name][0] - 1, f"the budget of {name} is broken"
            self.world.patch(BUDGETS, name, {"status": {"disruptionsAllowed": allowed}}, "status")
        self._catch_up()

    def _started(self) -> tuple[Replica, Queue, Moves]:
        """Start a planner that knows nothing but the API."""
        replica = Replica(self.world)
        replica.seconds = self.seconds
        driver = Driver(self._execute, replica.clock, 10.0)
        metrics = Metrics("digest", (*Queue.declarations, *Moves.declarations))
        outlook = QueueOutlook()
        queue = Queue(
            replica.state,
            driver,
            replica.clock,
            metrics,
            self.recorder,
            QueueSettings(enabled=True, evict=False, condition=False),
            KeyedLocks().plain,
            life_seconds=60.0,
            outlook=outlook,
        )
        moves = Moves(
            state=replica.state,
            driver=driver,
            send=self._send,
            clock=replica.clock,
            metrics=_Counting(self.outcomes, metrics),  # type: ignore[arg-type]
            recorder=self.recorder,
            settings=self.settings,
            queue=outlook,
            namespace=INSTALLED_IN,
        )
        is_here = outlook.is_here
        outlook.is_here = lambda: self.is_leader and is_here()
        return replica, queue, moves

    def _die_if_due(self) -> None:
        if self._writes_left is not None:
            if not self._writes_left:
                raise Crash
            self._writes_left -= 1

    async def _execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        self._die_if_due()
        return self.world.execute(intent)

    async def _send(self, request: Request) -> tuple[int, bytes]:
        self._die_if_due()
        url = urlsplit(request.path)
        name = url.path.split("/")[-2]
        before = self.world.find(name)
        query = dict(parse_qsl(url.query))
        http = HttpRequest(request.method, url.path, query, request.content_type, request.body or b"")
        reply = answer(self.world.store, http)
        assert isinstance(reply, HttpReply)
        if request.method == "GET" and "/leases/" not in request.path:
            self.read.append(url.path)
        if reply.code < 300 and "dryRun" not in query and before:
            self.evicted.append(before)
            self.evicted_at.append(self.seconds)
        return reply.code, msgspec.json.encode(reply.body)


class _Counting:
    """Counts outcomes of plans over all planners, and passes everything on."""

    def __init__(self, outcomes: Counter[str], metrics: Metrics) -> None:
        self._outcomes, self._metrics = outcomes, metrics

    def count(self, declaration: Any, *labels: str, amount: float = 1.0) -> None:
        self._outcomes[" ".join((declaration.name.removeprefix("gputopo_"), *map(str, labels)))] += 1
        self._metrics.count(declaration, *labels, amount=amount)


def _on_device(node: str, device: int, wanted: Wanted, annotations: Mapping[str, str]) -> Hold:
    """Return a hold on a device, or on a share of it."""
    gib = 0 if isinstance(wanted, int) else int(wanted.get(keys.SHARE_RESOURCE, 0))
    shares = ((device, gib, annotations.get(keys.SHARING_CLASS, "")),) if gib else ()
    return Hold(node, 1 << device, 1e9, shares=shares)


def _spec(wanted: Wanted) -> Object:
    limits = {keys.GPU_RESOURCE: str(wanted)} if isinstance(wanted, int) else dict(wanted)
    return {"containers": [{"name": "main", "resources": {"limits": limits}}]}
