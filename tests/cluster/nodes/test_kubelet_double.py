"""The kubelet double of the fast tests asks, gives and refuses as the real kubelet does: both play the same scenarios."""

import asyncio
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.api import Json
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import container, pod, refusal, submit
from tests.cluster.objects import PODS
from tests.cluster.polling import eventually
from tests.extender.polling import until
from tests.kubelet import scenarios
from tests.kubelet.double import KubeletDouble
from tests.kubelet.pods import Kind, Phase, Pod
from tests.kubelet.scenarios import Course, PodAsked, Step
from topology.annotations.keys import GPU_RESOURCE

GPUS = 8


@pytest.mark.parametrize("file", scenarios.FILES, ids=lambda file: file.stem)
async def test_double_does_what_the_kubelet_does(nodes: Nodes, file: Path) -> None:
    """Same questions to the device plugin in the same order, same holdings, same refusals."""
    node = await asyncio.to_thread(nodes.one, "hgx_h100")
    on_real = await asyncio.to_thread(play_on_real, node, scenarios.read(file))
    with TemporaryDirectory(prefix="gputopo-") as folder:  # short: a socket's path has at most 107 characters
        on_double = await play_on_double(node.parts.tools, Path(folder), scenarios.read(file))
    assert on_double == on_real
    assert on_real.questions


def play_on_real(node: GpuNode, steps: list[Step]) -> Course:
    """Play a scenario on a real kubelet."""
    course, record = Course(), node.state / "questions"
    wilful(node, record=record)
    for step in steps:
        for asked in step.run:
            submit(node, {**object_of(asked), "spec": {**object_of(asked)["spec"], "nodeName": node.name}})
        for asked in step.run:
            eventually(lambda name=asked.name: is_decided(node, name), within_seconds=30)  # type: ignore[misc]
            if why := refusal(node, asked.name):
                course.refused[asked.name] = scenarios.reason(why)
        for name in step.delete:
            node.plane.admin.delete(f"{PODS}/{name}")
            eventually(lambda name=name: name not in {each.pod for each in node.holdings()}, 30)  # type: ignore[misc]
        if step.restart:
            node.kubelet.kill()
            node.kubelet.start()
            eventually(lambda: len(node.offered()) == GPUS, within_seconds=60)
    course.held = dict(Counter(f"{each.pod}/{each.container}" for each in node.holdings() for _ in each.ids))
    course.questions = record.read_text().splitlines()
    return course


async def play_on_double(tools: Path, folder: Path, steps: list[Step]) -> Course:
    """Play a scenario on the double, with the same plugin."""
    kubelet, course, record = KubeletDouble(folder), Course(), folder / "questions"
    await kubelet.start()
    devices = [f"GPU-{number}" for number in range(GPUS)]
    environment = {**os.environ, "RECORD": str(record)}
    plugin = await asyncio.create_subprocess_exec(
        tools / "wilful", kubelet.plugins, GPU_RESOURCE, *devices, env=environment
    )
    try:
        await until(lambda: kubelet.allocatable == GPUS)
        await kubelet.settle()
        for step in steps:
            await play_step(kubelet, step, course)
        course.held = held_on_double(kubelet)
    finally:
        plugin.kill()
        await plugin.wait()
        await kubelet.kill()
    course.questions = record.read_text().splitlines()
    return course


async def play_step(kubelet: KubeletDouble, step: Step, course: Course) -> None:
    """Let one thing happen on the double."""
    pods = [Pod(asked.name, asked.containers, f"uid-{asked.name}") for asked in step.run]
    await kubelet.run(*pods)
    await kubelet.started(*pods)
    course.refused |= {each.name: scenarios.reason(each.reason) for each in pods if each.phase is Phase.FAILED}
    for each in [each for each in kubelet.pods if each.name in step.delete]:
        kubelet.delete(each)
    if step.restart:
        await kubelet.kill()
        await kubelet.start()
        await until(lambda: kubelet.allocatable == GPUS)
        await kubelet.settle()


def held_on_double(kubelet: KubeletDouble) -> dict[str, int]:
    """Return what PodResources lists."""
    return {
        f"{pod.name}/{each.name}": len(kubelet.devices.devices(pod, each))
        for pod in kubelet.active()
        for each in pod.ordered()
        if each.kind is not Kind.INIT and kubelet.devices.devices(pod, each)
    }


def object_of(asked: PodAsked) -> Json:
    """Return the pod as the API server takes it."""
    always = {"restartPolicy": "Always"}
    first = [
        container(c.name, c.gpus, **(always if c.kind is Kind.SIDECAR else {}))
        for c in asked.containers
        if c.kind is not Kind.APP
    ]
    apps = [container(c.name, c.gpus) for c in asked.containers if c.kind is Kind.APP]
    return pod(asked.name, containers=apps or [container("main", 0)], initContainers=first)


def is_decided(node: GpuNode, name: str) -> bool:
    """Whether the kubelet has admitted a pod and started its first container, or has turned it away."""
    return bool(refusal(node, name)) or name in {each.pod for each in node.started()}
