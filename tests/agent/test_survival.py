"""One bad GPU, or one bad call, never empties the discovery: whatever fails, the other GPUs are told as if nothing had."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import NvmlUnavailable
from tests.agent.conftest import Discover
from tests.nvml.library import HERE
from topology.annotations.codec import decode_topology, encode_topology
from topology.annotations.status_codec import decode_status, encode_status
from topology.node.model import Gpu, NodeTopology, NvlinkDomain

Described = Callable[..., Path]

SOURCES = "".join((HERE / name).read_text() for name in ("nvml.c", "nvlink.c", "errors.c"))
DEVICE_CALLS = sorted(set(re.findall(r"^nvmlReturn_t (nvmlDeviceGet\w+)\(nvmlDevice_t gpu", SOURCES, re.MULTILINE)))
SYSTEM_CALLS = sorted(set(re.findall(r"^nvmlReturn_t (nvmlSystemGet\w+)\(", SOURCES, re.MULTILINE)))
CODES = [
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "INSUFFICIENT_SIZE",
    "TIMEOUT",
    "FUNCTION_NOT_FOUND",
    "CORRUPTED_INFOROM",
    "GPU_IS_LOST",
    "RESET_REQUIRED",
    "OPERATING_SYSTEM",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
    "NOT_READY",
    "UNKNOWN",
]
MACHINES = ("gb200_tray", "power9_ac922", "dead_bridge_links")
BAD = 1


def others(node: NodeTopology) -> tuple[list[Gpu], dict[tuple[int, int], str], NvlinkDomain | None]:
    """Return everything about the GPUs but the bad one, their matrix, and the node's NVLink domain."""
    good = [(position, gpu) for position, gpu in enumerate(node.gpus) if gpu.index != BAD]
    cells = {(a.index, b.index): node.label(i, j) for i, a in good for j, b in good}
    return [gpu for _, gpu in good], cells, node.domain


@pytest.mark.parametrize("function", [*DEVICE_CALLS, "nvmlDeviceGetHandleByIndex_v2", "*"])
@pytest.mark.parametrize("machine", MACHINES)
def test_every_failing_call_leaves_the_other_gpus_untouched(
    machine: str, function: str, found: Discover, described: Described, rounds: Callable[[int, int], int]
) -> None:
    """Each function, with each code that NVML documents, on one GPU: of one of the machines, or of all with `--long`."""
    whole = others(found(machine).topology)
    for code in CODES[rounds(MACHINES.index(machine), 0) :: rounds(len(MACHINES), 1)]:
        discovery = found(described(machine, f"fail {function} {BAD} {code}"))
        assert others(discovery.topology) == whole, code
        assert len(discovery.status.gpus) == len(whole[0]) + 1, code


@pytest.mark.slow
@pytest.mark.parametrize("function", SYSTEM_CALLS)
def test_a_failing_system_call_costs_only_its_own_fact(function: str, found: Discover, described: Described) -> None:
    """Without a driver version there are still GPUs."""
    for code in CODES:
        assert others(found(described("gb200_tray", f"fail {function} 0 {code}")).topology) == others(
            found("gb200_tray").topology
        )


def test_nvml_that_cannot_count_is_no_machine_without_gpus(found: Discover, described: Described) -> None:
    """An unknown number of GPUs must never be published as none."""
    with pytest.raises(NvmlUnavailable, match="UNKNOWN"):
        found(described("gb200_tray", "fail nvmlDeviceGetCount_v2 0 UNKNOWN"))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    failures=st.lists(
        st.tuples(st.sampled_from(DEVICE_CALLS), st.integers(0, 3), st.sampled_from(CODES)), min_size=2, max_size=12
    )
)
def test_many_failures_at_once_still_make_a_discovery(
    failures: list[tuple[str, int, str]], found: Discover, described: Described
) -> None:
    """A driver that is going down answers this and that; what comes out can always be published."""
    lines = [f"fail {function} {gpu} {code}" for function, gpu, code in failures]
    discovery = found(described("gb200_tray", *lines))
    assert decode_topology(encode_topology(discovery.topology)).gpus == discovery.topology.gpus
    assert len(decode_status(encode_status(discovery.status)).gpus) == 4


def test_the_list_of_functions_is_not_empty() -> None:
    """A changed spelling in the library would make the tests above pass without a single failure."""
    assert len(DEVICE_CALLS) >= 25
    assert len(SYSTEM_CALLS) >= 3
