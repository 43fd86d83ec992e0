"""What a container is told of its GPUs, and of the RDMA devices beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.kubelet.device_plugin import Injection
from tests.kubelet.node import AgentOnNode
from tests.kubelet.pods import gpu_pod

NICS = {"GPU-a": ("mlx5_1", "mlx5_10"), "GPU-b": ("mlx5_1",), "GPU-c": ()}


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        (("GPU-b", "GPU-a"), "=mlx5_1,mlx5_10"),
        (("GPU-a",), "=mlx5_1,mlx5_10"),
        (("GPU-a", "GPU-c"), None),
        (("GPU-strange",), None),
    ],
)
def test_nccl_is_told_of_devices_only_where_each_gpu_has_one(gpus: tuple[str, ...], told: str | None) -> None:
    """By whole names, each once; otherwise it would use a device that is far from a GPU, and no other."""
    answer = Injection(env=True, cdi_kind=None, nics=NICS).of(gpus)
    assert answer.envs.get("NCCL_IB_HCA") == told
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(gpus)


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_nccl_is_told_of_devices_only_if_that_is_wanted(tmp_path: Path, *, is_wanted: bool) -> None:
    """A container may know the devices by other names."""
    settings = {"enforce.ncclIbHca": str(is_wanted).lower()}
    async with AgentOnNode(tmp_path, settings=settings) as node:
        pod = await node.place(gpu_pod("train", 3), [0, 1, 2])
        assert pod.started["c0"].envs.get("NCCL_IB_HCA") == ("=mlx5_0,mlx5_1" if is_wanted else None)
