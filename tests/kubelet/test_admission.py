"""Pods of every shape on one node: who gets what, and who is turned away."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from agent.kubelet.api.deviceplugin_pb2 import ContainerAllocateResponse
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode, write_cdi
from tests.kubelet.pods import Container, Kind, Phase, Pod, gpu_pod
from topology.formats.catalog import machine


async def test_container_gets_the_promised_gpus(tmp_path: Path) -> None:
    """Not the best ones, not the first ones: the promised ones, in its environment and in the kubelet's books."""
    async with AgentOnNode(tmp_path) as node:
        pod = await node.place(gpu_pod("train", 3), [1, 4, 6])
        assert node.got(pod) == [node.named(1, 4, 6)]
        assert node.kubelet.holders() == dict.fromkeys(node.named(1, 4, 6), "uid-train")


async def test_containers_of_one_pod_get_each_its_own(tmp_path: Path) -> None:
    """In the order of the spec, equal sizes too."""
    async with AgentOnNode(tmp_path) as node:
        pod = await node.place(gpu_pod("parts", 2, 2, 1), [0, 5], [3, 2], [7], exact=True)
        assert node.got(pod) == [node.named(0, 5), node.named(3, 2), node.named(7)]


async def test_pods_of_one_size_that_come_together_get_each_their_own(tmp_path: Path) -> None:
    """The kubelet admits them by age, which is not the order in which they were bound."""
    async with AgentOnNode(tmp_path) as node:
        pods = [gpu_pod(f"p{place}", 2, created=age) for place, age in enumerate([3, 1, 4, 2])]
        for pod, gpus in zip(pods, ([0, 7], [1, 6], [2, 5], [3, 4]), strict=True):
            node.promise(pod, {"c0": gpus}, exact=True)
        await node.kubelet.run(*pods)
        await node.kubelet.started(*pods)
        assert [node.got(pod) for pod in pods] == [
            [node.named(0, 7)], [node.named(1, 6)], [node.named(2, 5)], [node.named(3, 4)],
        ]  # fmt: skip


async def test_kubelet_that_forgets_what_it_just_gave_gives_it_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a dead pod's GPUs are freed during Allocate, Kubernetes 1.36 offers those that are being allocated once more."""
    async with AgentOnNode(tmp_path) as node:
        await node.kubelet.settle()
        dying = await node.place(gpu_pod("dying", 1), [7])
        endpoint = node.kubelet.devices.endpoint
        assert endpoint is not None
        allocate = endpoint.allocate

        async def while_one_dies(devices: list[str]) -> ContainerAllocateResponse:
            node.delete(dying)
            return await allocate(devices)

        monkeypatch.setattr(endpoint, "allocate", while_one_dies)
        first, second, third = gpu_pod("first", 5), gpu_pod("second", 5), gpu_pod("third", 3)
        await node.kubelet.run(first)
        monkeypatch.undo()
        await node.kubelet.run(second, third)
        await node.kubelet.started(first, second, third)
        assert second.phase is Phase.FAILED
        assert not node.got(first)[0] & node.got(third)[0]


async def test_init_container_sidecar_and_apps_stay_within_their_pod(tmp_path: Path) -> None:
    """The kubelet passes an init container's GPUs on at random, so only the pod's set is fixed; nothing else is touched."""
    async with AgentOnNode(tmp_path) as node:
        containers = (
            Container("setup", 4, Kind.INIT),
            Container("proxy", 1, Kind.SIDECAR),
            Container("two", 2),
            Container("three", 3),
        )
        pod = Pod("mixed", containers, uid="uid-mixed")
        node.promise(pod, {"setup": [0, 1, 2, 3], "proxy": [0], "two": [1, 2], "three": [3, 6, 7]}, exact=True)
        await node.kubelet.run(pod)
        await node.kubelet.started(pod)
        setup, proxy, two, three = node.got(pod)
        assert (len(setup), len(proxy), len(two), len(three)) == (4, 1, 2, 3)
        assert proxy | two | three == node.named(0, 1, 2, 3, 6, 7) >= setup


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_churn_gives_every_container_exactly_what_was_planned(tmp_path: Path, seed: int) -> None:
    """Invariants I1 and I3: random sets, mostly equal sizes, several pods at once, random ends."""
    random = Random(seed)
    async with AgentOnNode(tmp_path, seed=seed) as node:
        free, running = set(range(8)), dict[int, Pod]()
        for round_number in range(12):
            pods: list[Pod] = []
            while len(free) >= (size := random.choice([1, 2, 2, 2, 3])) and len(pods) < 4:
                gpus = random.sample(sorted(free), size)
                free -= set(gpus)
                pods.append(gpu_pod(f"p{round_number}-{len(pods)}", size, created=random.randrange(9)))
                node.promise(pods[-1], {"c0": gpus}, exact=True)
                running |= dict.fromkeys(gpus, pods[-1])
            await node.kubelet.run(*pods)
            await node.kubelet.started(*pods)
            for pod in pods:
                assert node.got(pod) == [node.named(*(gpu for gpu, owner in running.items() if owner is pod))]
            for pod in {pod.uid: pod for pod in running.values() if random.random() < 0.6}.values():
                node.delete(pod)
                gone = {gpu for gpu, owner in running.items() if owner is pod}
                free, running = free | gone, {gpu: owner for gpu, owner in running.items() if gpu not in gone}


