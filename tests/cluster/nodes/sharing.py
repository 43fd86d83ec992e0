"""A node whose ledger the test writes, so that a pod starts on the GPU that the test says."""

from __future__ import annotations

from tests.cluster.api import Json
from tests.cluster.nodes.limited import LimitedNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import share_pod
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.objects import NODES, PODS
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger


class SharingNode(LimitedNode):
    """One node, without scheduler and extender."""

    def __init__(self, nodes: Nodes, runtime: Runtime | None, **said: str) -> None:
        super().__init__(nodes, runtime, **said)
        self._claims: list[Claim] = []
        self._generation = 0

    def start(self, name: str, gpu: int, *gib: int) -> str:
        """Have a pod with a container for each share start on a GPU, by the ledger; return its UID."""
        api, pod = self.node.plane.admin, share_pod(name, *gib)
        uid: str = api.post(PODS, pod)["metadata"]["uid"]
        uuid, containers = self.node.machine.uuids[gpu], [each["name"] for each in pod["spec"]["containers"]]
        self._claims += [
            Claim(uuid, uid, "default", name, container, "1", memory_gib=amount)
            for container, amount in zip(containers, gib, strict=True)
        ]
        self._write_ledger()
        target: Json = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self.node.name}}
        api.post(f"{PODS}/{name}/binding", target)
        return uid

    def end(self, name: str) -> None:
        """Delete a pod; its claims stay until `release`, as those of a pod whose end is not proven."""
        self.node.plane.admin.delete(f"{PODS}/{name}")

    def release(self, name: str) -> None:
        """Take a pod's claims out of the ledger."""
        self._claims = [claim for claim in self._claims if claim.name != name]
        self._write_ledger()

    def _write_ledger(self) -> None:
        self._generation += 1
        uid = self.node.object()["metadata"]["uid"]
        ledger = encode_ledger(Ledger(self._generation, tuple(self._claims), uid))
        patch = {"metadata": {"annotations": {keys.LEDGER: ledger}}}
        self.node.plane.admin.patch(f"{NODES}/{self.node.name}", patch)
