"""C17 and C19 from end to end: extender, API server over HTTP, agent and kubelet; how soon a GPU that was given back is free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.kubelet.api.deviceplugin_pb2 import ContainerAllocateResponse, DevicePluginOptions
from agent.node.kube import KubernetesNode
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import NODES
from benchmarks.simulated.double.server import ApiServer
from extender.binding.outcome import Bound
from extender.binding.release import release
from tests.agent.builders import machine_of
from tests.extender.polling import until
from tests.extender.world import Replica, World, drive
from tests.kubelet.double import KubeletDouble
from tests.kubelet.pods import Container, Phase, Pod
from tests.kubelet.whole_agent import in_a_thread, running, settings
from topology.annotations import keys
from topology.annotations.records import decode_observed
from topology.formats.catalog import machine

MACHINE = "rtx-3090-2"
GPUS = [gpu.uuid for gpu in machine(MACHINE, host="n1").gpus]


class Plugin:
    """Another device plugin: it gives what it is asked for."""

    options = DevicePluginOptions()

    async def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        return sorted(available)[:size]

    async def allocate(self, devices: list[str]) -> ContainerAllocateResponse:
        return ContainerAllocateResponse()

    async def pre_start(self, devices: list[str]) -> None:
        pass


class Node:
    """One node with its agent, and what the API server says of it."""

    def __init__(self, world: World, kubelet: KubeletDouble) -> None:
        self.world = world
        self.kubelet = kubelet

    async def runs(self, name: str) -> Pod:
        """Bind a pod and have its container run."""
        uid = self.world.add_pod(name)["metadata"]["uid"]
        assert isinstance(Replica(self.world).bind(name), Bound)
        pod = Pod(name, (Container("main", 2),), uid)
        await self.kubelet.run(pod)
        await self.kubelet.started(pod)
        assert pod.phase is Phase.RUNNING
        await until(lambda: self.held() == dict.fromkeys(GPUS, name))
        return pod

    def held(self) -> Mapping[str, str]:
        """Return GPU → pod as the agent reports it; nothing before its first report."""
        text = self.world.store.get(NODES, "", "n1")["metadata"]["annotations"].get(keys.OBSERVED)
        return {gpu: holder.name for gpu, holder in decode_observed(text).gpus.items()} if text else {}

    async def released(self, replica: Replica) -> float:
        """Let an extender work until no claim is left; returns how many seconds that took."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while self.world.claims():
            assert clock() - began < 30
            replica.seconds = clock() - began
            replica.catch_up()
            for task in replica.attention.due(replica.state, replica.seconds):
                drive(release(replica.state, task), self.world.execute)
            await asyncio.sleep(0.1)
        return clock() - began


@asynccontextmanager
async def observed_node(folder: Path) -> AsyncIterator[Node]:
    """Start an API server and a kubelet beside another device plugin, and the agent between them."""
    world = World("n1", machine_name=MACHINE)
    async with KubeletDouble(folder) as kubelet, ApiServer(world.store) as server:
        kubelet.devices.listed(dict.fromkeys(GPUS, True))
        kubelet.devices.endpoint = Plugin()
        write_kubeconfig(folder / "kubeconfig", server.url)
        own = KubernetesNode("n1", folder / "kubeconfig", None, 5.0)
        agent = running(settings(folder, kubelet, "observe"), own, machine_of(*GPUS), own.follow)
        async with in_a_thread(agent):
            await until(lambda: keys.STATUS in world.store.get(NODES, "", "n1")["metadata"]["annotations"])
            yield Node(world, kubelet)


@pytest.mark.slow
async def test_c17_pod_deleted_while_no_extender_ran_is_released_within_30_s(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """All that was to be reported has been reported long before; the extender asks, and the agent looks again."""
    async with observed_node(tmp_path) as node:
        pod = await node.runs("p")
        node.world.delete("p", grace_period_seconds=0)
        node.kubelet.delete(pod)
        await until(lambda: node.held() == {})
        seconds = await node.released(Replica(node.world))
    figure(f"C17: a pod deleted while no extender ran: its GPUs are free {seconds:.1f} s after one has started")


@pytest.mark.slow
@pytest.mark.parametrize("first", ["the kubelet", "the extender"])
async def test_c19_pod_deleted_by_force_is_released_when_the_agent_has_looked(
    tmp_path: Path, first: str, figure: Callable[[str], None]
) -> None:
    """Whoever hears of it first; until the kubelet has let go of the GPUs they are held."""
    async with observed_node(tmp_path) as node:
        pod = await node.runs("p")
        replica = Replica(node.world)
        if first == "the kubelet":
            node.kubelet.delete(pod)
            await until(lambda: node.held() == {})
        node.world.delete("p", grace_period_seconds=0)
        if first == "the extender":
            releasing = asyncio.create_task(node.released(replica))
            await until(lambda: keys.LOOK in node.world.store.get(NODES, "", "n1")["metadata"]["annotations"])
            assert len(node.world.claims()) == 2
            node.kubelet.delete(pod)
            seconds = await releasing
        else:
            seconds = await node.released(replica)
    figure(f"C19: a pod deleted by force, {first} first: its GPUs are free after {seconds:.1f} s")


@pytest.mark.slow
async def test_a_pod_that_is_gone_as_it_is_bound_is_released_when_the_agent_has_looked(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """No report ever showed it, so the agent is asked; without an agent its claims would stay."""
    async with observed_node(tmp_path) as node:
        node.world.add_pod("p")
        replica = Replica(node.world)
        assert isinstance(replica.bind("p"), Bound)
        node.world.delete("p", grace_period_seconds=0)
        assert len(node.world.claims()) == 2
        seconds = await node.released(replica)
    figure(f"A pod that is gone as it is bound: its GPUs are free {seconds:.1f} s later")
