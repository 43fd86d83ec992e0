"""Pods that share GPUs beside pods that have whole ones: who gets what, what the kubelet counts, and when the node is open."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import cast

import pytest

from agent.gpus.facts import GpuProcess
from agent.kubelet.serving import offered
from agent.limits.level import LimitsLevel
from agent.limits.limiter import Limiter
from agent.limits.mps import Mount
from agent.limits.share import Share
from agent.plugin.devices.offers import gpu_of
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode
from tests.kubelet.pods import Container, Kind, Phase, Pod, gpu_pod, share_pod
from topology.node.sharing import Limits

GIB = 30
GPUS = 8


@asynccontextmanager
async def sharing(
    folder: Path,
    settings: Mapping[str, str] = MappingProxyType({}),
    seed: int = 0,
    limiter: Callable[[], Limiter] | None = None,
) -> AsyncIterator[AgentOnNode]:
    """Give a node whose eight GPUs may be shared."""
    flags = {"sharing.gpus": "all", "sharing.limits": "preferred"}
    node = AgentOnNode(folder, seed=seed, settings=flags | dict(settings))
    node.limiter = limiter
    node.share_gib = GIB
    async with node:
        yield node


def counts(node: AgentOnNode) -> tuple[int, int]:
    """Return how many whole GPUs and how many GiB the kubelet counts as its to give."""
    return len(node.kubelet.devices.healthy), len(node.kubelet.shares.healthy)


async def test_container_is_told_its_gpu_once_and_holds_its_gib(tmp_path: Path) -> None:
    """In its environment and in the kubelet's books."""
    async with sharing(tmp_path) as node:
        pod = await node.share(share_pod("p", 12), 5)
        assert pod.started["c0"].envs["NVIDIA_VISIBLE_DEVICES"] == node.gpus[5]
        held = Counter(map(gpu_of, node.kubelet.holders()))
        assert held == {node.gpus[5]: 12}


async def test_containers_of_one_pod_get_each_its_share(tmp_path: Path) -> None:
    """On one GPU or on several, as planned; equal sizes too."""
    async with sharing(tmp_path) as node:
        one = await node.share(share_pod("one", 4, 4, 6), 2, 2, 2)
        several = await node.share(share_pod("several", 3, 3), 6, 1)
        assert node.got(one) == [node.named(2)] * 3
        assert node.got(several) == [node.named(6), node.named(1)]


@pytest.mark.slow
async def test_shared_gpu_leaves_the_count_of_whole_ones_and_a_whole_one_that_of_gib(tmp_path: Path) -> None:
    """And each comes back when its last pod has gone."""
    async with sharing(tmp_path) as node:
        await until(lambda: counts(node) == (GPUS, GPUS * GIB))
        first, second = await node.share(share_pod("a", 10), 0), await node.share(share_pod("b", 10), 0)
        await until(lambda: counts(node) == (GPUS - 1, GPUS * GIB))
        whole = await node.place(gpu_pod("w", 2), [3, 4], exact=True)
        await until(lambda: counts(node) == (GPUS - 1, (GPUS - 2) * GIB))
        assert node.got(first) + node.got(second) == [node.named(0)] * 2
        node.delete(first)
        node.delete(whole)
        await until(lambda: counts(node) == (GPUS - 1, GPUS * GIB))
        node.delete(second)
        await until(lambda: counts(node) == (GPUS, GPUS * GIB))


async def test_nothing_is_withdrawn_before_the_node_says_why(tmp_path: Path) -> None:
    """Whoever has not heard of it may still send a pod, which the kubelet would turn away for good."""
    async with sharing(tmp_path) as node:
        node.says = False
        await node.share(share_pod("a", 10), 0)
        looked = await node.watch.look()
        assert set(looked.shared) == node.named(0)
        assert counts(node) == (GPUS, GPUS * GIB)
        assert await node.watch.about_to_publish(looked)
        assert counts(node) == (GPUS, GPUS * GIB)
        node.watch.published(looked)
        await until(lambda: counts(node) == (GPUS - 1, GPUS * GIB))


