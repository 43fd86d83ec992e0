"""What the processes in real containers see of the GPUs, read from their logs as `kubectl logs` prints them."""

import json
from dataclasses import dataclass

from tests.cluster.nodes.node import GpuNode
from tests.cluster.polling import eventually


@dataclass(frozen=True, slots=True)
class View:
    """What our program `inside` found."""

    env: dict[str, str]
    """Variables about GPUs."""
    devices: set[str]
    """Paths of device nodes."""


def seen_inside(node: GpuNode, pod: str, container: str = "main") -> View:
    """Return what a running container has printed at its start."""
    line = eventually(lambda: node.log_of(pod, container).partition("\n")[0])
    found = json.loads(line)
    return View(found["env"], set(found["devices"]))
