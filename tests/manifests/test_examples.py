"""Every example asks for what its comment says, and says no more than that."""

import os
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import yaml

from tests.manifests.helm import MANIFESTS
from topology.annotations.keys import PLACEMENT as PLACEMENT_KEY
from topology.node.links import Affinity
from topology.request.domains import GroupRequest, Level
from topology.request.gpu_request import Communication, ContainerGpus, GpuRequest, NicAffinity, PodRequest, parse_pod
from topology.request.shares import SameGpu

EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))

MANY = GpuRequest(gpus=4, preferred=Affinity.NVLINK)
ONE = GpuRequest(gpus=1, communication=Communication.NONE)
SHARE = GpuRequest(gpus=0, communication=Communication.NONE)
REQUESTS = {
    "no-annotation": MANY,
    "required-nvlink": replace(MANY, required=Affinity.NVLINK),
    "required-pcie-switch": replace(MANY, gpus=2, required=Affinity.PCIE_SWITCH),
    "required-numa-node": replace(MANY, gpus=2, required=Affinity.NUMA_NODE),
    "preferred-numa-node": replace(MANY, gpus=2, preferred=Affinity.NUMA_NODE),
    "min-bandwidth": replace(MANY, min_bandwidth_gb_per_s=200.0),
    "relax-after": replace(MANY, gpus=8, required=Affinity.NVLINK),
    "communication-none": replace(MANY, communication=Communication.NONE),
    "gpu-model": replace(MANY, gpus=2, models=("*a100*", "*h100*")),
    "min-gpu-memory": replace(ONE, min_memory_bytes=70 << 30),
    "min-versions": replace(ONE, min_compute_capability=(9, 0), min_driver=(550, 54), min_cuda=(12, 4)),
    "ecc-on": replace(ONE, ecc=True),
    "nic-required": replace(MANY, gpus=2, required=Affinity.NVLINK, nic=NicAffinity.REQUIRED),
    "several-containers": replace(
        MANY, required=Affinity.NVLINK, by_container=(ContainerGpus("", 3), ContainerGpus("", 1))
    ),
    "group": ONE,
    "evict-when-sick": MANY,
    "share-notebook": replace(SHARE, memory_gib=(10,)),
    "share-class-prod": replace(SHARE, memory_gib=(24,), sharing_class="prod"),
    "share-class-dev": replace(SHARE, memory_gib=(6,), sharing_class="dev"),
    "share-two-containers": replace(SHARE, memory_gib=(16, 4), same_gpu=SameGpu.REQUIRED),
}


def load(example: Path) -> dict[str, Any]:
    pod: dict[str, Any] = yaml.safe_load(example.read_text())
    return pod


def request(name: str) -> PodRequest:
    return parse_pod(load(MANIFESTS / "examples" / f"{name}.yaml"))


def test_every_example_is_in_the_table() -> None:
    """A new example needs a line that says what it means."""
    assert {example.stem for example in EXAMPLES} == set(REQUESTS)


@pytest.mark.parametrize("name", REQUESTS)
def test_example_asks_for_what_it_says(name: str) -> None:
    """The request parser reads exactly that request out of the file."""
    assert request(name).request == REQUESTS[name]


def test_grouped_example_is_one_of_four_that_want_one_rack() -> None:
    """The level is a preference."""
    assert request("group").group == GroupRequest("llama", 4, Level.RACK)


def test_relaxing_example_takes_any_eight_after_ten_minutes() -> None:
    """Until then NVLink is a condition, from then on a preference."""
    patient = request("relax-after")
    assert patient.at_age(599).required is Affinity.NVLINK
    assert patient.at_age(600) == replace(MANY, gpus=8)


def test_containers_of_one_pod_get_neighbours_on_its_ring() -> None:
    """The ring is cut once between two containers, so each keeps adjacent GPUs."""
    assert request("several-containers").share_out("abcd") == {"trainer": ("a", "b", "c"), "evaluator": ("d",)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_opts_in_and_begins_with_a_comment(example: Path) -> None:
    """It is named like its file, names our scheduler, and its first line says what it asks for."""
    pod = load(example)
    assert pod["metadata"]["name"] == example.stem
    assert pod["spec"]["schedulerName"] == "gputopo"
    assert example.read_text().startswith("# ")


UUID = "GPU-41000000-0000-4000-8000-000000000003"
PLACEMENT = '{"affinity":"nvlink","bandwidth_gb_per_s":{"point":361.2}}'


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_prints_its_gpus_and_what_was_predicted_and_waits(example: Path, tmp_path: Path) -> None:
    """By its own command in a real shell, beside a driver's program of ours; it ends at once when it is told to."""
    (tmp_path / "nvidia-smi").write_text(f'#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: NVIDIA H100 (UUID: {UUID})"\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    for container in load(example)["spec"]["containers"]:
        (named,) = container["env"]
        assert named["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{PLACEMENT_KEY}']"
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", named["name"]: PLACEMENT}
        command = subprocess.Popen(
            container["command"], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        with command as shell:
            try:
                assert shell.stdout
                assert UUID in shell.stdout.readline()
                assert shell.stdout.readline() == f"planned: {PLACEMENT}\n"
                assert shell.poll() is None
                shell.terminate()
                assert shell.wait(30) == 0
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, SIGKILL)  # a container's end does that to what the shell has begun
