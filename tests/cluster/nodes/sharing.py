"""A node whose kubelet makes cgroups for pods, whose driver holds memory limits, and whose GPUs are shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.api import Json
from tests.cluster.nodes import cgroups
from tests.cluster.nodes.agents import AgentProcess
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import container
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.objects import NODES, PODS
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger

GIB = 1 << 30
_WITH_V2 = ("unshare", "--mount", "sh", "-c", f'mount --bind {{}} {cgroups.ROOT} && exec "$0" "$@"')
_DRIVER = "driver 615.65.01\nlimits misc\n"


@dataclass(frozen=True, slots=True)
class Held:
    """A limit that the driver holds."""

    gpu: int
    cgroup: str
    """Below the node's own."""
    gib: float


class SharingNode:
    """One node; its name is n0, and its containers are real where a runtime is given."""

    def __init__(self, nodes: Nodes, runtime: Runtime | None, said: str = _DRIVER) -> None:
        cgroups.make("n0")
        self._root = cgroups.cgroup_of("n0")
        self.node = nodes.one("hgx_h100", runtime, {"cgroupsPerQOS": True, "cgroupRoot": self._root})
        self.node.machine.become(lambda text: text + said)
        self._claims: list[Claim] = []
        self._generation = 0

    def share(self, limits: str = "required") -> AgentProcess:
        """Start an agent that shares all GPUs, and sees cgroup v2 as on a host that has nothing else."""
        found = cgroups.v2()
        through = [*_WITH_V2[:-1], _WITH_V2[-1].format(found)]
        sections: Mapping[str, Any] = {"sharing": {"gpus": "all", "limits": limits}}
        agent = AgentProcess(self.node, "enforce", sections=sections, through=through)
        agent.run()
        return agent

    def start(self, name: str, gpu: int, *gib: int) -> str:
        """Have a pod with a container for each share start on a GPU, by the ledger; return its UID."""
        containers = [container(f"c{number}", 0) for number in range(len(gib))]
        for each, amount in zip(containers, gib, strict=True):
            each["resources"] = {"limits": {keys.SHARE_RESOURCE: str(amount)}}
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
        }
        api = self.node.plane.admin
        uid: str = api.post(PODS, pod)["metadata"]["uid"]
        uuid = self.node.machine.uuids[gpu]
        self._claims += [
            Claim(uuid, uid, "default", name, f"c{number}", "1", memory_gib=amount) for number, amount in enumerate(gib)
        ]
        self._write_ledger()
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self.node.name}}
        api.post(f"{PODS}/{name}/binding", target)
        return uid

    def end(self, name: str) -> None:
        """Delete a pod; its claims stay until `release`, as those of a pod whose end is not proven."""
        self.node.plane.admin.delete(f"{PODS}/{name}")

    def have_gone(self, uids: Iterable[str]) -> bool:
        """Whether no pod of these has a cgroup any more."""
        return not any(self.cgroup(uid).exists() for uid in uids)

    def release(self, name: str) -> None:
        """Take a pod's claims out of the ledger."""
        self._claims = [claim for claim in self._claims if claim.name != name]
        self._write_ledger()

    def held(self) -> set[Held]:
        """Return what the driver holds for this node's cgroups."""
        file = Path(f"{self.node.machine.description}.limits")
        lines = file.read_text().splitlines() if file.exists() else []
        found = set()
        for line in lines:
            uuid, _, _, _, hard, path = line.split(" ", 5)
            cgroup = path.removeprefix(f"{cgroups.ROOT}{self._root}/kubepods/")
            found.add(Held(self.node.machine.uuids.index(uuid), cgroup, int(hard) / GIB))
        return found

    def load_driver_anew(self) -> None:
        """Have the driver forget all limits."""
        Path(f"{self.node.machine.description}.limits").unlink()

    def cgroup(self, uid: str) -> Path:
        """Return the cgroup of a pod, as it is seen here."""
        found = cgroups.v2()
        assert found is not None
        return found / self._root[1:] / "kubepods" / "besteffort" / f"pod{uid}"

    def _write_ledger(self) -> None:
        self._generation += 1
        uid = self.node.object()["metadata"]["uid"]
        ledger = encode_ledger(Ledger(self._generation, tuple(self._claims), uid))
        patch = {"metadata": {"annotations": {keys.LEDGER: ledger}}}
        self.node.plane.admin.patch(f"{NODES}/{self.node.name}", patch)
