"""What people read of a refusal: each rule has its own sentence, the same on equal nodes, and says what would help."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from topology.formats.catalog import machine
from topology.node.links import Affinity, PciePath
from topology.node.model import Gpu, Nic, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest, NicAffinity

CUBE = replace(machine("dgx-1v"), driver_version="535.104.05", cuda_version="12.2")
PLAIN = TopologyClass(CUBE)
SLICED = TopologyClass(replace(CUBE, gpus=tuple(replace(gpu, mig_enabled=gpu.index < 6) for gpu in CUBE.gpus)))
NEAR_NIC = TopologyClass(replace(CUBE, nics=(Nic("mlx5_0", paths=((6, PciePath.PIX),)),)))

REFUSALS = [
    (PLAIN, GpuRequest(9), "node has fewer than 9 GPUs", "it has 8"),
    (
        PLAIN,
        GpuRequest(2, min_driver=(550,)),
        "GPU driver is older than min-driver",
        "it has 535.104.05, pod needs 550",
    ),
    (PLAIN, GpuRequest(2, min_cuda=(12, 4)), "CUDA version is older than min-cuda", "it has 12.2, pod needs 12.4"),
    (SLICED, GpuRequest(4), "fewer than 4 of the node's GPUs are whole: MIG is on", "2 of 8, pod needs 4"),
    (
        PLAIN,
        GpuRequest(2, models=("*h100*",)),
        "none of the node's GPUs match gpu-model",
        f"0 of 8, pod needs 2; they are {CUBE.gpus[0].model}",
    ),
    (
        PLAIN,
        GpuRequest(2, min_memory_bytes=80 * 2**30),
        "none of the node's GPUs have min-gpu-memory",
        f"0 of 8, pod needs 2; the largest has {(CUBE.gpus[0].memory_bytes or 0) / 2**30:.4g} GiB",
    ),
    (
        PLAIN,
        GpuRequest(2, min_compute_capability=(9, 0)),
        "none of the node's GPUs reach min-compute-capability",
        "0 of 8, pod needs 2; the highest is 7.0",
    ),
    (PLAIN, GpuRequest(2, ecc=False), "none of the node's GPUs have ECC off", "0 of 8, pod needs 2"),
    (
        NEAR_NIC,
        GpuRequest(2, nic=NicAffinity.REQUIRED),
        "fewer than 2 of the node's GPUs have an RDMA NIC under their PCIe switch",
        "1 have, pod needs 2",
    ),
]


@pytest.mark.parametrize(("node", "request_", "message", "figures"), REFUSALS, ids=[each[2] for each in REFUSALS])
def test_each_rule_has_its_own_sentence_with_figures_and_a_remedy(
    node: TopologyClass, request_: GpuRequest, message: str, figures: str
) -> None:
    """All GPUs are free, so nothing else can be meant."""
    found = decide(Situation(node, 0xFF), request_)
    assert isinstance(found, Rejection)
    assert (found.message, found.figures) == (message, figures)
    assert found.sentence == f"{message} ({found.remedy})" != f"{message} ()"


@pytest.mark.parametrize(
    ("name", "asked", "remedy"),
    [
        ("hgx-h100", 80 << 30, "the nearest have 79.65 GiB: lower min-gpu-memory to 79Gi"),
        ("l4-8", 24 << 30, "the nearest have 22.49 GiB: lower min-gpu-memory to 22Gi"),
        ("dgx-a100", 80 << 30, "lower min-gpu-memory or add such nodes"),
    ],
)
def test_a_gpu_that_nearly_has_the_memory_is_named_with_what_would_do(name: str, asked: int, remedy: str) -> None:
    """The name of a GPU says 80 GB, its driver some percent less."""
    situation = Situation(TopologyClass(machine(name)), 0xFF)
    refused = decide(situation, GpuRequest(2, min_memory_bytes=asked))
    assert isinstance(refused, Rejection) and refused.remedy == remedy
    if (lower := re.search(r"(\d+)Gi$", remedy)) is not None:
        assert isinstance(decide(situation, GpuRequest(2, min_memory_bytes=int(lower[1]) << 30)), Placement)


def test_the_nearest_memory_is_that_of_as_many_gpus_as_the_pod_needs() -> None:
    """One GPU with a little more helps no pod of two."""
    gpus = tuple(Gpu(i, f"u{i}", "x", memory_bytes=(79 - i) << 30) for i in range(3))
    refused = decide(Situation(TopologyClass(NodeTopology(gpus)), 0b111), GpuRequest(2, min_memory_bytes=80 << 30))
    assert isinstance(refused, Rejection)
    assert refused.remedy == "the nearest have 78 GiB: lower min-gpu-memory to 78Gi"


@pytest.mark.parametrize(
    ("free", "message"), [(0b1, "fewer than 2 suitable GPUs are free"), (0, "no suitable GPU is free")]
)
def test_none_that_are_free_are_not_called_0(free: int, message: str) -> None:
    """Some that are not enough are another sentence; how many is a figure."""
    found = decide(Situation(PLAIN, free), GpuRequest(2))
    assert isinstance(found, Rejection)
    assert (found.message, found.figures) == (message, f"{free.bit_count()} of 8 are free, pod needs 2")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (GpuRequest(4, required=Affinity.NVLINK), Reason.AFFINITY),
        (GpuRequest(4, min_bandwidth_gb_per_s=140.0), Reason.BANDWIDTH),
        (GpuRequest(7), Reason.TOO_FEW_FREE),
        (GpuRequest(2, models=("*h100*",)), Reason.UNSUITABLE_GPUS),
    ],
)
@pytest.mark.parametrize("plugin_chooses", [False, True])
def test_the_sentence_holds_no_figure_of_the_node(request_: GpuRequest, reason: Reason, plugin_chooses: bool) -> None:
    """Nodes that differ in what is free, or in the machine, but break the same rule, are counted as one."""
    situations = [
        Situation(TopologyClass(machine(name)), free, plugin_chooses=plugin_chooses)
        for name, free in (
            ("dgx-1v", 0b10011100),
            ("l40s-8", 0b11111),
            ("t4-4", 0b1111),
            ("a100-pcie-8-pairs", 0b111111),
        )
    ]
    found = [verdict for each in situations if isinstance(verdict := decide(each, request_), Rejection)]
    alike = [verdict for verdict in found if verdict.reason is reason]
    assert len(alike) >= 2
    assert len({verdict.sentence for verdict in alike}) == 1
    assert re.search(r"\d\.\d|GPU\d", alike[0].sentence) is None