@pytest.mark.slow
async def test_a_gpu_is_offered_again_before_the_node_says_that_it_is_free(tmp_path: Path) -> None:
    """So a pod that is bound on that word finds it."""
    async with sharing(tmp_path) as node:
        pod = await node.share(share_pod("a", 10), 0)
        await until(lambda: counts(node) == (GPUS - 1, GPUS * GIB))
        node.says, node.kubelet.takes_seconds = False, 0.2
        node.delete(pod)
        looked = await node.watch.look()
        assert (looked.shared, looked.plugin.ready) == ({}, True)
        assert counts(node) == (GPUS, GPUS * GIB)


async def test_look_of_before_is_not_told_while_what_it_denies_is_withdrawn(tmp_path: Path) -> None:
    """Two looks overlap, and the later one has seen a new pod: what the earlier one says is prepared for first."""
    async with sharing(tmp_path) as node:
        pod = await node.share(share_pod("a", 10), 0)
        await until(lambda: counts(node) == (GPUS - 1, GPUS * GIB))
        node.says = False
        node.delete(pod)
        earlier = await node.watch.look()
        await node.share(share_pod("b", 10), 0)
        await node.watch.look()
        assert counts(node) == (GPUS - 1, GPUS * GIB)
        assert await node.watch.about_to_publish(earlier)
        assert counts(node) == (GPUS, GPUS * GIB)


