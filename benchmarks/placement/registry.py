"""The scenarios by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from benchmarks.placement.rows import Row
from benchmarks.placement.scenarios.inflation import Inflation
from benchmarks.placement.scenarios.kalos import Kalos
from benchmarks.placement.scenarios.link_graph import LinkGraph
from benchmarks.placement.scenarios.mixed_fleet import MixedFleet
from benchmarks.placement.scenarios.one_server import OneServer
from benchmarks.placement.scenarios.philly import Philly
from benchmarks.placement.scenarios.pollux import Pollux
from benchmarks.placement.traces.files import trace_folder, workload_file
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

    def run(self, workload: str, policy: str, seed: int) -> list[Row]:
        """Run one cell."""
        ...


SCENARIOS: Final[Mapping[str, Callable[[Path | None], Scenario]]] = MappingProxyType(
    {
        "link-graph": lambda _: LinkGraph(),
        "one-server": lambda _: OneServer(),
        "mixed-fleet": lambda _: MixedFleet(),
        "kalos": lambda folder: Kalos(trace_folder(folder, "kalos")),
        "pollux": lambda folder: Pollux(
            trace_folder(folder, "pollux"), workload_file("pollux_placements_aws_t4.csv", folder)
        ),
        "philly": lambda folder: Philly(trace_folder(folder, "philly"), workload_file("gavel_throughputs.csv", folder)),
        "inflation": lambda folder: Inflation(OpenbTrace(trace_folder(folder, "openb"))),
    },
)
"""Name → scenario on the traces of a folder; `None`: wherever they are by default."""
