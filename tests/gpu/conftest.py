"""The report of a run with GPUs: made at its beginning, written at its end."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pynvml
import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.facts import Known, value_of
from agent.gpus.host import Host
from agent.gpus.nvml.reader import opened, read_nvml
from tests.conftest import ROOT
from tests.gpu import smi
from tests.gpu.report import Machine, Report
from tests.nvml.library import DESCRIPTION

FOLDER = "GPUTOPO_GPU_REPORTS"
_WRITTEN = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Iterator[Report]:
    """Give the report, which is written at the end; without a GPU the tests are skipped, and nothing is written."""
    said = pytestconfig.stash.setdefault(_WRITTEN, [])
    if missing := _missing():
        said[:] = [f"skipped: {missing}"]
        pytest.skip(missing)
    machine, date = _machine(), datetime.now(UTC).strftime("%Y-%m-%d")
    folder = Path(os.environ.get(FOLDER, ROOT / "reports" / "gpu"))
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{'simulated ' if machine.is_played else ''}{machine.gpus} {machine.driver} {date}"
    report = Report(machine, date, folder / (re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") + ".md"))
    yield report
    report.file.write_text(report.to_markdown())
    said[:] = [f"report: {report.file}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_WRITTEN, []):
        terminalreporter.write_line(line)


def _missing() -> str | None:
    """Return what is missing here; a driver that `nvidia-smi` can use and we cannot is a failure, and no reason to skip."""
    try:
        with opened():
            return None if pynvml.nvmlDeviceGetCount() else "the NVIDIA driver finds no GPU here"
    except NvmlUnavailable:
        return None if smi.works() else "no NVIDIA driver here"


def _machine() -> Machine:
    try:
        facts = read_nvml()
    except NvmlUnavailable as error:
        return Machine("GPUs that NVML cannot see", "unknown", (("NVML", str(error)),), DESCRIPTION in os.environ)
    models = [value_of(gpu.value.model) or "unknown" for gpu in facts.gpus if isinstance(gpu, Known)]
    gpus = ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))
    module = Path("/proc/driver/nvidia/version")
    told = (
        ("CUDA version of the driver", value_of(facts.cuda_version) or "not told"),
        ("kernel module", module.read_text().splitlines()[0] if module.exists() else f"no {module}"),
        ("nvidia-ml-py", version("nvidia-ml-py")),
        ("kernel", platform.release()),
        ("CPU", " ".join(part or "unknown" for part in Host().cpu())),
        ("CPUs", str(os.cpu_count())),
    )
    return Machine(gpus, value_of(facts.driver_version) or "unknown", told, DESCRIPTION in os.environ)
