"""A stand-in for NVIDIA's driver-manager 0.12, the first container of each driver pod: it does to a node what that does.

The steps are those of `cmd/driver-manager/main.go`. What controllers do meanwhile, end the pods whose label says so, is the
test's to do: none runs here.
"""

from tests.cluster.nodes.node import GpuNode
from tests.cluster.objects import GPU, NODES, PODS

LABEL = "nvidia.com/gpu.deploy."
OPERANDS = (
    "container-toolkit",
    "device-plugin",
    "gpu-feature-discovery",
    "dcgm",
    "dcgm-exporter",
    "operator-validator",
)
CLIENT = "client"
"""Known to GPU operators from 26.7 on."""
PAUSED = "paused-for-driver-upgrade"


class ModuleInUse(Exception):
    """`rmmod` fails: these processes have the driver open."""


class DriverManager:
    """On one node. Where an operand is already set to something by `values`, it stays so, as with the real operator.

    Args:
        node: whose driver it is to change.
        operands: what the operator knows.
        values: of labels that a person has set.

    """

    def __init__(self, node: GpuNode, *operands: str, **values: str) -> None:
        self._node = node
        self._operands = operands
        said = {name.replace("_", "-"): value for name, value in values.items()}
        self._label({name: said.get(name, "true") for name in operands})

    def pause(self) -> None:
        """Have the operands' pods leave: each label is another one until `resume`, but for those that are off."""
        self._label({name: _paused(value) for name, value in self._labels().items()})

    def evict(self) -> None:
        """Delete the pods with GPUs in a container that is no init container; return when they are gone."""
        found = self._node.plane.admin.list(PODS, fieldSelector=f"spec.nodeName={self._node.name}")
        for pod in found:
            if any(GPU in each["resources"].get("limits", {}) for each in pod["spec"]["containers"]):
                self._node.plane.admin.delete(f"{PODS}/{pod['metadata']['name']}")

    def unload(self) -> None:
        """Take the module out of the kernel; raises `ModuleInUse`."""
        if users := self._node.machine.users():
            raise ModuleInUse(sorted(users))
        self._node.machine.say("init DRIVER_NOT_LOADED")

    def load(self, version: str) -> None:
        """Load the module of another driver."""
        self._node.machine.repair()
        self._node.machine.say(f"driver {version}")

    def resume(self) -> None:
        """Put the labels back."""
        self._label({name: _resumed(value) for name, value in self._labels().items()})

    def _labels(self) -> dict[str, str]:
        labels = self._node.object()["metadata"]["labels"]
        return {name: labels[LABEL + name] for name in self._operands}

    def _label(self, values: dict[str, str]) -> None:
        labels = {LABEL + name: value for name, value in values.items()}
        self._node.plane.admin.patch(f"{NODES}/{self._node.name}", {"metadata": {"labels": labels}})


def _paused(value: str) -> str:
    if value in ("", "false"):
        return value
    return PAUSED if value == "true" else f"{value}_{PAUSED}"


def _resumed(value: str) -> str:
    return "true" if value == PAUSED else value.removesuffix(f"_{PAUSED}")
