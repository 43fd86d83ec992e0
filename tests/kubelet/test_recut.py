"""GPUs that are cut into slices, and made whole, while containers have them: the agent on the kubelet's double."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agent.kubelet.serving.devices import PluginDevice
from agent.plugin.choice.best import Scorer
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode
from tests.kubelet.pods import Phase, gpu_pod
from topology.annotations.records import Claim, Holder
from topology.node.slices import Slice


async def cut(node: AgentOnNode, run: str) -> Mapping[str, list[str]]:
    """Have all GPUs cut into two slices; returns GPU → its slices."""
    slices = tuple(
        Slice(gpu.index, f"MIG-{gpu.index}-{number}{run}", "3g.40gb", 1 << 30, 4 * number, 4, number, 0)
        for gpu in node.topology.gpus
        for number in range(2)
    )
    gpus = tuple(replace(gpu, mig_enabled=True) for gpu in node.topology.gpus)
    topology = replace(node.topology, gpus=gpus, slices=slices)
    found = {gpu.uuid: [each.uuid for each in slices if each.gpu == gpu.index] for gpu in gpus}
    devices = [PluginDevice(each.uuid, healthy=True, profile=each.asked_as) for each in slices]
    node.watch.take(devices, Scorer(topology), {gpu: frozenset(of) for gpu, of in found.items()})
    await node.ready()
    return found


async def test_slices_of_a_gpu_that_a_container_has_are_given_to_nobody(tmp_path: Path) -> None:
    """By its plan, and without one: fourteen of sixteen slices can be had."""
    async with AgentOnNode(tmp_path, "hgx-h100", settings={"enforce.migStrategy": "single"}) as node:
        owner = await node.place(gpu_pod("owner", 1), [0])
        slices = await cut(node, "a")
        forbidden = set(slices[node.gpus[0]])
        planned = gpu_pod("planned", 1, created=1)
        device = min(forbidden)
        node.claims[planned.uid] = (Claim(device, planned.uid, "default", "planned", "c0", "1001", exact=True),)
        await node.kubelet.run(planned)
        await node.kubelet.started(planned)
        assert (owner.phase, planned.phase) == (Phase.RUNNING, Phase.FAILED)
        node.delete(planned)
        others = gpu_pod("others", 14, created=2)
        await node.kubelet.run(others)
        await node.kubelet.started(others)
        assert node.got(others) == [{each for of in slices.values() for each in of} - forbidden]


async def test_gpu_is_given_to_nobody_while_a_container_has_a_slice_of_it(tmp_path: Path) -> None:
    """It was made whole meanwhile; the node says who has the slice, and its agent knows of which GPU it was."""
    async with AgentOnNode(tmp_path, "hgx-h100", settings={"enforce.migStrategy": "single"}) as node:
        slices = await cut(node, "a")
        owner, device = gpu_pod("owner", 1), slices[node.gpus[3]][1]
        node.claims[owner.uid] = (Claim(device, owner.uid, "default", "owner", "c0", "1000", exact=True),)
        await node.kubelet.run(owner)
        await node.kubelet.started(owner)
        assert node.got(owner) == [{device}]
        node.offer()
        await node.ready()
        await until(lambda: node.watch.last_look.held == {device: Holder("default", "owner", "c0")})
        node.claims.clear()  # as if the ledger were lost
        others = gpu_pod("others", 7, created=1)
        await node.kubelet.run(others)
        await node.kubelet.started(others)
        assert node.got(others) == [set(node.gpus) - {node.gpus[3]}]
