"""Devices that Google's plugin names after device nodes are the GPUs with these nodes, whatever NVML's order is."""

from agent.plugin.devices.device_names import uuids_by_name, with_uuid
from topology.node.model import Gpu, NodeTopology
from topology.node.slices import Slice

GPUS = tuple(Gpu(index, f"GPU-{index}", "NVIDIA H100", mig_enabled=index == 2) for index in range(3))
MINORS = {"GPU-0": 3, "GPU-1": 0, "GPU-2": 1}


def part(uuid: str, gpu_instance: int, compute_instance: int = 0) -> Slice:
    return Slice(2, uuid, "1g.10gb", 10 << 30, gpu_instance, 1, gpu_instance, compute_instance)


def test_gpus_are_named_by_the_number_of_their_device_node() -> None:
    """NVML counts by bus id, the driver by the order in which it found the GPUs."""
    assert uuids_by_name(NodeTopology(GPUS[:2]), MINORS) == {"nvidia3": "GPU-0", "nvidia0": "GPU-1"}


def test_gpu_without_a_number_has_no_such_name() -> None:
    """A guess by index could be another GPU."""
    assert uuids_by_name(NodeTopology(GPUS[:2]), {"GPU-1": 0}) == {"nvidia0": "GPU-1"}


def test_partitions_are_named_by_their_gpu_instance() -> None:
    """One with two compute instances is none that Google's plugin would make."""
    topology = NodeTopology(GPUS, slices=(part("MIG-a", 7), part("MIG-b", 8, 0), part("MIG-c", 8, 1)))
    assert uuids_by_name(topology, {"GPU-2": 1}) == {"nvidia1": "GPU-2", "nvidia1/gi7": "MIG-a"}


def test_replicas_are_named_as_nvidias_plugin_names_them() -> None:
    """So what is said of shared GPUs is said of these, too."""
    uuids = {"nvidia3": "GPU-0", "nvidia1/gi7": "MIG-a"}
    assert [with_uuid(name, uuids) for name in ("nvidia3/vgpu2", "nvidia1/gi7/vgpu0")] == ["GPU-0::2", "MIG-a::0"]


def test_names_of_other_plugins_stay() -> None:
    """A UUID is one already; what nobody knows must not be taken for a GPU of the node."""
    uuids = {"nvidia3": "GPU-0"}
    names = ["GPU-0", "GPU-0::3", "nvidia30", "nvidia", "nvidia3/gi1", "mlx5_0", ""]
    assert [with_uuid(name, uuids) for name in names] == names
