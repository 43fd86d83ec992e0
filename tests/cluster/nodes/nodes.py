"""Several real nodes of one control plane, started together and removed together."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes.kubelet import ROOT
from tests.cluster.nodes.node import GpuNode, Parts
from tests.cluster.nodes.runtime import Runtime

_APART_SECONDS = 0.3
"""Many kubelets that start at once stumble over their own Nodes, which are not there yet, and wait fifteen seconds."""


class Nodes:
    """The nodes that a test has started in `plane`."""

    def __init__(self, plane: ControlPlane, parts: Parts) -> None:
        self.plane, self.parts = plane, parts
        self._nodes: list[GpuNode] = []

    def __iter__(self) -> Iterator[GpuNode]:
        return iter(self._nodes)

    def start(
        self,
        machines: Mapping[str, str],
        runtime: Runtime | None = None,
        settings: Mapping[str, Any] | None = None,
        cpus: int = 0,
        root: str = ROOT,
    ) -> list[GpuNode]:
        """Start a node for each name, with the machine named beside it; return when all are Ready."""
        started: list[GpuNode] = []
        for name, machine in machines.items():
            if started:
                time.sleep(_APART_SECONDS)
            node = GpuNode(self.plane, name, machine, self.parts, runtime, settings, cpus=cpus, root=root)
            started.append(node)
            self._nodes.append(node)
            node.start()
        for node in started:
            node.wait_ready()
        return started

    def one(
        self,
        machine: str,
        runtime: Runtime | None = None,
        settings: Mapping[str, Any] | None = None,
        cpus: int = 0,
        root: str = ROOT,
    ) -> GpuNode:
        """Start a single node."""
        (node,) = self.start({f"n{len(self._nodes)}": machine}, runtime, settings, cpus, root)
        return node

    def stop(self) -> None:
        """Remove all nodes."""
        while self._nodes:
            self._nodes.pop().stop()

    @property
    def components(self) -> list[Component]:
        """All processes of all nodes, for their logs."""
        return [component for node in self._nodes for component in node.components]
