"""The fake answers what real drivers have answered: `recorded` holds a file for each machine that `make test-gpu` was run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nvml.library import HERE, FakeNvml, has_compiler, machine
from tests.nvml.recording import Call, Reply, ask_all, read

RECORDED = sorted((HERE / "recorded").glob("*.json"))
UNKNOWN = {
    "nvmlDeviceGetPciInfo_v3": {"pciDeviceId", "pciSubSystemId"},
    "nvmlDeviceGetRowRemapperHistogram": {"max"},
    "nvmlDeviceGetMemoryInfo_v2": {"free", "reserved", "used"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"usedGpuMemory"},
}
"""Function → what no description can say; memory but for all of it is described in MiB only."""
SINCE_RECORDED = frozenset({"nvmlDeviceGetMinorNumber"})
"""What the agent asks and did not ask when the machines were recorded."""


def comparable(call: Call, reply: Reply) -> Reply:
    """Leave out what the fake cannot know."""
    return Reply(reply.code, list(_known(reply.answer, UNKNOWN.get(call.function, set()))))


def _known(answer: list[Any], unknown: set[str]) -> Iterator[Any]:
    for part in answer:
        if isinstance(part, list):
            yield list(_known(part, unknown))
        else:
            yield {name: part[name] for name in part.keys() - unknown} if isinstance(part, dict) else part


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="no C compiler to build the fake NVML with")
@pytest.mark.parametrize("file", RECORDED, ids=[file.stem for file in RECORDED])
def test_the_fake_answers_as_the_driver_did(file: Path, tmp_path: Path) -> None:
    """Each call that the agent makes there, its code and its answer; and no call more or less."""
    with FakeNvml(tmp_path).loaded(machine(file.stem)):
        played = ask_all().replies
    recorded = read(file)
    played = {call: reply for call, reply in played.items() if call in recorded or call.function not in SINCE_RECORDED}
    assert played.keys() == recorded.keys()
    assert {call: comparable(call, reply) for call, reply in played.items()} == {
        call: comparable(call, reply) for call, reply in recorded.items()
    }