@pytest.mark.slow
async def test_no_change_of_form_closes_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are bound while others come and go, and each look finds the kubelet in step, however slow the machine is."""
    monkeypatch.setattr(offered, "_TAKES_SECONDS", 60.0)
    async with sharing(tmp_path, {"kubelet.interval": "10ms"}) as node:
        node.kubelet.takes_seconds, closed = 0.02, []
        for number in range(30):
            before = node.changes
            pod = await node.share(share_pod(f"s{number}", 5), number % 8)
            await until(lambda before=before: node.changes > before)  # type: ignore[misc]
            closed.append(node.watch.last_look.plugin.reasons)
            node.delete(pod)
            looked = await node.watch.look()
            closed.append(looked.plugin.reasons)
        notes = {reason for reasons in closed for reason in reasons}
        assert all("CDI" in note for note in notes), notes


async def test_with_as_many_shared_as_may_be_no_other_gpu_is_offered_in_shares(tmp_path: Path) -> None:
    """The count of GiB is that of the shared ones then."""
    async with sharing(tmp_path, {"sharing.gpus": "2"}) as node:
        await node.share(share_pod("a", 10), 0)
        await until(lambda: counts(node) == (GPUS - 1, GPUS * GIB))
        await node.share(share_pod("b", 10), 4)
        await until(lambda: counts(node) == (GPUS - 2, 2 * GIB))
        assert node.watch.last_look.plugin.sharing is not None
        assert node.watch.last_look.plugin.sharing.max_gpus == 2


async def test_stray_share_takes_room_that_nobody_was_promised(tmp_path: Path) -> None:
    """And a stray that wants a whole GPU none of which anybody has a part."""
    async with sharing(tmp_path) as node:
        late = share_pod("late", 25)
        node.promise_share(late, {"c0": (0, 25)}, exact=True)
        strays = [share_pod(f"stray{number}", 20) for number in range(3)] + [gpu_pod("whole", 4)]
        for stray in strays:
            await node.kubelet.run(stray)
            await node.kubelet.started(stray)
        assert [stray.phase for stray in strays] == [Phase.RUNNING] * 4
        taken = [next(iter(node.got(stray)[0])) for stray in strays[:3]]
        assert node.gpus[0] not in taken
        assert len(set(taken)) == 3
        assert not node.got(strays[3])[0] & {node.gpus[0], *taken}
        await node.kubelet.run(late)
        await node.kubelet.started(late)
        assert node.got(late) == [node.named(0)]


@pytest.mark.parametrize(("exact", "phase"), [(True, Phase.FAILED), (False, Phase.RUNNING)])
async def test_share_whose_gpu_is_sick_is_refused_or_taken_elsewhere_as_its_pod_says(
    tmp_path: Path, *, exact: bool, phase: Phase
) -> None:
    """`device-mismatch` holds for shares as for whole GPUs."""
    async with sharing(tmp_path) as node:
        node.offer(3)
        await until(lambda: counts(node) == (GPUS - 1, (GPUS - 1) * GIB))
        pod = await node.share(share_pod("p", 10), 3, exact=exact)
        assert pod.phase is phase
        assert phase is Phase.FAILED or node.got(pod) != [node.named(3)]


async def test_init_container_leaves_its_share_to_those_after_it(tmp_path: Path) -> None:
    """The kubelet passes its devices on, and asks for the rest: all of it is of the planned GPU."""
    async with sharing(tmp_path) as node:
        containers = (
            Container("setup", 0, Kind.INIT, gib=10),
            Container("main", 0, gib=6),
            Container("side", 0, gib=8),
        )
        pod = Pod("p", containers, uid="uid-p")
        node.promise_share(pod, {"main": (6, 6), "side": (6, 8)}, exact=True)
        await node.kubelet.run(pod)
        await node.kubelet.started(pod)
        assert node.got(pod) == [node.named(6)] * 3


@pytest.mark.slow
async def test_neighbours_who_compute_keep_no_share_waiting(tmp_path: Path) -> None:
    """A process on a GPU that is shared is a neighbour's; on one that was just whole it is somebody's who has not ended."""
    async with sharing(tmp_path, {"enforce.processWait": "300ms"}) as node:
        await node.share(share_pod("first", 5), 2)
        node.computing = {node.gpus[2]: (GpuProcess(7),), node.gpus[3]: (GpuProcess(8),)}
        assert (await node.share(share_pod("second", 5), 2)).phase is Phase.RUNNING
        left = share_pod("third", 5)
        node.promise_share(left, {"c0": (3, 5)})
        await node.kubelet.run(left)
        await until(lambda: f"{node.gpus[3]} is still in use by process 8" in left.reason)
        node.computing = {}
        await node.kubelet.started(left)


async def test_shares_that_are_left_when_sharing_is_switched_off_run_on(tmp_path: Path) -> None:
    """Their devices stay, and their GPU is not given whole; when the last has gone it is."""
    async with sharing(tmp_path) as node:
        left = await node.share(share_pod("left", 10), 0)
        node.share_gib = 0
        node.offer()
        await until(lambda: counts(node) == (GPUS - 1, 10))
        assert await node.kubelet._may_start(left, left.containers[0])
        node.delete(left)
        await until(lambda: counts(node) == (GPUS, 0))


class Holding:
    """What holds every pod that it is told of, in place of the driver."""

    level, held_back = LimitsLevel(Limits.CGROUP), ""

    def __init__(self) -> None:
        self.held: list[set[tuple[str, str, int]]] = []
        """Pod, container and GiB of all shares with which a pod was to start."""

    async def look(self, gpus: Collection[str], driver: str | None = None) -> LimitsLevel:
        return self.level

    async def follow(self, shares: Collection[Share]) -> None:
        """Leave them as they are."""

    def environment(self, share: Share) -> Mapping[str, str]:
        return {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={share.memory_gib}G {share.compute_percent}"}

    def mounts(self, share: Share) -> tuple[Mount, ...]:
        return (Mount("/run/mps", "/mps"),)

    async def before_start(self, shares: Collection[Share]) -> str | None:
        self.held.append({(share.name, share.container, share.memory_gib) for share in shares})
        return None


async def test_pod_is_held_to_all_its_shares_before_each_container_starts(tmp_path: Path) -> None:
    """And told what its containers need for that; one with a whole GPU is not."""
    limiter = Holding()
    async with sharing(tmp_path, limiter=lambda: cast("Limiter", limiter)) as node:
        pod = await node.share(share_pod("p", 4, 6), 2, 2)
        assert limiter.held == [{("p", "c0", 4), ("p", "c1", 6)}] * 2
        told = pod.started["c1"]
        assert told.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=6G None"
        assert [(mount.host_path, mount.container_path) for mount in told.mounts] == [("/run/mps", "/mps")]
        whole = await node.place(gpu_pod("whole", 1), [0])
        assert len(limiter.held) == 2
        assert not whole.started["c0"].mounts


async def test_share_that_no_ledger_knows_waits_where_limits_are_required(tmp_path: Path) -> None:
    """Nobody could say what holds it; it starts when the extender has written down what was seen."""
    limiter = Holding()
    required = {"sharing.limits": "required"}
    async with sharing(tmp_path, required, limiter=lambda: cast("Limiter", limiter)) as node:
        stray = share_pod("stray", 5)
        await node.kubelet.run(stray)
        await until(lambda: "the ledger does not say yet that its share is of this GPU" in stray.reason)
        (gpu,) = {gpu_of(device) for device in node.kubelet.holders()}
        node.promise_share(stray, {"c0": (node.gpus.index(gpu), 5)})
        await node.kubelet.started(stray)
        assert limiter.held == [{("stray", "c0", 5)}]


@pytest.mark.slow
async def test_agent_and_kubelet_may_die_beside_shares(tmp_path: Path) -> None:
    """Pods run on, both counts come back, and the next share gets its planned GPU."""
    async with sharing(tmp_path) as node:
        running = await node.share(share_pod("running", 10), 0)
        await node.place(gpu_pod("whole", 2), [1, 2], exact=True)
        await node.stop_agent()
        await node.start_agent()
        await node.ready()
        await until(lambda: counts(node) == (GPUS - 1, (GPUS - 2) * GIB))
        await node.kubelet.kill()
        await node.kubelet.start()
        await until(lambda: all(counts(node)))
        await node.kubelet.settle()
        await node.ready()
        await until(lambda: counts(node) == (GPUS - 1, (GPUS - 2) * GIB))
        assert running.phase is Phase.RUNNING
        assert node.got(await node.share(share_pod("next", 20), 0)) == [node.named(0)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_churn_of_shares_and_whole_gpus_gives_each_exactly_its_plan(tmp_path: Path, seed: int) -> None:
    """Random sizes, several pods at once, mixed forms, random ends: never too much of a GPU, nor whole and shared."""
    random = Random(seed)
    async with sharing(tmp_path, seed=seed) as node:
        left, running = dict.fromkeys(range(GPUS), GIB), dict[str, tuple[Pod, list[int]]]()
        for turn in range(12):
            pods: list[Pod] = []
            for number in range(4):
                name, age = f"p{turn}-{number}", random.randrange(9)
                if random.random() < 0.3 and (free := [gpu for gpu in left if left[gpu] == GIB]):
                    gpus = random.sample(free, min(len(free), random.choice([1, 1, 2])))
                    pod = gpu_pod(name, len(gpus), created=age)
                    node.promise(pod, {"c0": gpus}, exact=True)
                    left |= dict.fromkeys(gpus, 0)
                else:
                    gib = random.choice([1, 5, 10, 10, 20])
                    room = [gpu for gpu in left if left[gpu] >= gib]
                    if not room:
                        continue
                    gpus = [random.choice(room)]
                    pod = share_pod(name, gib, created=age)
                    node.promise_share(pod, {"c0": (gpus[0], gib)}, exact=True)
                    left[gpus[0]] -= gib
                pods.append(pod)
                running[pod.uid] = pod, gpus
            await node.kubelet.run(*pods)
            await node.kubelet.started(*pods)
            for pod in pods:
                assert node.got(pod) == [node.named(*running[pod.uid][1])]
            for uid in [uid for uid in running if random.random() < 0.5]:
                pod, gpus = running.pop(uid)
                node.delete(pod)
                for gpu in gpus:
                    left[gpu] += pod.containers[0].gib or GIB
            await node.says_what_is()
