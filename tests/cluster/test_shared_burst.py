"""Four hundred pods at once, whole GPUs and shares of them, on twenty nodes, while the extender dies twice."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import pytest

from benchmarks.simulated.fleet import SimulatedNode, share_pod
from tests.cluster.api import Json
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.history import recorded
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from tests.world.invariants import claims
from topology.annotations import keys

pytestmark = pytest.mark.usefixtures("kubelets")

MACHINES = {"hgx-h100": 8, "dgx-a100": 6, "l40s-8": 4, "dgx-1v": 2}
MOST_SHARED = 6
"""Of a node's eight GPUs, at one time."""
FLEET = tuple(
    SimulatedNode(f"{machine}-{number}", machine, cpus=512, shared_gpus=MOST_SHARED)
    for machine, count in MACHINES.items()
    for number in range(count)
)
"""20 nodes with 160 GPUs."""
WHOLE = (1,) * 20 + (2,) * 10 + (3,) * 2 + (4,) * 4 + (5, 6, 7) + (8,) * 2
CLASSES = ("", "dev", "prod")
COUNT = 400
WITHIN_SECONDS = 120.0


def burst(chance: random.Random) -> list[Json]:
    """Return whole GPUs, and shares of 1 to 40 GiB in three classes, of which some are of two containers, in any order."""
    pods = [wants(f"whole-{number}", gpus) for number, gpus in enumerate(WHOLE)]
    for number in range(COUNT - len(WHOLE)):
        containers = ("main", "side")[: 1 + (number % 8 == 0)]
        asked = {name: round(40 ** chance.random()) for name in containers}
        of_class = {keys.SHARING_CLASS: name} if (name := CLASSES[number % len(CLASSES)]) else {}
        pods.append(share_pod(f"share-{number}", asked, of_class, schedulerName=SCHEDULER_NAME))
    chance.shuffle(pods)
    return pods


@dataclass
class Gpu:
    """What the ledger says of one GPU."""

    left_gib: int
    is_whole: bool = False
    sharing_class: str | None = None


def gpus_of(node: SimulatedNode, found: Json) -> list[Gpu]:
    """Return what is left of a node's GPUs, by its ledger alone."""
    by_uuid = {gpu.uuid: Gpu(node.share_gib) for gpu in node.topology.gpus}
    for claim in claims([found]):
        gpu = by_uuid[claim.gpu]
        gpu.is_whole |= claim.memory_gib is None
        gpu.left_gib -= claim.memory_gib or 0
        gpu.sharing_class = claim.sharing_class if claim.memory_gib else None
    return list(by_uuid.values())


def fits(pod: Json, gpus: list[Gpu]) -> bool:
    """Whether anybody could give the pod what it asks for; by trying everything."""
    limits = [container["resources"]["limits"] for container in pod["spec"]["containers"]]
    shares = [int(each.get(keys.SHARE_RESOURCE, 0)) for each in limits]
    free = [gpu for gpu in gpus if not gpu.is_whole and gpu.sharing_class is None]
    if not any(shares):
        return len(free) >= sum(int(each.get(keys.GPU_RESOURCE, 0)) for each in limits)
    shared = [gpu for gpu in gpus if gpu.sharing_class is not None]
    of_class = pod["metadata"].get("annotations", {}).get(keys.SHARING_CLASS, "")
    mine = [gpu for gpu in shared if gpu.sharing_class == of_class]
    there = [gpu.left_gib for gpu in (*mine, *free[: MOST_SHARED - len(shared)])]
    return any(
        all(
            sum(gib for gib, at in zip(shares, places, strict=True) if at == gpu) <= left
            for gpu, left in enumerate(there)
        )
        for places in product(range(len(there)), repeat=len(shares))
    )


def left_out(cluster: GpuCluster) -> Iterator[str]:
    """Yield the pods that wait, though some node has room for them."""
    nodes = {found["metadata"]["name"]: found for found in cluster.api.list(NODES)}
    rooms = [gpus_of(node, nodes[node.name]) for node in FLEET]
    for pod in cluster.api.list(PODS):
        if "nodeName" not in pod["spec"] and any(fits(pod, gpus) for gpus in rooms):
            yield pod["metadata"]["name"]


def kill_after(cluster: GpuCluster, verb: str, calls: int) -> None:
    """Let the extender answer so many more calls, then kill it, and start it again."""
    calls += len(cluster.extender.said(verb))
    eventually(lambda: len(cluster.extender.said(verb)) >= calls, WITHIN_SECONDS, every_seconds=0.01)
    cluster.extender.kill()
    cluster.extender.run()


def test_shares_and_whole_gpus_survive_two_kills(gpu_cluster: GpuCluster, figure: Callable[[str], None]) -> None:
    """Whoever fits is bound. After no single write is a GPU whole and shared, over its memory, or two classes'."""
    chance, cluster = random.Random(0), gpu_cluster
    with recorded(cluster.api) as history:
        cluster.join(*FLEET)
        began = time.monotonic()
        with ThreadPoolExecutor() as threads:
            submitted = threads.submit(cluster.submit, *burst(chance))
            for verb in ("bind", "filter"):
                kill_after(cluster, verb, chance.randrange(40, 120))
            submitted.result()
        eventually(lambda: not [*left_out(cluster)], WITHIN_SECONDS, every_seconds=1.0)
        seconds = time.monotonic() - began
        bound = cluster.bound()
        eventually(lambda: all(pod["status"].get("phase") == "Running" for pod in cluster.bound()), WITHIN_SECONDS)
    assert history.violations() == []
    figure(f"{COUNT} pods, whole and shared, on {len(FLEET)} nodes, two kills: {summary(bound)} in {seconds:.1f} s")


def summary(bound: list[Json]) -> str:
    """Say how many got what."""
    shares = sum(pod["metadata"]["name"].startswith("share") for pod in bound)
    return (
        f"{len(bound) - shares} of {len(WHOLE)} with whole GPUs and {shares} of {COUNT - len(WHOLE)} with shares bound"
    )
