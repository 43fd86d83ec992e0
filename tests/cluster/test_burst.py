"""Two hundred pods at once on forty mixed nodes: all are placed, no GPU twice, also when the extender dies in the middle."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.simulated.fleet import fleet
from tests.cluster.api import Json
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.history import recorded
from tests.cluster.objects import container
from tests.cluster.polling import eventually

pytestmark = pytest.mark.usefixtures("kubelets")

FLEET = fleet(
    {
        "dgx-2": 8, "dgx-1v": 8, "hgx-h100": 6, "dgx-a100": 5, "a100-pcie-8-pairs": 5, "l40s-8": 4,
        "a100-sxm4-4": 2, "ac922-6": 1, "t4-4": 1,
    }
)  # fmt: skip
"""40 nodes with 370 GPUs."""
RING, V100 = "required-affinity: nvlink", "gpu-model: *V100*"
MIX: tuple[tuple[int, tuple[int, ...], tuple[str, ...]], ...] = (
    (138, (1,), ()),
    (10, (2,), ()),
    (20, (2,), (RING,)),
    (5, (3, 1), ()),
    (10, (4,), (RING,)),
    (10, (4,), (RING, V100)),
    (2, (8,), ()),
    (5, (6, 0, 2), (RING,)),
)
"""How many pods have containers that want so many GPUs, and in which words: 200 pods, 354 GPUs."""
PODS = 200
WITHIN_SECONDS = 180.0


def burst(chance: random.Random) -> list[Json]:
    """Return the pods in an order of chance."""
    pods = [
        wants(f"p{kind}-{number}", 0, *asks, containers=[container(f"c{i}", each) for i, each in enumerate(gpus)])
        for kind, (count, gpus, asks) in enumerate(MIX)
        for number in range(count)
    ]
    chance.shuffle(pods)
    return pods


def all_run(cluster: GpuCluster) -> bool:
    phases = [pod["status"].get("phase") for pod in cluster.bound()]
    return phases == ["Running"] * PODS


def test_burst_is_placed_whole(gpu_cluster: GpuCluster, figure: Callable[[str], None]) -> None:
    """All pods run, and after no single write did a GPU belong to two of them."""
    with recorded(gpu_cluster.api) as history:
        gpu_cluster.join(*FLEET)
        began = time.monotonic()
        gpu_cluster.submit(*burst(random.Random(0)))
        eventually(lambda: len(gpu_cluster.bound()) == PODS, WITHIN_SECONDS)
        seconds = time.monotonic() - began
        eventually(lambda: all_run(gpu_cluster), WITHIN_SECONDS)
    assert history.violations() == []
    figure(f"{PODS} mixed pods on {len(FLEET)} mixed nodes: bound in {seconds:.1f} s, {PODS / seconds:.0f} pods/s")


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_burst_survives_kill_9(gpu_cluster: GpuCluster, figure: Callable[[str], None], seed: int) -> None:
    """Whatever the extender was doing when it died, the end is the same."""
    chance = random.Random(seed)
    verb, calls = chance.choice(["filter", "prioritize", "bind"]), chance.randrange(1, PODS - 20)
    with recorded(gpu_cluster.api) as history:
        gpu_cluster.join(*FLEET)
        with ThreadPoolExecutor() as threads:
            submitted = threads.submit(gpu_cluster.submit, *burst(chance))
            eventually(lambda: len(gpu_cluster.extender.said(verb)) >= calls, WITHIN_SECONDS, every_seconds=0.002)
            gpu_cluster.extender.kill()
            submitted.result()
        bound_at_kill, began = len(gpu_cluster.bound()), time.monotonic()
        gpu_cluster.extender.run()
        eventually(lambda: all_run(gpu_cluster), WITHIN_SECONDS)
        seconds = time.monotonic() - began
    assert history.violations() == []
    figure(
        f"killed after {calls} calls of {verb} (seed {seed}) with {bound_at_kill} of {PODS} pods bound; "
        f"{seconds:.1f} s after the restart began all ran"
    )
