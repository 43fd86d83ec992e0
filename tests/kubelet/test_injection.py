"""What a container is given of its GPUs, and of the devices beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.kubelet.api import deviceplugin_pb2 as api
from agent.kubelet.serving.device_nodes import DeviceNodes, mig_numbers, own_nodes
from agent.kubelet.serving.device_plugin import Injection
from tests.kubelet.node import AgentOnNode, write_cdi
from tests.kubelet.pods import gpu_pod
from topology.formats.catalog import machine
from topology.node.model import Gpu, NodeTopology
from topology.node.slices import Slice

NICS = {"GPU-a": ("mlx5_1", "mlx5_10"), "GPU-b": ("mlx5_1",), "GPU-c": ()}


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        (("GPU-b", "GPU-a"), "=mlx5_1,mlx5_10"),
        (("GPU-a",), "=mlx5_1,mlx5_10"),
        (("GPU-a", "GPU-c"), None),
        (("GPU-strange",), None),
    ],
)
def test_nccl_is_told_of_devices_only_where_each_gpu_has_one(gpus: tuple[str, ...], told: str | None) -> None:
    """By whole names, each once; otherwise it would use a device that is far from a GPU, and no other."""
    answer = Injection(env=True, cdi_kind=None, nics=NICS).of(gpus)
    assert answer.envs.get("NCCL_IB_HCA") == told
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(gpus)


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_nccl_is_told_of_devices_only_if_that_is_wanted(tmp_path: Path, *, is_wanted: bool) -> None:
    """A container may know the devices by other names."""
    settings = {"enforce.ncclIbHca": str(is_wanted).lower()}
    async with AgentOnNode(tmp_path, settings=settings) as node:
        pod = await node.place(gpu_pod("train", 3), [0, 1, 2])
        assert pod.started["c0"].envs.get("NCCL_IB_HCA") == ("=mlx5_0,mlx5_1" if is_wanted else None)


def host(folder: Path, *names: str) -> DeviceNodes:
    """Return the device nodes of a host that has these, and two GPUs."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return DeviceNodes(folder, {"GPU-a": ("nvidia1",), "GPU-b": ("nvidia0",)})


def paths(answer: api.ContainerAllocateResponse) -> list[str]:
    """Return the device nodes of an answer; each has the same path inside."""
    assert all((each.host_path, each.permissions) == (each.container_path, "rw") for each in answer.devices)
    return [each.host_path for each in answer.devices]


def test_device_nodes_are_the_drivers_and_those_of_the_gpus_that_are_there(tmp_path: Path) -> None:
    """A runtime refuses to start a container with a node that the host does not have."""
    nodes = host(tmp_path, "nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    answer = Injection(env=True, cdi_kind=None, nodes=nodes, passes_nodes=True).of(("GPU-a",))
    assert paths(answer) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"]
    shared = Injection(env=True, cdi_kind=None, nodes=nodes, passes_nodes=True).of(("GPU-b::3", "GPU-b::4"))
    assert paths(shared) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
    assert paths(Injection(env=True, cdi_kind=None, nodes=nodes).of(("GPU-a",))) == []


def test_slice_has_the_node_of_its_gpu_and_two_that_give_access(tmp_path: Path) -> None:
    """By the numbers that the driver tells; a slice without them has none, as a half would not work."""
    gpus = (Gpu(0, "GPU-a", "NVIDIA A100", mig_enabled=True), Gpu(1, "GPU-b", "NVIDIA A100"))
    slices = tuple(Slice(0, f"MIG-{number}", "1g.5gb", 5 << 30, number, 1, number, 0) for number in (7, 8))
    minors = tmp_path / "mig-minors"
    minors.write_text("config 1\nmonitor 2\ngpu3/gi7/access 66\ngpu3/gi7/ci0/access 67\ngpu3/gi8/access 75\nbad\n")
    nodes = own_nodes(NodeTopology(gpus, slices=slices), {"GPU-a": 3}, mig_numbers(minors))
    assert nodes == {
        "GPU-a": ("nvidia3",),
        "MIG-7": ("nvidia3", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"),
    }
    assert mig_numbers(tmp_path / "nowhere") == {}


def test_imex_channels_come_by_variable_and_node_or_by_cdi(tmp_path: Path) -> None:
    """One that the node does not have is left out, or no container would start."""
    nodes = host(tmp_path, "nvidia-caps-imex-channels/channel0")
    wanted = Injection(env=True, cdi_kind=None, nodes=nodes, passes_nodes=True, imex_channels=(0, 3)).of(("GPU-a",))
    assert (wanted.envs["NVIDIA_IMEX_CHANNELS"], paths(wanted)) == ("0", ["/dev/nvidia-caps-imex-channels/channel0"])
    legacy = Injection(env=True, cdi_kind=None, nodes=nodes, imex_channels=(0,)).of(("GPU-a",))
    assert (legacy.envs["NVIDIA_IMEX_CHANNELS"], paths(legacy)) == ("0", [])
    named = frozenset({"nvidia.com/imex-channel=0"})
    for specs, node, names in ((named, [], ["imex-channel=0"]), (frozenset(), ["channel0"], [])):
        answer = Injection(env=False, cdi_kind="nvidia.com/gpu", nodes=nodes, imex_channels=(0,), cdi_devices=specs).of(
            ("GPU-a",)
        )
        assert [path.rpartition("/")[2] for path in paths(answer)] == node
        assert [each.name.removeprefix("nvidia.com/") for each in answer.cdi_devices] == ["gpu=GPU-a", *names]
        assert "NVIDIA_IMEX_CHANNELS" not in answer.envs


def test_features_are_switched_on_by_variable_and_by_cdi_where_specs_have_them() -> None:
    """A name that no spec has would keep the container from starting."""
    plain = Injection(env=True, cdi_kind=None, features=("gdrcopy", "gds")).of(("GPU-a",))
    assert plain.envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-a", "NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled"}
    specs = frozenset({"nvidia.com/gds=all", "nvidia.com/mofed=all"})
    by_cdi = Injection(env=False, cdi_kind="nvidia.com/gpu", features=("gdrcopy", "gds"), cdi_devices=specs)
    names = [each.name for each in by_cdi.of(("GPU-a",)).cdi_devices]
    assert names == ["nvidia.com/gpu=GPU-a", "nvidia.com/gds=all"]


@pytest.mark.parametrize(
    ("settings", "has_nodes"),
    [
        ({"enforce.cdi": "never"}, True),
        ({"enforce.cdi": "never", "enforce.deviceSpecs": "never"}, False),
        ({"enforce.cdi": "always"}, False),
        ({"enforce.cdi": "always", "enforce.deviceSpecs": "always"}, True),
    ],
)
async def test_device_nodes_are_given_where_cdi_does_not_name_gpus(
    tmp_path: Path, settings: dict[str, str], *, has_nodes: bool
) -> None:
    """Twice would be once too often, and not at all lets a reload of systemd take the GPUs away."""
    host(tmp_path / "dev", "nvidiactl")
    write_cdi(tmp_path / "cdi", [gpu.uuid for gpu in machine("dgx-1v").gpus])
    async with AgentOnNode(tmp_path, settings={"enforce.devFolder": str(tmp_path / "dev"), **settings}) as node:
        pod = await node.place(gpu_pod("train", 1), [0])
        assert paths(pod.started["c0"]) == (["/dev/nvidiactl"] if has_nodes else [])
