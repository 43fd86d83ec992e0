"""MIG devices as NVML tells of them: which there are, what they are called, and who computes on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.gpus.discovery import discover
from agent.gpus.host import Host
from agent.gpus.nvml.reader import read_processes
from tests.agent.conftest import Discover, Read
from tests.nvml.library import FakeNvml
from topology.node.slices import Slice

Described = Callable[..., Path]

MIXED = (
    "gpu 6,7 mig on",
    "slice 6,7 3g.40gb 0 MIG-a%",
    "slice 6,7 2g.20gb 4 MIG-b%",
    "slice 6,7 1g.10gb+me 6 MIG-c%",
    "slice 6,7 1g.10gb 7 MIG-d%",
)
GPU6 = "GPU-41000000-0000-4000-8000-000000000006"


def test_slices_are_found_with_profile_place_and_memory(found: Discover, described: Described) -> None:
    """As NVIDIA names them, at the place that the driver tells; memory is what a container will see."""
    slices = found(described("hgx_h100", *MIXED)).topology.slices
    assert [each.uuid for each in slices] == [f"MIG-{name}{gpu}" for gpu in (6, 7) for name in "abcd"]
    three, two, media, one = slices[:4]
    assert three == Slice(6, "MIG-a6", "3g.40gb", three.memory_bytes, 0, 4, 1, 0)
    assert 39 < three.memory_bytes / 2**30 < 40
    assert [(each.profile, each.start, each.size) for each in (two, media, one)] == [
        ("2g.20gb", 4, 2),
        ("1g.10gb+me", 6, 1),
        ("1g.10gb", 7, 1),
    ]


def test_compute_instances_of_one_gpu_instance_are_told_apart(found: Discover, described: Described) -> None:
    """`1c.3g.40gb` are three devices in one GPU instance; each is named by its compute slices first."""
    file = described("hgx_h100", "gpu 0 mig on", *["slice 0 1c.3g.40gb 0"] * 3)
    slices = found(file).topology.slices
    assert [(each.profile, each.gpu_instance, each.compute_instance) for each in slices] == [
        ("1c.3g.40gb", 1, 0),
        ("1c.3g.40gb", 1, 1),
        ("1c.3g.40gb", 1, 2),
    ]


@pytest.mark.parametrize(
    ("memory_mib", "profile"), [(40960, "1g.5gb"), (81559, "1g.10gb"), (97871, "1g.12gb"), (143771, "1g.18gb")]
)
def test_memory_is_rounded_as_nvidia_rounds_it(
    memory_mib: int, profile: str, found: Discover, described: Described
) -> None:
    """A100-40GB, H100, H100-96GB and H200: the name is what the device plugin makes of the driver's figures."""
    file = described(
        "hgx_h100", "gpu 0-7 mig off", f"gpu 0 memory_mib {memory_mib}", "gpu 0 mig on", f"slice 0 {profile} 0"
    )
    assert [each.profile for each in found(file).topology.slices] == [profile]


def test_machine_without_mig_is_asked_nothing_more(found: Discover, described: Described) -> None:
    """No call about MIG devices is made where MIG is off: here it would fail, and the status would say so."""
    file = described("hgx_h100", "fail nvmlDeviceGetMigDeviceHandleByIndex 0-7 UNKNOWN")
    discovery = found(file)
    assert discovery.topology.slices == ()
    assert not any(gpu.reasons for gpu in discovery.status.gpus)


def test_agent_that_may_not_ask_publishes_no_slices_and_says_so(found: Discover, described: Described) -> None:
    """Without SYS_ADMIN the driver does not tell what is special about a profile: a wrong name would be worse than none."""
    before = found(described("hgx_h100", *MIXED))
    discovery = found(described("hgx_h100", *MIXED, "fail nvmlDeviceGetGpuInstanceById 6 NO_PERMISSION"), before=before)
    assert {each.gpu for each in discovery.topology.slices} == {7}
    (sixth,) = (gpu for gpu in discovery.status.gpus if gpu.uuid == GPU6)
    assert sixth.reasons == ("slices unknown: NO_PERMISSION",)


def test_slices_stay_while_their_gpu_is_lost(found: Discover, described: Described) -> None:
    """Only an answer replaces a fact; a reconfiguration is one."""
    before = found(described("hgx_h100", *MIXED))
    lost = found(described("hgx_h100", *MIXED, "fail * 6 GPU_IS_LOST"), before=before)
    assert lost.topology.slices == before.topology.slices
    assert GPU6 in lost.status.unhealthy
    cut_anew = found(described("hgx_h100", "gpu 6 mig on", "slice 6 7g.80gb 0 MIG-e%"), before=before)
    assert [each.uuid for each in cut_anew.topology.slices] == ["MIG-e6"]


def test_processes_count_on_the_slice_that_they_are_in(read: Read, described: Described, tmp_path: Path) -> None:
    """The driver tells of all processes of a GPU, and the instance of each."""
    file = described("hgx_h100", *MIXED, "gpu 6 slice_process 3 4711", "gpu 6 slice_process 3 4712", "gpu 0 process 99")
    discovery = discover(read(file), Host(tmp_path, tmp_path))
    assert discovery.computing == {"MIG-d6": 2, "GPU-41000000-0000-4000-8000-000000000000": 1}


def test_slice_can_be_asked_who_computes_on_it(fake_nvml: FakeNvml, described: Described) -> None:
    """A container waits for the processes on its own slice only."""
    with fake_nvml.loaded(described("hgx_h100", *MIXED, "gpu 6 slice_process 3 4711")):
        told = read_processes(["MIG-d6", "MIG-a6"])
    assert [len(told[uuid].value) for uuid in ("MIG-d6", "MIG-a6")] == [1, 0]  # type: ignore[union-attr]
