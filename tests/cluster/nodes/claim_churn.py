"""Pods with claims of our class come and go on real nodes, while the planner is killed, and what each container got is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from extender.cluster.objects.devices import DRIVER
from tests.cluster.claims import CLAIMS
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.dra_drivers import DraDriver
from tests.cluster.nodes.pods import pod
from tests.cluster.objects import NODES, PODS, Json
from topology.annotations import keys
from topology.annotations.records import decode_ledger

SHAPES: Final = ((1,), (1,), (2,), (2, 1), (3,), (4,), (4,), (5,), (1, 1, 2), (6,), (7,), (8,))
"""GPUs of each container of a pod, by a claim each."""
GANG_EVERY: Final = 10
"""Every so many pods there is a gang."""
GANG: Final = ((2,), (2,), (4,))
"""The pods of a gang."""
AT_ONCE: Final = 24
"""Pods that wait or run."""
_ENDS: Final = 0.5
"""How likely a pod that runs is deleted at the next look."""


@dataclass(slots=True)
class ClaimChurn:
    """Pods of random sizes, some in gangs; each is judged when it runs, and deleted some time after."""

    cluster: GpuCluster
    drivers: Sequence[DraDriver]
    pods: int
    kills: int
    """Of the planner, spread over the pods."""
    chance: Random
    judged: set[str] = field(default_factory=set)
    """Pods that ran, each with exactly the planned devices."""
    wrong: list[str] = field(default_factory=list)
    """What a container got instead."""
    killed: int = 0
    _waiting: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw all pods."""
        number = 0
        while number < self.pods:
            is_gang = number % GANG_EVERY == 0 and number + len(GANG) <= self.pods
            shapes = GANG if is_gang else (self.chance.choice(SHAPES),)
            words = {keys.GROUP: f"g{number}", keys.GROUP_SIZE: str(len(GANG)), keys.GANG: "required"}
            for shape in shapes:
                self._waiting.append(claiming_pod(f"p{number}", shape, words if is_gang else {}))
                number += 1

    def step(self) -> bool:
        """Create, judge, delete and kill; returns whether all pods have run and gone, and all kills were made."""
        alive = self.cluster.api.list(PODS)
        batch = self._waiting[: max(0, AT_ONCE - len(alive))]
        del self._waiting[: len(batch)]
        self.cluster.submit(*batch)
        for item in self._running(alive):
            if item["metadata"]["name"] not in self.judged:
                self._judge(item)
            elif self.chance.random() < _ENDS:
                self.cluster.delete(item["metadata"]["name"])
        if self.killed < self.kills and len(self.judged) * (self.kills + 1) >= self.pods * (self.killed + 1):
            self.cluster.extender.kill()
            self.cluster.extender.start()
            self.killed += 1
        return self.killed == self.kills and not self._waiting and not alive

    def left(self) -> list[str]:
        """Return what is left of ended pods, in words."""
        ledgers = [node["metadata"].get("annotations", {}).get(keys.LEDGER) for node in self.cluster.api.list(NODES)]
        return [
            *(f"in a ledger: {claim}" for text in ledgers if text for claim in decode_ledger(text).claims),
            *(f"claim {claim['metadata']['name']}" for claim in self.cluster.api.list(CLAIMS)),
            *(f"prepared on {driver.node.name}: {claim}" for driver in self.drivers for claim in driver.prepared()),
        ]

    def refused(self) -> list[str]:
        """Return the claims that a driver has refused, since another claim had one of their devices."""
        return [claim for driver in self.drivers for claim in driver.refused()]

    def _running(self, alive: Iterable[Json]) -> Iterator[Json]:
        for item in alive:
            if item["status"]["phase"] == "Running" and "deletionTimestamp" not in item["metadata"]:
                yield item

    def _judge(self, item: Json) -> None:
        """Compare what was planned, what its claims have, and what the runtime injects, container by container."""
        name, uid, node = item["metadata"]["name"], item["metadata"]["uid"], item["spec"]["nodeName"]
        (driver,) = (driver for driver in self.drivers if driver.node.name == node)
        claims = {status["name"]: status["resourceClaimName"] for status in item["status"]["resourceClaimStatuses"]}
        allocated = {container: self._allocated(driver, claim) for container, claim in claims.items()}
        injected = {
            started.container: {device.removeprefix("nvidia.com/gpu=") for device in started.cdi_devices}
            for started in driver.node.started()
            if started.uid == uid
        }
        wanted = {
            claim["name"]: int(claim["resourceClaimTemplateName"][5:]) for claim in item["spec"]["resourceClaims"]
        }
        planned = self.cluster.claims(node, name)
        self.judged.add(name)
        if (
            injected != allocated
            or set().union(*injected.values()) != planned
            or {container: len(gpus) for container, gpus in injected.items()} != wanted
            or len(planned) != sum(wanted.values())
        ):
            self.wrong.append(f"{name} on {node}: planned {planned}, allocated {allocated}, injected {injected}")

    def _allocated(self, driver: DraDriver, claim: str) -> set[str]:
        results = self.cluster.api.get(f"{CLAIMS}/{claim}")["status"]["allocation"]["devices"]["results"]
        assert {(result["driver"], result["pool"]) for result in results} == {(DRIVER, driver.node.name)}
        return {driver.gpu(result["device"]) for result in results}


def claiming_pod(name: str, shape: Sequence[int], annotations: dict[str, str]) -> Json:
    """Return a pod that has a claim for each container, of the template `gpus-N`."""
    item = pod(name, *(0 for _ in shape), annotations=annotations)
    containers = item["spec"]["containers"]
    item["spec"]["resourceClaims"] = [
        {"name": container["name"], "resourceClaimTemplateName": f"gpus-{gpus}"}
        for container, gpus in zip(containers, shape, strict=True)
    ]
    for container in containers:
        container["resources"] = {"claims": [{"name": container["name"]}]}
    return item
