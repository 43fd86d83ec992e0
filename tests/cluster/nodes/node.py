"""A real node: a kubelet that believes in a machine with GPUs, on a container runtime, in namespaces of its own."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster.api import ApiError, Json
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import cgroups
from tests.cluster.nodes.kubelet import DEVICE_PLUGINS, ROOT, Kubelet
from tests.cluster.nodes.machine import Machine, write_capabilities, write_cdi, write_cpus, write_numa, write_pci
from tests.cluster.nodes.namespaces import Namespaces, NodeProcess
from tests.cluster.nodes.network import Network
from tests.cluster.nodes.runtime import FakeRuntime, Runtime, Started
from tests.cluster.objects import GPU, NODES
from tests.cluster.polling import eventually
from tests.nvml.library import FakeNvml

FLAGS: Mapping[str, object] = {"authorization-mode": "Node,RBAC", "enable-admission-plugins": "NodeRestriction"}
"""What a control plane with real nodes needs: a kubelet may see and change what is its own."""


def users(names: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the users that these nodes' kubelets are, for a control plane to know from its start."""
    return {f"system:node:{name}": ["system:nodes"] for name in names}


@dataclass(frozen=True, slots=True)
class Holding:
    """Devices of one resource that one container holds, as PodResources says; one entry per call may have one device only."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """What nodes are made of: the Kubernetes programs, our tools, and the fake NVML library."""

    kubernetes: Path
    tools: Path
    nvml: FakeNvml


class GpuNode:
    """One node; entering starts it and returns when it is Ready, leaving removes it from machine and cluster.

    Args:
        plane: made with `users` for this name and with `FLAGS`.
        name: the node's.
        machine: a description in `tests/nvml/machines`.
        parts: the programs.
        runtime: where containers run; by default in nobody's.
        settings: fields of its KubeletConfiguration.
        network: where it is, and its pods are; by default this machine's.
        cpus: how many the kubelet believes in; by default this machine's.
        root: the kubelet's root directory, inside.

    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        machine: str,
        parts: Parts,
        runtime: Runtime | None = None,
        settings: Mapping[str, Any] | None = None,
        network: Network | None = None,
        cpus: int = 0,
        root: str = ROOT,
    ) -> None:
        self.plane, self.name, self.parts = plane, name, parts
        self._cpus, self.root = cpus, root
        self.state = plane.state / "nodes" / name
        self._kubelet_root = self.state / "kubelet"
        self._kubelet_root.mkdir(parents=True)
        self.device_plugins = (self._kubelet_root if root == ROOT else self.state) / "device-plugins"
        """The kubelet's device plugin folder, as it is seen outside."""
        self.machine = Machine(name, machine, self.state / "driver", parts.nvml)
        self.inside = Namespaces("namespaces", self.state, self._binds(), network.pid if network else 0)
        self.runtime = (runtime or FakeRuntime)(name, self.inside, self.state, parts.tools)
        kubeconfig = plane.kubeconfig(f"system:node:{name}")
        kubelet, socket = parts.kubernetes / "kubelet", self.runtime.socket
        address = network.nodes if network else ""
        own = {"podLogsDir": str(self.state / "logs"), **(settings or {})}
        self.kubelet = Kubelet(name, self.inside, self.state, kubelet, kubeconfig, socket, own, address, root)
        self._processes: list[Component] = []

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start namespaces, runtime and kubelet."""
        self.inside.start()
        self.runtime.start()
        self.kubelet.start()

    def wait_ready(self, within_seconds: float = 60.0) -> None:
        """Return when the cluster sees the node Ready."""
        eventually(self.is_ready, within_seconds)

    def is_ready(self) -> bool:
        """Whether the cluster sees the node Ready."""
        try:
            conditions = self.object()["status"].get("conditions", ())
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return False
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def power_off(self) -> None:
        """End all that runs on the node, at once; the cluster still knows it, and its disk is kept."""
        self.inside.stop()
        for process in self.components:
            process.kill()

    def forget_disk(self) -> None:
        """Have nothing left of what the kubelet had written down, as on another machine."""
        for entry in (self.device_plugins, *self._kubelet_root.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry)
        self.device_plugins.mkdir()

    def stop(self) -> None:
        """End all that runs on the node, then let the cluster forget it."""
        self.power_off()
        for path in (f"{NODES}/{self.name}", f"/apis/storage.k8s.io/v1/csinodes/{self.name}"):
            with suppress(ApiError):
                self.plane.admin.delete(path)
        cgroups.remove(self.name)
        shutil.rmtree(self.state, ignore_errors=True)

    @property
    def components(self) -> list[Component]:
        """All processes of the node, for their logs."""
        return [*self._processes, self.kubelet, *self.runtime.components, self.inside]

    def run(self, name: str, *command: str | Path, ready_url: str = "", **environment: str) -> NodeProcess:
        """Start a program on the node; it finds the node's GPUs."""
        variables = {**self.machine.environment, **environment}
        process = NodeProcess(name, self.inside, self.state, list(command), variables, ready_url)
        self.adopt(process)
        process.start()
        return process

    def adopt(self, process: NodeProcess) -> None:
        """Count a process among the node's components."""
        self._processes.append(process)

    def object(self) -> Json:
        """Return the Node as the API has it."""
        return self.plane.admin.get(f"{NODES}/{self.name}")

    def annotation(self, key: str) -> str | None:
        """Return an annotation of the Node."""
        text: str | None = self.object()["metadata"].get("annotations", {}).get(key)
        return text

    def allocatable(self, resource: str = GPU) -> int:
        """Return how many devices the cluster believes the node has to give."""
        return int(self.object()["status"].get("allocatable", {}).get(resource, 0))

    def wait_allocatable(self, gpus: int, within_seconds: float = 60.0) -> None:
        """Return when the cluster believes that the node has so many GPUs to give."""
        eventually(lambda: self.allocatable() == gpus, within_seconds)

    def holdings(self) -> list[Holding]:
        """Return who holds what, as the kubelet's PodResources says; the kubelet must be there."""
        return [Holding(**{**each, "ids": tuple(each["ids"])}) for each in self._ask("resources")]

    def claimed(self) -> set[tuple[str, str]]:
        """Return the pods with the devices that the kubelet lists for their ResourceClaims."""
        return {(each["pod"], each["device"]) for each in self._ask("claims")}

    def started(self) -> list[Started]:
        """Return the containers that were ever started, and what was to be injected; only a fake runtime knows."""
        assert isinstance(self.runtime, FakeRuntime)
        return self.runtime.started()

    def offered(self) -> set[str]:
        """Return the devices that the kubelet knows to be healthy now, held or not; empty while there is no kubelet."""
        return {*self.numa_nodes()}

    def numa_nodes(self) -> dict[str, list[int]]:
        """Return offered device → the NUMA nodes that it is near, as the kubelet was told; empty while there is no kubelet."""
        try:
            near: dict[str, list[int]] = self._ask("allocatable")
        except subprocess.CalledProcessError:
            return {}
        return near

    def held(self, resource: str = GPU, listed: Iterable[Holding] | None = None) -> dict[tuple[str, str], set[str]]:
        """Return the devices of each container, by pod and container name; those that were `listed`, or now."""
        devices: dict[tuple[str, str], set[str]] = {}
        for each in self.holdings() if listed is None else listed:
            if each.resource == resource:
                devices.setdefault((each.pod, each.container), set()).update(each.ids)
        return devices

    def checkpoint(self) -> dict[str, set[str]]:
        """Return the GPUs of each pod in the kubelet's checkpoint file, by UID."""
        document = json.loads((self.device_plugins / "kubelet_internal_checkpoint").read_text())
        gpus: dict[str, set[str]] = {}
        for entry in document["Data"]["PodDeviceEntries"] or ():
            if entry["ResourceName"] == GPU:
                ids = (each for of_numa_node in entry["DeviceIDs"].values() for each in of_numa_node)
                gpus.setdefault(entry["PodUID"], set()).update(ids)
        return gpus

    def log_of(self, pod: str, container: str) -> str:
        """Return what the newest such container has printed; empty while there is nothing."""
        files = (self.state / "logs").glob(f"default_{pod}_*/{container}/*.log")
        newest = max(files, key=lambda file: file.stat().st_mtime_ns, default=None)
        lines = newest.read_text().rpartition("\n")[0].splitlines() if newest else []
        # Each is `TIME STREAM F TEXT`, and the last may be half written.
        return "".join(f"{line.split(' ', 3)[3]}\n" for line in lines)

    def _ask(self, question: str) -> Any:
        socket = self._kubelet_root / "pod-resources" / "kubelet.sock"
        asked = subprocess.run([self.parts.tools / "ask", question, socket], capture_output=True, text=True, check=True)
        return json.loads(asked.stdout)

    def _binds(self) -> dict[Path, str]:
        numa, pci, cdi, proc = (self.state / name for name in ("numa", "pci", "cdi", "proc-driver"))
        write_capabilities(self.machine.topology, proc)
        write_numa(self.machine.topology, numa, range(self._cpus) or sorted(os.sched_getaffinity(0)))
        write_pci(self.machine.topology, pci)
        write_cdi(self.machine.topology, cdi)
        binds = {
            self._kubelet_root: self.root,
            numa: "/sys/devices/system/node",
            pci: "/sys/bus/pci/devices",
            cdi: "/run/cdi",
            proc: "/proc/driver",
        }
        if self.root != ROOT:
            self.device_plugins.mkdir()
            binds[self.device_plugins] = DEVICE_PLUGINS
        if self._cpus:
            cpus = self.state / "cpus"
            write_cpus(cpus, self._cpus)
            binds[cpus] = "/sys/devices/system/cpu"
        return binds
