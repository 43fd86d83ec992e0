"""A small cluster whose GPUs are DRA devices: a planner that may die at any request, a scheduler, and the controller of claims.

Requests of the planner are answered, lost, or arrive later than anybody waits. After every write no device is in two claims.
Every GPU that a claim of our class holds is in the ledger of its node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

from benchmarks.simulated.double.resources import NODES, PODS, ApiResource, Object
from benchmarks.simulated.double.selectors import everything
from benchmarks.simulated.double.store import Watch
from extender.binding.driver import Driver
from extender.binding.intents import AllocateClaim, Intent, MarkClaim, NoAnswer, OpenGate, Reply, SwapLedger
from extender.binding.release import release
from extender.cluster.objects.devices import DRIVER, ResourceClaim
from extender.cluster.objects.kinds import Pod
from extender.core.openings import Openings
from extender.features.dra.allocation import node_selector
from extender.features.dra.allocations import AllocationOutcome
from extender.features.dra.claim_spec import (
    MATCHES_NOTHING,
    OUR_CLASSES,
    CelSelector,
    ClassSpec,
    DeviceClass,
    Selector,
)
from extender.features.dra.feature import Dra
from extender.features.dra.guard import DraGuard
from extender.features.dra.inventory import consumption, read_inventory
from extender.features.dra.taints import DeviceTaints
from extender.features.queue.feature import Queue
from extender.features.queue.settings import QueueSettings
from extender.kit.keyed_locks import KeyedLocks
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from tests.dra import Publish, read_slice, whole_gpus
from tests.extender.features.dra.claim_objects import allocation_of, made_for, owner_of, request_for
from tests.extender.features.dra.taint_rules import TaintRules
from tests.extender.world import Crash, Replica, World
from topology.annotations import keys
from topology.formats.catalog import machine

CLAIMS: Final = ApiResource("apis/resource.k8s.io/v1", "resourceclaims", "ResourceClaim")
DEADLINE_SECONDS: Final = 60.0
_WRITES: Final = (AllocateClaim, MarkClaim, OpenGate, SwapLedger)


class Planner:
    """One process that knows nothing but the API at first."""

    def __init__(self, site: ClaimSite) -> None:
        self.site = site
        self.replica = Replica(site.world)
        self.replica.seconds = site.seconds
        self.state = self.replica.state
        self.driver = Driver(site.execute, self.replica.clock, 10.0)
        self.metrics = Metrics("digest", (*Queue.declarations, *Dra.declarations))
        self.openings = Openings()
        guard = DraGuard(_nowhere, "gputopo-system", is_needed=False)
        matching_nothing = DeviceClass(spec=ClassSpec([Selector(CelSelector(MATCHES_NOTHING))]))
        guard.classes = dict.fromkeys(OUR_CLASSES, matching_nothing)
        clock = self.replica.clock
        openings = self.openings
        taints = DeviceTaints(site.rules.send, clock, openings) if site.rules else None
        self.dra = Dra(
            self.state, self.driver, clock, self.metrics, guard, DEADLINE_SECONDS, openings, [DRIVER], taints=taints
        )
        self.queue = Queue(
            self.state,
            self.driver,
            clock,
            self.metrics,
            EventRecorder(_nowhere),
            QueueSettings(enabled=True),
            KeyedLocks().plain,
            life_seconds=60.0,
            openings=self.openings,
        )
        claims, store = self.state.claims, site.world.store
        claims.slices.replaced([read_slice(each) for each in site.slices])
        page = store.list(CLAIMS)
        claims.replaced([_read(each) for each in page.items])
        claims.hear(True)
        self._claim_watch = Watch(store, CLAIMS, "", everything, page.resource_version)
        self.state.pods.replaced([msgspec.convert(each, Pod) for each in store.list(PODS).items])

    def catch_up(self, *, is_behind: Callable[[], bool] = lambda: False) -> None:
        """Hear of what has changed; watches of kinds may be behind each other."""
        self.replica.catch_up(NODES)
        if not is_behind():
            self.replica.catch_up(PODS)
        if not is_behind():
            self.hear_of_claims()

    def hear_of_claims(self) -> None:
        """Hear of what has changed of claims alone."""
        for event, item in self._claim_watch.poll():
            (self.state.claims.deleted if event == "DELETED" else self.state.claims.changed)(_read(item))

    async def round(self, *, is_behind: Callable[[], bool] = lambda: False) -> None:
        """Do what one process does: rounds of the queue, of the claims, and of the reconciler."""
        self.replica.seconds = self.site.seconds
        for _ in range(3):
            if self.dra.taints:
                await self.dra.taints.work()
            self.catch_up(is_behind=is_behind)
            await self.dra.read_again()
            await self.queue.round()
        await self.dra.take_back_unreserved()
        await self.dra.let_go_of_idle()
        for task in self.replica.attention.due(self.state, self.site.seconds):
            await self.driver.drive(release(self.state, task), 1e9)

    def counted(self, outcome: AllocationOutcome) -> float:
        """Return how often this has become of an allocation, by what this planner has counted."""
        name = f'gputopo_dra_allocations_total{{outcome="{outcome}"}} '
        lines = self.metrics.exposition().decode().splitlines()
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


class ClaimSite:
    """Nodes of four GPUs, and one planner at a time."""

    def __init__(
        self, nodes: int, random: Random, publish: Publish = whole_gpus, rules: TaintRules | None = None
    ) -> None:
        self.names = [f"n{number}" for number in range(nodes)]
        self.world = World(*self.names, machine_name="dgx-a100", kinds=(CLAIMS,))
        self.random = random
        self.rules = rules
        """`None`: the API server knows no DeviceTaintRules."""
        self.seconds = 0.0
        self.deaths = self.undone = 0
        self.chaos = 0.0
        """Probability that a write of the planner is lost, late, or its last."""
        self.unfit: set[str] = set()
        """Nodes where kube-scheduler lets no pod run."""
        self.unfit_pods: set[str] = set()
        """Names of the pods that it lets run nowhere."""
        self.schedules = True
        self.dies_at: type[Intent] | None = None
        """The planner dies at its next request of this kind, which arrives later."""
        self.answer: Callable[[Intent], Reply | None] = lambda intent: None
        """What the API server says to a request without doing it; `None`: it does it."""
        self.checks_ledgers = True
        """Whether the ledger has to name each device's GPU for the pod of its claim."""
        self.slices = [
            item
            for name in self.names
            for item in publish(name, [each.uuid for each in machine("dgx-a100", host=name).gpus])
        ]
        """What drivers publish."""
        self._inventories = {
            name: read_inventory(name, [read_slice(item) for item in self.slices if item["spec"]["nodeName"] == name])
            for name in self.names
        }
        self.planner = Planner(self)
        self.world.store.subscribe(self._check)

    def create(
        self,
        name: str,
        *counts: int | Sequence[int],
        config: Sequence[Object] = (),
        selector: str = "",
        profile: str = "",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Create a pod behind our gate, and a claim for each count, or for the first of several for which there is room.

        `selector` is that of each request's first count, `profile` that of MIG devices instead of GPUs, and `more` what else
        the pod's spec has.
        """
        claims = [{"name": f"c{at}", "resourceClaimTemplateName": "t"} for at in range(len(counts))]
        spec = {
            "containers": [{"name": "main", "resources": {}}],
            "schedulingGates": [{"name": keys.PLAN_GATE}],
            "resourceClaims": claims,
            **more,
        }
        metadata: Object = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        pod = self.world.store.create(PODS, "default", {"metadata": metadata, "spec": spec})
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
        for at, count in enumerate(counts):
            requests = [request_for(count, selector, profile)]
            metadata = {"name": f"{name}-c{at}", "ownerReferences": [owner]}
            claim = {"metadata": metadata, "spec": {"devices": {"requests": requests, "config": [*config]}}}
            self.world.store.create(CLAIMS, "default", claim)
        made = [{"name": f"c{at}", "resourceClaimName": f"{name}-c{at}"} for at in range(len(counts))]
        self.world.patch(PODS, name, {"status": {"resourceClaimStatuses": made}}, "status")

    def create_claim(self, name: str, count: int) -> None:
        """Create a claim of our class without a template, as a user does."""
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request_for(count, "")]}}}
        self.world.store.create(CLAIMS, "default", claim)

    def create_naming(self, name: str, *claims: str, **more: Any) -> None:
        """Create a pod behind our gate that names such claims; `more`: what else its spec has."""
        spec = {
            "containers": [{"name": "main", "resources": {}}],
            "schedulingGates": [{"name": keys.PLAN_GATE}],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            **more,
        }
        self.world.store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})

    def create_strangers(self, name: str, device_class: str = DRIVER) -> None:
        """Create a claim of NVIDIA's class, which no policy has refused, or of another class."""
        requests = [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]
        spec = {"devices": {"requests": requests}}
        self.world.store.create(CLAIMS, "default", {"metadata": {"name": name}, "spec": spec})

    def allocate_strangers(self, name: str, node: str, device: str) -> None:
        """Let kube-scheduler allocate a device for a claim that is not ours."""
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        allocation = {"devices": {"results": [result]}, "nodeSelector": node_selector(node)}
        self.world.patch(CLAIMS, name, {"status": {"allocation": allocation}}, "status")

    def ticks(self, count: int) -> None:
        """Do so many ticks."""

        async def run() -> None:
            for _ in range(count):
                await self.tick()

        asyncio.run(run())

    async def tick(self) -> None:
        """Let planner, scheduler and controller act once each; time passes."""
        self.seconds += 2.0
        try:
            await self.planner.round(is_behind=lambda: self.random.random() < self.chaos / 2)
        except Crash:
            self.deaths += 1
            self.planner = Planner(self)
        while self.world.late and self.chaos and self.random.random() < 0.15:
            self.world.execute(self.world.late.pop(self.random.randrange(len(self.world.late))))
        if self.schedules:
            self._schedule()
        self._control()

    def end(self, name: str) -> None:
        """Let a pod end."""
        self.world.set_status(name, "Succeeded", "terminated")

    def pod(self, name: str) -> Pod:
        """Return a pod as it is now."""
        return msgspec.convert(self.world.find(name), Pod)

    def node_of(self, name: str) -> str | None:
        """Return where a pod is bound."""
        pod = self.world.find(name)
        return pod["spec"].get("nodeName") if pod else None

    def requests_met(self) -> dict[str, set[str]]:
        """Return claim → the requests that its results name."""
        claims = ((claim, allocation_of(claim)) for claim in self.world.store.list(CLAIMS).items)
        return {
            claim["metadata"]["name"]: {result["request"] for result in allocation["devices"]["results"]}
            for claim, allocation in claims
            if allocation
        }

    def allocations(self) -> dict[str, tuple[str, frozenset[str]]]:
        """Return claim → the node and devices that it has."""
        found = dict[str, tuple[str, frozenset[str]]]()
        for claim in self.world.store.list(CLAIMS).items:
            if allocation := (claim.get("status") or {}).get("allocation"):
                results = allocation["devices"]["results"]
                devices = frozenset(result["device"] for result in results)
                found[claim["metadata"]["name"]] = results[0]["pool"], devices
        return found

    def _schedule(self) -> None:
        """Bind each open pod where its claims are allocated, or take one allocation back where it cannot run."""
        for pod in self.world.store.list(PODS).items:
            claims = self._claims_of(pod)
            if pod["spec"].get("schedulingGates") or pod["spec"].get("nodeName") or not claims:
                continue
            places = {place["devices"]["results"][0]["pool"] for claim in claims if (place := allocation_of(claim))}
            if not all(map(allocation_of, claims)):
                continue
            assert len(places) == 1, "the claims of a pod are on one node"
            (node,) = places
            if node in self.unfit or pod["metadata"]["name"] in self.unfit_pods or self.random.random() < self.chaos:
                self.undone += 1
                self._patch_status(self.random.choice(claims), {"allocation": None})
            else:
                user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
                for claim in claims:
                    self._patch_status(claim, {"reservedFor": [user]})
                binding = {"metadata": {"name": user["name"]}, "target": {"kind": "Node", "name": node}}
                self.world.store.bind("default", user["name"], binding)

    def _control(self) -> None:
        """Remove the claims of pods that have ended or are gone, as the controllers do."""
        pods = {pod["metadata"]["uid"] for pod in self.world.store.list(PODS).items}
        for claim in self.world.store.list(CLAIMS).items:
            if made_for(claim) and made_for(claim) not in pods:
                self.world.store.delete(CLAIMS, "default", claim["metadata"]["name"])
        for pod in self.world.store.list(PODS).items:
            if (pod["status"] or {}).get("phase") == "Succeeded" and pod["spec"].get("nodeName"):
                for claim in self._claims_of(pod):
                    name, users = claim["metadata"]["name"], (claim.get("status") or {}).get("reservedFor") or []
                    is_its_own = name.startswith(f"{pod['metadata']['name']}-c")
                    # It reserves what a bound pod names, whoever has allocated it, and frees what nothing but ended pods use.
                    if is_its_own or not users or any(user["uid"] == pod["metadata"]["uid"] for user in users):
                        self._patch_status(claim, {"allocation": None, "reservedFor": None})
                    if is_its_own:
                        self.world.store.delete(CLAIMS, "default", name)

    def _claims_of(self, pod: Object) -> list[Object]:
        """Return the claims that were made for a pod, or that it names."""
        named = {claim.get("resourceClaimName") for claim in pod["spec"].get("resourceClaims") or ()}
        claims = self.world.store.list(CLAIMS).items
        uid = pod["metadata"]["uid"]
        return [claim for claim in claims if made_for(claim) == uid or claim["metadata"]["name"] in named]

    def _patch_status(self, claim: Object, status: Object) -> None:
        self.world.patch(CLAIMS, claim["metadata"]["name"], {"status": status}, "status")

    def _check(self) -> None:
        """No device is in two claims of ours, no counter is exceeded, and of each device the ledger names the claim's pod."""
        given: dict[tuple[str, str], str] = {}
        for claim in self.world.store.list(CLAIMS).items:
            allocation = allocation_of(claim) if owner_of(claim) else None
            for result in allocation["devices"]["results"] if allocation else ():
                name, device = claim["metadata"]["name"], (result["pool"], result["device"])
                assert device not in given, f"{device} is given to {given[device]} and {name}"
                given[device] = name
                if not self.checks_ledgers:
                    continue
                inventory = self._inventories[result["pool"]]
                uuid = next(
                    uuid
                    for uuid, each in {**inventory.gpus, **inventory.mig_devices}.items()
                    if each.id.name == result["device"]
                )
                assert self.world.claims(result["pool"]).get(uuid) == owner_of(claim), (
                    f"no ledger names {device} of {name}"
                )
        for pool, inventory in self._inventories.items():
            names = [name for where, name in given if where == pool]
            devices = [each.device for each in (*inventory.gpus.values(), *inventory.mig_devices.values())]
            used = consumption(device for device in devices if device.name in names)
            limits = inventory.parts.counters.capacity
            short = [counter for counter, amount in used.items() if amount > limits.get((pool, *counter), 0)]
            assert not short, f"{names} take more of {short[0]} than there is"

    async def execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        """Answer a request of a planner, or let it be lost, be late, or be its last."""
        if reply := self.answer(intent):
            return reply
        if self.dies_at is not None and isinstance(intent, self.dies_at):
            self.dies_at = None
            self.world.late.append(intent)
            raise Crash
        if isinstance(intent, _WRITES) and self.random.random() < self.chaos:
            fate = self.random.choice(("dies before", "dies after", "dies and is late", "lost", "late", "unheard"))
            if "late" in fate:
                self.world.late.append(intent)
            if fate in ("dies after", "unheard"):
                self.world.execute(intent)
            if fate.startswith("dies"):
                raise Crash
            return NoAnswer(fate)
        return self.world.execute(intent)


def _read(item: Object) -> ResourceClaim:
    return msgspec.convert(item, ResourceClaim)


async def _nowhere(request: Request) -> tuple[int, bytes]:
    return 201, b""
