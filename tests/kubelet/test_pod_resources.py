"""What the agent asks its kubelet's PodResources service for, and what it hears where nobody serves that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.errors import KubeletUnavailable
from agent.kubelet.api.podresources_pb2 import ClaimResource, ContainerResources, DynamicResource, PodResources
from agent.kubelet.listing.pod_resources import PodResourcesClient
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from tests.extender.polling import until
from tests.kubelet.double import KubeletDouble
from tests.kubelet.pods import gpu_pod


async def asked(kubelet: KubeletDouble) -> tuple[PodResourcesClient, asyncio.Task[tuple[ListedPod, ...]]]:
    """Return a client, and its list that the kubelet does not answer for now."""
    kubelet.hang_lists = True
    resources = PodResourcesClient(kubelet.pod_resources / "kubelet.sock", "nvidia.com/gpu")
    listing = asyncio.create_task(resources.pods(30.0))
    await until(lambda: kubelet.lists)
    return resources, listing


async def test_kubelet_without_a_socket_is_not_called(tmp_path: Path) -> None:
    """The reason names the socket; once there is one, the same client is answered."""
    kubelet = KubeletDouble(tmp_path)
    resources = PodResourcesClient(kubelet.pod_resources / "kubelet.sock", "nvidia.com/gpu")
    with pytest.raises(KubeletUnavailable, match=r"there is no socket .*/kubelet\.sock"):
        await resources.pods(5.0)
    async with kubelet:
        await kubelet.run(gpu_pod("p", 0))
        assert [pod.name for pod in await resources.pods(5.0)] == ["p"]
        await resources.close()


async def test_devices_of_nvidias_driver_are_read_with_claim_and_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network driver's devices are of no concern, and kubelets before 1.31 name no driver."""
    names = ("gpu.nvidia.com", "n1", "gpu-3"), ("nic.example.com", "n1", "nic-0"), ("", "", "")
    resources = [
        ClaimResource(driver_name=driver, pool_name=pool, device_name=device) for driver, pool, device in names
    ]
    item = DynamicResource(claim_name="p-gpus", claim_namespace="default", claim_resources=resources)
    listed = PodResources(name="p", namespace="default", containers=[ContainerResources(name="main")])
    listed.containers[0].dynamic_resources.append(item)
    monkeypatch.setattr("tests.kubelet.double._PodResources._pod", lambda service, pod: listed)
    async with KubeletDouble(tmp_path) as kubelet:
        await kubelet.run(gpu_pod("p", 0))
        client = PodResourcesClient(kubelet.pod_resources / "kubelet.sock", "nvidia.com/gpu")
        (pod,) = await client.pods(5.0)
        assert pod.containers == (ListedContainer("main", claimed=frozenset({("p-gpus", "n1", "gpu-3")})),)
        await client.close()


async def test_list_under_way_outlives_the_socket(tmp_path: Path) -> None:
    """Another caller finds that the socket is gone meanwhile, and leaves the channel to the one whose turn it is."""
    async with KubeletDouble(tmp_path) as kubelet:
        resources, listing = await asked(kubelet)
        (kubelet.pod_resources / "kubelet.sock").unlink()
        with pytest.raises(KubeletUnavailable):
            await resources.pods(0.1)
        kubelet.hang_lists = False
        assert await listing == ()
        await resources.close()


async def test_list_under_way_fails_when_its_channel_is_closed(tmp_path: Path) -> None:
    """It is not cancelled, as gRPC has it: nobody would hear of that where a task group runs the caller."""
    async with KubeletDouble(tmp_path) as kubelet:
        resources, listing = await asked(kubelet)
        await resources.close()
        with pytest.raises(KubeletUnavailable, match="the channel was closed"):
            await listing


async def test_list_that_is_cancelled_ends_as_cancelled(tmp_path: Path) -> None:
    """Whoever ends the caller does not hear that the kubelet is away."""
    async with KubeletDouble(tmp_path) as kubelet:
        resources, listing = await asked(kubelet)
        listing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listing
        await resources.close()
