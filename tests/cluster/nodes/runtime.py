"""Where a node's containers run: in a runtime that starts nothing and remembers what it was asked."""

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.cluster.component import Component
from tests.cluster.nodes.namespaces import Namespaces, NodeProcess
from tests.cluster.polling import eventually


@dataclass(frozen=True, slots=True)
class Started:
    """What the kubelet asked the runtime to inject into a container that was then started."""

    pod: str
    uid: str
    container: str
    attempt: int
    env: dict[str, str]
    cdi_devices: tuple[str, ...]
    devices: tuple[str, ...]
    """Paths inside the container."""
    annotations: dict[str, str]


class ContainerRuntime(ABC):
    """The CRI of one node."""

    socket: str
    """Inside the node."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it serves."""

    def is_listening(self) -> bool:
        """Whether somebody takes connections: after a reboot there is a socket before there is a runtime."""
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(self.socket) == 0

    @property
    @abstractmethod
    def components(self) -> Sequence[Component]:
        """Its processes, for their logs."""


Runtime: TypeAlias = Callable[[str, Namespaces, Path, Path], ContainerRuntime]
"""Makes a node's runtime from its name, its namespaces, its folder and the folder of our tools."""


class FakeRuntime(ContainerRuntime):
    """Our `fakecri`: every container that is created runs until it is stopped."""

    def __init__(self, node: str, inside: Namespaces, state: Path, tools: Path) -> None:
        del node
        self._shared = state / "cri"
        self._shared.mkdir()
        self.socket = str(self._shared / "cri.sock")
        self._record = self._shared / "started.jsonl"
        self._process = NodeProcess("fakecri", inside, state, [tools / "fakecri", self.socket, self._record])

    def start(self) -> None:
        """Start it, and return when it serves."""
        self._process.start()
        eventually(self.is_listening)

    @property
    def components(self) -> Sequence[Component]:
        """Its process."""
        return [self._process]

    def started(self) -> list[Started]:
        """Return the containers that were ever started, in that order."""
        lines = map(json.loads, self._record.read_text().splitlines())
        return [
            Started(
                pod=line["pod"],
                uid=line["uid"],
                container=line["container"],
                attempt=line["attempt"],
                env=dict(line["env"]),
                cdi_devices=tuple(line["cdi_devices"]),
                devices=tuple(line["devices"]),
                annotations=line["annotations"] or {},
            )
            for line in lines
        ]