async def test_stray_gets_gpus_that_are_promised_to_nobody(tmp_path: Path) -> None:
    """A pod that came around the extender may have what is left, and nothing else."""
    async with AgentOnNode(tmp_path) as node:
        late = gpu_pod("late", 5)
        node.promise(late, {"c0": [0, 1, 2, 4, 5]})
        stray, greedy = gpu_pod("stray", 2), gpu_pod("greedy", 2)
        for pod in (stray, greedy):
            await node.kubelet.run(pod)
            await node.kubelet.started(pod)
        assert node.got(stray)[0] < node.named(3, 6, 7)
        assert "promised to no other pod" in greedy.reason
        await node.kubelet.run(late)
        await node.kubelet.started(late)
        assert node.got(late) == [node.named(0, 1, 2, 4, 5)]


@pytest.mark.parametrize("exact", [False, True])
async def test_pod_whose_gpus_were_taken_adopts_others_or_is_refused(tmp_path: Path, exact: bool) -> None:
    """As its annotation says; the others are nobody's."""
    async with AgentOnNode(tmp_path) as node:
        first = await node.place(gpu_pod("first", 2), [0, 1])
        del node.claims[first.uid]
        pod = await node.place(gpu_pod("second", 2), [1, 2], exact=exact)
        if exact:
            assert pod.phase is Phase.FAILED
            assert node.gpus[1] in pod.reason
        else:
            assert not node.got(pod)[0] & node.named(0, 1)


async def test_namesake_gets_its_own_gpus_while_the_old_claims_stand(tmp_path: Path) -> None:
    """Row N17: a StatefulSet's next pod, before the ledger has let go of the last one's GPUs."""
    async with AgentOnNode(tmp_path) as node:
        old = await node.place(gpu_pod("web-0", 2, uid="uid-1", created=1), [0, 1])
        node.kubelet.delete(old)
        new = await node.place(gpu_pod("web-0", 2, uid="uid-2", created=2), [4, 5], exact=True)
        assert node.got(new) == [node.named(4, 5)]


async def test_kubelet_that_takes_others_than_we_prefer_is_stopped(tmp_path: Path) -> None:
    """Row N9: a pod that takes its own GPUs only fails; another one starts, and what it holds is seen."""
    async with AgentOnNode(tmp_path) as node:
        node.kubelet.devices.obeys = False
        exact = await node.place(gpu_pod("exact", 1), [2], exact=True)
        easy = await node.place(gpu_pod("easy", 1), [3])
        assert (exact.phase, exact.reason[:16]) == (Phase.FAILED, "the kubelet took")
        (gpu,) = node.got(easy)[0]
        assert (await node.watch.look()).held is not None
        assert node.watch.last_look.held is not None
        assert node.watch.last_look.held[gpu].name == "easy"


async def test_sick_gpu_is_not_given_away_and_takes_nobody_along(tmp_path: Path) -> None:
    """The kubelet hears of it at once; pods that do not need it start."""
    async with AgentOnNode(tmp_path) as node:
        node.offer(3)
        await until(lambda: node.kubelet.allocatable == 7)
        pod = await node.place(gpu_pod("needs-it", 1), [3], exact=True)
        assert pod.phase is Phase.FAILED
        assert node.got(await node.place(gpu_pod("does-not", 4), [4, 5, 6, 7])) == [node.named(4, 5, 6, 7)]
        node.delete(pod)
        node.offer()
        await until(lambda: node.kubelet.allocatable == 8)
        assert node.got(await node.place(gpu_pod("later", 1), [3])) == [node.named(3)]


async def test_runtime_is_told_by_environment_and_cdi_in_ring_order(tmp_path: Path) -> None:
    """Both name exactly the GPUs of the container."""
    write_cdi(tmp_path / "cdi", [gpu.uuid for gpu in machine("dgx-1v").gpus])
    async with AgentOnNode(tmp_path, settings={"enforce.cdi": "always"}) as node:
        pod = await node.place(gpu_pod("train", 8), range(8))
        answer = pod.started["c0"]
        told = answer.envs["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert [device.name for device in answer.cdi_devices] == [f"nvidia.com/gpu={gpu}" for gpu in told]
        ring = [node.gpus.index(gpu) for gpu in told]
        assert all(node.topology.nvlinks(a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))
