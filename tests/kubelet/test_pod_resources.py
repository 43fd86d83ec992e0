"""What the agent asks its kubelet's PodResources service for, and what it hears where nobody serves that."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import KubeletUnavailable
from agent.kubelet.pod_resources import PodResourcesClient
from tests.kubelet.double import KubeletDouble
from tests.kubelet.pods import gpu_pod


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
