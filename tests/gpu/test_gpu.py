"""On a machine with GPUs the agent says what `nvidia-smi` says."""

from __future__ import annotations

import pytest

from tests.gpu import checks
from tests.gpu.report import Report

pytestmark = pytest.mark.gpu


def test_matrix_is_that_of_nvidia_smi(report: Report) -> None:
    """Every cell, and every GPU's CPUs and NUMA nodes."""
    report.check("Matrix", checks.matrix)


def test_every_fact_is_that_of_nvidia_smi(report: Report) -> None:
    """Where one says nothing, the other says nothing either."""
    report.check("Facts", checks.facts)


def test_supported_events_can_be_registered_and_a_wait_times_out(report: Report) -> None:
    """As the agent listens to critical errors."""
    report.check("Events", checks.events)


def test_processes_are_those_of_nvidia_smi(report: Report) -> None:
    """Of each GPU; skipped where nothing computes."""
    report.check("Processes", checks.processes)


def test_figures_lie_between_those_of_nvidia_smi(report: Report) -> None:
    """Within the tolerances of `fields`; how busy a GPU is is only written down."""
    report.check("Figures", checks.figures)


def test_memory_limits_are_asked_for(report: Report) -> None:
    """Never set; skipped where the driver has none."""
    report.check("Memory limits", checks.memory_limits)


def test_calls_are_recorded(report: Report) -> None:
    """Each with its reply, in a file beside the report."""
    report.check("Calls", lambda: checks.calls(report.file.with_suffix(".calls.json")))


def test_cost_of_a_look_is_written_down(report: Report) -> None:
    """And of a sample of what GPUs do."""
    report.check("Cost", checks.cost)
