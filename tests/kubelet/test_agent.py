"""The agent's loop and its kubelet side together: what containers hold stands on the Node within seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event

import pytest
from structlog.testing import capture_logs

from agent.errors import ApiError
from agent.kubelet.api.deviceplugin_pb2 import ContainerAllocateResponse, DevicePluginOptions
from agent.node.watch import NodeVersion
from tests.agent.builders import FakeNode, machine_of
from tests.extender.polling import until
from tests.kubelet.double import KubeletDouble
from tests.kubelet.pods import Phase, gpu_pod
from tests.kubelet.whole_agent import running, settings
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, decode_observed, encode_ledger
from topology.annotations.status_codec import decode_status
from topology.node.status import Mode

GPUS = [f"GPU-{index}" for index in range(4)]
FACTS = machine_of(*GPUS)


class Wilful:
    """A device plugin that hands out what it likes."""

    options = DevicePluginOptions(get_preferred_allocation_available=True)

    async def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        return Random(7).sample(sorted(available), size)

    async def allocate(self, devices: list[str]) -> ContainerAllocateResponse:
        return ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(devices)})

    async def pre_start(self, devices: list[str]) -> None:
        pass


def held(node: FakeNode) -> dict[str, str]:
    """Return GPU → pod as the Node says."""
    text = node.annotations.get(keys.OBSERVED)
    return {gpu: holder.name for gpu, holder in decode_observed(text).gpus.items()} if text else {}


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[KubeletDouble]:
    """Start a kubelet."""
    async with KubeletDouble(tmp_path) as made:
        yield made


async def test_what_another_plugin_did_is_seen_and_so_is_its_end(
    tmp_path: Path, kubelet: KubeletDouble, goal: Callable[[float], float]
) -> None:
    """Invariant I8: a pod got other GPUs than the ledger says, and the Node tells within seconds."""
    node = FakeNode()
    kubelet.devices.listed(dict.fromkeys(GPUS, True))
    kubelet.devices.endpoint = Wilful()
    with running(settings(tmp_path, kubelet, "observe"), node, FACTS):
        pod = gpu_pod("p", 2)
        await kubelet.run(pod)
        await until(lambda: held(node) == dict.fromkeys(kubelet.holders(), "p") != {}, timeout_seconds=goal(5))
        kubelet.delete(pod)
        await until(lambda: held(node) == {}, timeout_seconds=goal(5))
        plugin = decode_status(node.annotations[keys.STATUS]).device_plugin
        assert plugin is not None
        assert (plugin.mode, plugin.ready) == (Mode.OBSERVE, True)


def is_ready(node: FakeNode) -> bool:
    """Whether the Node says that pods may be bound."""
    text = node.annotations.get(keys.STATUS)
    plugin = decode_status(text).device_plugin if text else None
    return plugin is not None and plugin.ready


def ledger_for_p() -> str:
    """Return a ledger that promises the last two GPUs to the container of the pod `p`, and to nobody else."""
    claims = tuple(Claim(gpu, "uid-p", "default", "p", "c0", "1", exact=True) for gpu in GPUS[2:])
    return encode_ledger(Ledger(1, claims))


@pytest.mark.slow
async def test_enforcing_agent_says_when_pods_may_be_bound(
    tmp_path: Path, kubelet: KubeletDouble, goal: Callable[[float], float]
) -> None:
    """From the first registration to a pod with its GPUs, and from the kubelet's death to a node that is closed."""
    node = FakeNode({keys.LEDGER: ledger_for_p()})
    with running(settings(tmp_path, kubelet, "enforce"), node, FACTS):
        await until(lambda: is_ready(node))
        pod = gpu_pod("p", 2)
        await kubelet.run(pod)
        await kubelet.started(pod)
        assert (pod.phase, pod.env("c0")) == (Phase.RUNNING, set(GPUS[2:]))
        await until(lambda: held(node) == dict.fromkeys(GPUS[2:], "p"), timeout_seconds=goal(5))
        await kubelet.kill()
        await until(lambda: not is_ready(node), timeout_seconds=goal(5))
        await kubelet.start()
        await until(lambda: is_ready(node))


@pytest.mark.slow
async def test_enforcing_agent_computes_values_in_the_background(tmp_path: Path, kubelet: KubeletDouble) -> None:
    """It serves before they are there, by a formula; then ties are broken as the extender breaks them.

    They are begun when it had to choose for the first time.
    """
    node = FakeNode()
    with capture_logs() as logs, running(settings(tmp_path, kubelet, "enforce"), node, FACTS):
        await until(lambda: is_ready(node))
        await kubelet.run(gpu_pod("unplanned", 1))
        await until(lambda: any(entry["event"] == "free GPUs have computed values" for entry in logs))


async def test_plan_that_only_the_watch_has_told_is_kept(tmp_path: Path, kubelet: KubeletDouble) -> None:
    """The API server answers no read any more."""
    node, written, heard = FakeNode(), Event(), Event()

    def follow() -> Iterator[NodeVersion]:
        written.wait()
        yield NodeVersion("7", ledger=ledger_for_p())
        heard.set()
        raise ApiError(0, "nobody there")

    with running(settings(tmp_path, kubelet, "enforce"), node, FACTS, follow):
        await until(lambda: is_ready(node))
        node.failure = ApiError(0, "nobody there")
        written.set()
        await until(heard.is_set)
        await kubelet.run(pod := gpu_pod("p", 2))
        await kubelet.started(pod)
        assert (pod.phase, pod.env("c0")) == (Phase.RUNNING, set(GPUS[2:]))
