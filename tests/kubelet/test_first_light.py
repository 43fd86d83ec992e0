"""A pod gets exactly the GPUs that the ledger promises to it."""

from __future__ import annotations

from pathlib import Path

from tests.kubelet.node import AgentOnNode
from tests.kubelet.pods import gpu_pod


async def test_container_gets_the_promised_gpus(tmp_path: Path) -> None:
    """Not the best ones, not the first ones: the promised ones, in its environment and in the kubelet's books."""
    async with AgentOnNode(tmp_path) as node:
        pod = await node.place(gpu_pod("train", 3), [1, 4, 6])
        assert node.got(pod) == [node.named(1, 4, 6)]
        assert node.kubelet.holders() == dict.fromkeys(node.named(1, 4, 6), "uid-train")
