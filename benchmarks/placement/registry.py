"""The scenarios by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from benchmarks.placement.rows import ResultRow
from benchmarks.placement.scenarios import kalos, pollux
from benchmarks.placement.scenarios.inflation import Inflation
from benchmarks.placement.scenarios.kalos import Kalos
from benchmarks.placement.scenarios.link_graph import LinkGraph
from benchmarks.placement.scenarios.mixed_fleet import BURST, MixedFleet
from benchmarks.placement.scenarios.one_server import OneServer
from benchmarks.placement.scenarios.philly import Philly
from benchmarks.placement.scenarios.pollux import Pollux
from benchmarks.placement.traces import philly
from benchmarks.placement.traces.files import BadTrace, tables, trace_folder, workload_file
from benchmarks.placement.traces.openb import OpenbTrace


class Scenario(Protocol):
    """An experiment: cells that can be run in any order, each a function of its name and seed."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """What there is to run."""
        ...

    @property
    def policies(self) -> tuple[str, ...]:
        """Whom it compares unless told otherwise."""
        ...

    def run(self, workload: str, policy: str, seed: int) -> list[ResultRow]:
        """Run one cell."""
        ...


def _invented(make: Callable[[], Scenario]) -> Callable[[Path | None], Scenario]:
    """Return a scenario whose jobs are drawn, and which would leave a folder unread."""

    def build(folder: Path | None) -> Scenario:
        if folder is not None:
            raise BadTrace(f"{folder}: this scenario draws its jobs and takes no trace")
        return make()

    return build


SCENARIOS: Final[Mapping[str, Callable[[Path | None], Scenario]]] = MappingProxyType(
    {
        "link-graph": _invented(LinkGraph),
        "one-server": _invented(OneServer),
        "mixed-fleet": _invented(MixedFleet),
        "bursts": _invented(lambda: MixedFleet(burst=BURST)),
        "kalos": lambda folder: Kalos(trace_folder(folder, "kalos")),
        "pollux": lambda folder: Pollux(
            trace_folder(folder, "pollux"), workload_file("pollux_placements_aws_t4.csv", folder)
        ),
        "philly": lambda folder: Philly(trace_folder(folder, "philly"), workload_file("gavel_throughputs.csv", folder)),
        "inflation": lambda folder: Inflation(OpenbTrace(trace_folder(folder, "openb"))),
    },
)
"""Name → scenario on the traces of a folder; `None`: wherever they are by default."""
_FORMS: Final = {"philly": philly.FILES, "kalos": kalos.FILES, "pollux": pollux.FILES}
"""Scenario → the files by which its traces are known; all other folders are taken for openb's form."""


def scenario_of(folder: Path) -> str:
    """Return the scenario whose form of trace the folder has; raises `BadTrace` where it is no folder."""
    files = trace_folder(folder, "traces")
    return next((name for name, pattern in _FORMS.items() if tables(files, pattern)), "inflation")
