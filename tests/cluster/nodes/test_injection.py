"""A container gets from our device plugin what NVIDIA's gives it, with the same switches, where no CDI specs name GPUs."""

import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import PATIENT, AgentProcess
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia
from tests.cluster.nodes.pods import bound_pod, is_running, pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys

OF_LINUX = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
"""What programs expect in `/dev`, by minor number."""
OF_NVIDIA = ("nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps-imex-channels/channel0")
"""Without `nvidia-uvm-tools`, as some hosts are."""
THEIRS = {"GDRCOPY_ENABLED": "true", "GDS_ENABLED": "true", "MOFED_ENABLED": "true", "IMEX_CHANNEL_IDS": "0"}
OURS = {"gdrcopy": True, "gds": True, "mofed": True, "imexChannels": [0]}
SLICE = f"{keys.MIG_PREFIX}3g.40gb"
FOUR = {f"NVIDIA_{name}": "enabled" for name in ("GDRCOPY", "GDS", "MOFED")} | {"NVIDIA_IMEX_CHANNELS": "0"}


def give_device_nodes(node: GpuNode) -> None:
    """Give the node a `/dev` of its own with the nodes of the driver, its GPUs and slices; none leads anywhere."""
    folder = node.state / "dev"
    minors = (node.state / "proc-driver" / "nvidia-caps" / "mig-minors").read_text().split()[1::2]
    own = [f"nvidia{number}" for number in range(8)] + [f"nvidia-caps/nvidia-cap{minor}" for minor in minors]
    names = {**dict.fromkeys((*OF_NVIDIA, *own), 3), **OF_LINUX}
    for name, minor in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    mounting = node.run("mount", "mount", "--bind", folder, "/dev")
    eventually(lambda: not mounting.is_running)


def received(node: GpuNode, name: str) -> tuple[Mapping[str, object], list[str]]:
    """Return a container's variables from its plugin, GPUs by index, and its device nodes."""
    (started,) = (each for each in node.started() if each.pod == name)
    env = {key: value for key, value in started.env.items() if key.startswith("NVIDIA_")}
    devices = node.machine.topology.devices
    gpus = {devices.index(uuid) for uuid in env.pop("NVIDIA_VISIBLE_DEVICES").split(",")}
    return {**env, "NVIDIA_VISIBLE_DEVICES": gpus}, sorted(started.devices)


@pytest.mark.parametrize("is_all_on", [False, True], ids=["plain", "all switched on"])
def test_container_gets_what_nvidias_plugin_gives(
    node_cluster: GpuCluster, nodes: Nodes, built: Callable[[GoBuild], Path], *, is_all_on: bool
) -> None:
    """Variables and device nodes are the same; `nvidia-uvm-tools`, which the host does not have, is left out by both."""
    theirs, ours = nodes.start({"n0": "two_islands", "n1": "two_islands"})
    for node in (theirs, ours):
        give_device_nodes(node)
    environment = {"PASS_DEVICE_SPECS": "true", **(THEIRS if is_all_on else {})}
    nvidia(theirs, built(programs.NVIDIA), replicas=1, **environment)
    enforce = {"deadline": PATIENT, "cdi": "never", **(OURS if is_all_on else {})}
    AgentProcess(ours, "enforce", sections={"enforce": enforce}).run()
    ours.wait_allocatable(8)
    submit(theirs, bound_pod(theirs, "theirs", 8))
    submit(ours, pod("ours", 8, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "ours")
    eventually(lambda: is_running(theirs, "theirs"))
    env, devices = received(ours, "ours")
    assert (env, devices) == received(theirs, "theirs")
    assert env == {"NVIDIA_VISIBLE_DEVICES": {*range(8)}, **(FOUR if is_all_on else {})}
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/nvidia7"} <= {*devices}


def test_container_gets_the_nodes_of_its_slice_as_from_nvidias_plugin(
    nodes: Nodes, built: Callable[[GoBuild], Path]
) -> None:
    """That of the GPU, and the two that give access to the slice; there is one slice of this profile."""
    theirs, ours = nodes.start({"n0": "mig_mixed", "n1": "mig_mixed"})
    for node in (theirs, ours):
        give_device_nodes(node)
    environment = {"PASS_DEVICE_SPECS": "true", "MIG_STRATEGY": "mixed"}
    theirs.run("nvidia-device-plugin", built(programs.NVIDIA) / "nvidia-device-plugin", **environment)
    AgentProcess(ours, "enforce", sections={"enforce": {"deadline": PATIENT, "cdi": "never"}}).run()
    for node in (theirs, ours):
        eventually(partial(node.allocatable, SLICE))
        wanted = bound_pod(node, node.name, 0)
        wanted["spec"]["containers"][0]["resources"] = {"limits": {SLICE: "1"}}
        submit(node, wanted)
        eventually(partial(is_running, node, node.name))
    env, devices = received(ours, "n1")
    assert (env, devices) == received(theirs, "n0")
    assert len([path for path in devices if path.startswith("/dev/nvidia-caps/nvidia-cap")]) == 2
