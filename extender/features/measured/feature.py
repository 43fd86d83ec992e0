"""Reads the file of measured bandwidths again and again, and puts what it says in the place of predictions.

A file that is not there says nothing, and all is predicted. One that cannot be read changes nothing: what it said before stands,
and the log and a gauge say that it is not read. A figure that cannot be is refused alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.features.measured.settings import MeasuredSettings
from extender.inspect.measured import MeasuredReport, measured_sets
from extender.kit.clock import Instant
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.telemetry.metrics import Figures, read_gauges
from topology.annotations.measurements import MAX_BYTES, Read, decode_measurements
from topology.errors import PayloadError
from topology.placement.topology_class import TopologyClass

MEASURED: Final = read_gauges(
    {
        "measured_figures": "Measured bandwidths that replace predictions, for the present node types; absent without a file.",
        "measured_refused": "Measured bandwidths that were rejected; the log says why.",
        "measured_unreadable": "1 if the file of measurements cannot be read; the last valid version counts.",
        "measured_error_ratio": "Largest relative difference between a measurement and its prediction; 0.2 is 20 %.",
    }
)
EVERY_SECONDS: Final = 10.0
MOST_TOLD: Final = 20
"""Refusals that one look writes to the log."""

log = structlog.get_logger(__name__)


class MeasuredFile(Feature):
    """One file, and what of it is in force."""

    name = "measured"
    section = MeasuredSettings
    declarations = MEASURED
    report_kind = MeasuredReport

    def __init__(self, file: Path, state: ClusterState, every_seconds: float = EVERY_SECONDS) -> None:
        self._file = file
        self._every_seconds = every_seconds
        self._state = state
        self._seen: bytes | None = None
        self._read = Read({}, ())
        self._told: set[str] = set()
        self.problem: str | None = None
        """Why the file as it is now is not in force."""

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where no file is named."""
        settings = core.config.section(MeasuredSettings)
        return cls(settings.file, core.state, settings.reread) if settings.file else None

    def rounds(self) -> Iterable[Round]:
        """Return the one that reads the file again."""
        return (Round(name=self.name, work=self._look_again, every_seconds=self._every_seconds, at_once=True),)

    async def _look_again(self) -> None:
        self.look()

    def look(self) -> None:
        """Take in what the file says now, if that is something else than before."""
        try:
            content = _content(self._file)
        except OSError as error:
            self._seen = b""  # it is taken in once it can be read again
            self._complain(error.strerror or str(error))
            return
        if content != self._seen:
            self._seen = content
            self._take(content)
        self._tell_of_refusals()

    def _take(self, content: bytes | None) -> None:
        try:
            self._read = decode_measurements(content) if content is not None else Read({}, ())
        except PayloadError as error:
            self._complain(str(error))
            return
        self.problem = None
        self._state.measured(self._read.measurements)
        log.info("measured bandwidths", file=str(self._file), machines=len(self._read.measurements))

    @property
    def refused(self) -> list[str]:
        """What of the file is not believed: where it stands, and why."""
        impossible = (text for each in self._state.classes for text in _impossible(each))
        return [*map(str, self._read.refused), *dict.fromkeys(impossible)]

    def figures(self) -> Figures:
        """Return the gauges about it."""
        in_force = measured_sets(self._state.classes)
        return {
            "measured_figures": len(in_force),
            "measured_refused": len(self.refused),
            "measured_unreadable": self.problem is not None,
            "measured_error_ratio": max((abs(each.error_ratio) for each in in_force), default=0.0),
        }

    def report(self) -> MeasuredReport:
        """Return all of it, for people."""
        return MeasuredReport(
            file=str(self._file),
            problem=self.problem,
            refused=tuple(self.refused),
            sets=measured_sets(self._state.classes),
        )

    @classmethod
    def report_without(cls, state: ClusterState, now: Instant) -> MeasuredReport:
        """Return that there is no file."""
        return MeasuredReport(file=None, problem=None, refused=(), sets=())

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            log.error("measured bandwidths cannot be read", file=str(self._file), problem=problem)
        self.problem = problem

    def _tell_of_refusals(self) -> None:
        refused = set(self.refused)
        for text in sorted(refused - self._told)[:MOST_TOLD]:
            log.warning("a measured bandwidth is refused", file=str(self._file), problem=text)
        self._told = refused


def _content(file: Path) -> bytes | None:
    """Return what the file holds, and no more than is looked at; `None` where there is none."""
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None


def _impossible(topology_class: TopologyClass) -> Iterator[str]:
    sets = topology_class.measured_sets
    for each in sets.refused if sets else ():
        yield f"{each.reason} @ machine {topology_class.kind}, GPUs {','.join(map(str, each.gpus))}"
