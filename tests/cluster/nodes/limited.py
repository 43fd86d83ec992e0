"""A node whose kubelet makes cgroups for pods, whose driver holds memory limits, and whose GPUs are shared."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.nodes import cgroups
from tests.cluster.nodes.agents import AgentProcess, shares_gpus
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.runtime import Runtime

GIB = 1 << 30
QOS: Final = "besteffort"
"""The class of all pods of the tests: they ask for neither CPU nor memory."""
_WITH_V2 = ("unshare", "--mount", "sh", "-c", f'mount --bind {{}} {cgroups.ROOT} && exec "$0" "$@"')
_DRIVER = "driver 615.65.01\nlimits misc\n"
_LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Held:
    """A limit that the driver holds."""

    gpu: int
    cgroup: str
    """Below the node's own."""
    gib: float


class LimitedNode:
    """One node, the next of `nodes`; its containers are real where a runtime is given."""

    def __init__(self, nodes: Nodes, runtime: Runtime | None, machine: str = "hgx_h100", said: str = _DRIVER) -> None:
        name = f"n{len([*nodes])}"
        cgroups.make(name)
        self._root = cgroups.cgroup_of(name)
        self.node = nodes.one(machine, runtime, {"cgroupsPerQOS": True, "cgroupRoot": self._root})
        self.node.machine.become(lambda text: text + said)

    def share(self, limits: str = "required") -> AgentProcess:
        """Start an agent that shares all GPUs, and sees cgroup v2 as on a host that has nothing else."""
        through = [*_WITH_V2[:-1], _WITH_V2[-1].format(cgroups.v2())]
        sections: Mapping[str, Any] = {"sharing": {"gpus": "all", "limits": limits}}
        agent = AgentProcess(self.node, "enforce", sections=sections, through=through)
        agent.run()
        return agent

    def offers_shares(self) -> bool:
        """Whether cluster and kubelet have shares to give; after a kill the cluster believes so before the kubelet does."""
        return shares_gpus(self.node) and bool(self.node.offered() - {*self.node.machine.uuids})

    def cgroup(self, uid: str) -> Path:
        """Return the cgroup of a pod, as it is seen here."""
        return self._pods() / f"pod{uid}"

    def have_gone(self, uids: Iterable[str]) -> bool:
        """Whether no pod of these has a cgroup any more."""
        return not any(self.cgroup(uid).exists() for uid in uids)

    def held(self) -> set[Held]:
        """Return what the driver holds for this node's cgroups."""
        file = Path(f"{self.node.machine.description}.limits")
        found = set()
        for line in file.read_text().splitlines() if file.exists() else ():
            uuid, _, _, _, hard, path = line.split(" ", 5)
            cgroup = path.removeprefix(f"{cgroups.ROOT}{self._root}/kubepods/")
            found.add(Held(self.node.machine.uuids.index(uuid), cgroup, int(hard) / GIB))
        return found

    def is_held(self, uid: str, gib: Mapping[int, int]) -> bool:
        """Whether a pod and each of its containers are held to so much of these GPUs, and to nothing else."""
        pod = self.cgroup(uid)
        places = [pod.name, *(f"{pod.name}/{each.name}" for each in _children(pod))]
        wanted = {Held(gpu, f"{QOS}/{place}", float(amount)) for place in places for gpu, amount in gib.items()}
        return wanted == {each for each in self.held() if each.cgroup.startswith(f"{QOS}/{pod.name}")}

    def seen_in(self, cgroup: Path) -> list[set[str]]:
        """Return the GPUs that each process in a cgroup was told of; those that were told of none are left out."""
        return [gpus for pid in _processes(cgroup) if (gpus := _gpus_of(pid))]

    def unheld(self) -> set[str]:
        """Return the pods with a process that runs with a GPU of which the driver holds the pod to no share."""
        running = [
            (cgroup.parent.name, pid, gpus)
            for pod in _children(self._pods())
            for cgroup in _children(pod)
            for pid in _processes(cgroup)
            if (gpus := _gpus_of(pid))
        ]
        held = {(each.cgroup, self.node.machine.uuids[each.gpu]) for each in self.held()}
        loose = [each for each in running if not {(f"{QOS}/{each[0]}", gpu) for gpu in each[2]} <= held]
        return {pod for pod, pid, gpus in loose if _gpus_of(pid) == gpus}  # else it has ended meanwhile

    def load_driver_anew(self) -> None:
        """Have the driver forget all limits."""
        Path(f"{self.node.machine.description}.limits").unlink()

    def _pods(self) -> Path:
        found = cgroups.v2()
        assert found is not None
        return found / self._root[1:] / "kubepods" / QOS


@contextmanager
def watched(nodes: Iterable[LimitedNode]) -> Iterator[set[str]]:
    """Look all the time at what runs, for the length of a `with` block; the set tells the pods that ran unheld."""
    over, found, nodes = threading.Event(), set[str](), [*nodes]

    def look() -> None:
        while not over.wait(_LOOK_SECONDS):
            for node in nodes:
                found.update(node.unheld())

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        try:
            yield found
        finally:
            over.set()
    looking.result()


def _children(cgroup: Path) -> list[Path]:
    try:
        return [each for each in cgroup.iterdir() if each.is_dir()]
    except OSError:  # it has gone
        return []


def _processes(cgroup: Path) -> list[str]:
    try:
        return (cgroup / "cgroup.procs").read_text().split()
    except OSError:  # it has gone
        return []


def _gpus_of(pid: str) -> set[str]:
    """Return the GPUs in a process's environment; none if it has ended."""
    try:
        variables = Path("/proc", pid, "environ").read_bytes().decode().split("\0")
    except OSError:
        return set()
    named = [
        value for name, _, value in (each.partition("=") for each in variables) if name == "NVIDIA_VISIBLE_DEVICES"
    ]
    return {gpu for value in named for gpu in value.split(",") if gpu.startswith("GPU-")}
