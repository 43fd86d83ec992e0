"""`make test-gpu` can be trusted: it finds what agrees, names what differs, and passes nothing without a GPU.

It runs whole against the fake NVML, beside an `nvidia-smi` that is written here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.gpu.fake_smi import MACHINE, WORKS, write_fake_smi
from tests.nvml.library import FakeNvml, has_compiler, machine

pytestmark = pytest.mark.slow

CHECKS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """How it ended."""

    status: int
    said: str
    report: str
    """Empty where none was written."""

    def differing(self) -> set[str]:
        """Return what the report says differs."""
        return set(re.findall(r"^\| ([^|]+) \| [^|]+ \| differs \|", self.report, re.MULTILINE))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


class Bench:
    """A machine and its `nvidia-smi`, in a folder."""

    def __init__(self, folder: Path, library: FakeNvml) -> None:
        self.folder = folder
        self.answers = folder / "bin"
        self.answers.mkdir()
        description = folder / "machine.nvml"
        description.write_text(f"{machine(MACHINE).read_text()}{WORKS}\n")
        self.nvml = library.environment(description)

    def change(self, answer: str, old: str, new: str) -> None:
        """Let `nvidia-smi` say something else."""
        file = self.answers / answer
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    def run(self, nvml: Mapping[str, str], *only: str) -> Run:
        """Run it as `make test-gpu` does."""
        reports = self.folder / "reports"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"PATH": f"{self.answers}:{os.environ['PATH']}", "GPUTOPO_GPU_REPORTS": str(reports), **nvml}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "tests/gpu", "-m", "gpu", "-p", "no:cacheprovider", *only],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            check=False,
        )
        written = "".join(file.read_text() for file in reports.glob("*.md"))
        return Run(done.returncode, done.stdout + done.stderr, written)


@pytest.fixture
def bench(tmp_path: Path, library: FakeNvml) -> Bench:
    """Return a machine without `nvidia-smi`."""
    return Bench(tmp_path, library)


def test_all_is_equal_beside_a_program_that_agrees(bench: Bench) -> None:
    """Only memory limits are skipped: no fake has them. What the page says is that it was simulated."""
    write_fake_smi(bench.answers)
    run = bench.run(bench.nvml)
    assert (run.status, run.differing()) == (0, set()), run.said
    assert f"{CHECKS - 1} passed, 1 skipped" in run.said
    assert "report: " in run.said
    assert "Simulated" in run.report
    assert not re.search(r"GPU-41|1650923", run.report)


DIFFERENT = {
    "cell": ("matrix", "topo", "NV18", "NV17"),
    "CPUs": ("matrix", "topo", "56-111,168-223", "56-111"),
    "DRAM errors, corrected": ("fact", "query", "<dram_correctable>12", "<dram_correctable>13"),
    "ECC mode": ("fact", "query", "<current_ecc>Enabled", "<current_ecc>Disabled"),
    "PCI address": ("fact", "query", "<pci_bus_id>00000000:DB", "<pci_bus_id>00000000:DC"),
    "PCIe generation": ("fact", "query", "<max_link_gen>5", "<max_link_gen>N/A"),
    "UUIDs": ("fact", "query", "<uuid>GPU-41000000-0000-4000-8000-000000000005", "<uuid>GPU-5"),
    "processes": ("processes", "processes", "4711", "4712"),
    "temperature": ("figures", "figures", ", 62, 74,", ", 70, 74,"),
}
"""What is to differ → the check, and which answer says what in the place of what."""


@pytest.mark.parametrize("differs", DIFFERENT)
def test_one_answer_that_differs_is_named_and_fails_the_run(bench: Bench, differs: str) -> None:
    """That one, and no other of its check."""
    check, answer, old, new = DIFFERENT[differs]
    write_fake_smi(bench.answers)
    bench.change(answer, old, new)
    run = bench.run(bench.nvml, "-k", check)
    assert (run.status, run.differing()) == (1, {differs}), run.said


def test_without_a_driver_all_is_skipped(bench: Bench) -> None:
    """Nothing passes, nothing is written, and it says why."""
    run = bench.run({})
    assert (run.status, run.report) == (0, "")
    assert "skipped: no NVIDIA driver here" in run.said
    assert f"{CHECKS} skipped" in run.said and "passed" not in run.said


def test_without_nvidia_smi_what_compares_with_it_is_skipped(bench: Bench) -> None:
    """The page says so."""
    run = bench.run(bench.nvml)
    assert run.status == 0
    assert run.report.count("no nvidia-smi here") == 4
    assert "3 passed, 5 skipped" in run.said


def test_a_driver_that_only_nvidia_smi_can_use_is_a_failure(bench: Bench) -> None:
    """No reason to skip."""
    write_fake_smi(bench.answers)
    run = bench.run({})
    assert run.status == 1
    assert "passed" not in run.said
    assert "failed" in run.report
