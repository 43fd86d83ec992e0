"""A node for tests of limits: a fake NVML of driver r615 under the real binding, and cgroups in a folder."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.gpus.facts import Known
from agent.gpus.memory_limits import GpuCgroup
from agent.gpus.nvml.cgroup_limits import read_limits, set_limits
from agent.limits.cgroups import PodCgroups
from agent.limits.level import LimitsLevel
from agent.limits.limiter import Backends, Limiter
from agent.limits.mps import MpsDaemons
from agent.limits.share import GIB, Share
from tests.nvml.library import FakeNvml, machine

GPUS = tuple(f"GPU-41000000-0000-4000-8000-00000000000{index}" for index in range(8))
UID = "6b0c3f0e-0000-4000-8000-000000000001"


def share(gib: int, container: str = "main", gpu: int = 0, uid: str = UID) -> Share:
    """Return a share of a container."""
    return Share(uid, "default", "pod", container, GPUS[gpu], gib)


@dataclass
class Node:
    """One node's folders, driver and limiter; entering `driver` lets this interpreter's NVML be that driver."""

    folder: Path
    nvml: FakeNvml
    said: list[str] = field(default_factory=lambda: ["driver 615.65.01", "limits misc"])
    now: float = 0.0
    told: list[LimitsLevel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.folder / "cgroup"
        self.top = self.root / "kubepods.slice"
        self.top.mkdir(parents=True)
        (self.root / "cgroup.controllers").write_text("cpu memory\n")
        self.description = self.folder / "machine.nvml"

    @contextmanager
    def driver(self) -> Iterator[None]:
        """Be the driver that was described."""
        self.describe()
        with self.nvml.loaded(self.description):
            yield

    def describe(self, *more: str) -> None:
        """Write what the driver is from its next start on."""
        self.said.extend(more)
        self.description.write_text("\n".join([machine("hgx_h100").read_text(), *self.said, ""]))

    def load_driver_anew(self) -> None:
        """Have the driver forget all limits."""
        Path(f"{self.description}.limits").unlink(missing_ok=True)

    def pod(self, uid: str = UID, qos: str = "burstable") -> Path:
        """Make the cgroup of a pod as the kubelet does with systemd."""
        escaped = uid.replace("-", "_")
        parent = self.top / f"kubepods-{qos}.slice" if qos else self.top
        pod = parent / f"kubepods-{qos}-pod{escaped}.slice" if qos else parent / f"kubepods-pod{escaped}.slice"
        pod.mkdir(parents=True)
        return pod

    def limiter(self, *, required: bool = True, mps: bool = False) -> Limiter:
        """Return a new agent's."""
        daemons = MpsDaemons(self.folder / "mps", "nvidia.com/gpu") if mps else None
        backends = Backends(set_limits, read_limits, PodCgroups(self.root), daemons)
        return Limiter(backends, required=required, clock=lambda: self.now, tell=self.told.append)

    def limits(self, cgroup: Path) -> dict[int, int]:
        """Return GPU → GiB of the limits that the driver holds for a cgroup."""
        told = read_limits([GpuCgroup(gpu, str(cgroup)) for gpu in GPUS])
        found = {place.gpu: answer.value.hard_bytes for place, answer in told.items() if isinstance(answer, Known)}
        return {GPUS.index(gpu): limit // GIB for gpu, limit in found.items() if limit is not None}

    def all_limits(self) -> Sequence[str]:
        """Return a line for each limit that the driver holds, whose ever it is."""
        self.limits(self.root)
        file = Path(f"{self.description}.limits")
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def listening(pipe: Path) -> Iterator[None]:
    """Have an MPS daemon's socket answer in a folder."""
    pipe.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.bind(str(pipe / "control"))
        control.listen()
        yield


def with_gib(before: Share, gib: int) -> Share:
    """Return the share with another amount."""
    return replace(before, memory_gib=gib)
