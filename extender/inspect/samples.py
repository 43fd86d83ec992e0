"""What GPUs do now, as the metrics of a node's agent tell it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal, get_args

Series = Literal[
    "utilization_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
]
_PREFIX: Final = "gputopo_gpu_"
_SERIES: Final[frozenset[str]] = frozenset(get_args(Series))
_LABEL: Final = '{uuid="'
MAX_UUID_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at the last sample of its agent; `None`: its driver does not say."""

    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None

    @property
    def utilization(self) -> str:
        """For people; empty where it is not known."""
        return _shown(self.utilization_ratio, 100, " %")

    @property
    def memory(self) -> str:
        """What is in use, of how much."""
        return _of(_shown(self.memory_used_bytes, 2**-30), _shown(self.memory_total_bytes, 2**-30), " GiB")

    @property
    def power(self) -> str:
        """What is drawn, of how much at most."""
        return _of(_shown(self.power_watts), _shown(self.power_limit_watts), " W")

    @property
    def temperature(self) -> str:
        """That of the chip."""
        return _shown(self.temperature_celsius, 1, " °C")


def samples_of(exposition: bytes, most: int) -> dict[str, GpuSample]:
    """Return the samples of a node's GPUs by UUID, of `most` GPUs at most; lines that cannot be read tell nothing.

    >>> samples_of(b'gputopo_gpu_power_watts{uuid="GPU-1"} 300.4', 1)["GPU-1"].power
    '300 W'
    """
    series = series_of(exposition, most)
    return {uuid: GpuSample(**values) for uuid, values in series.items()}


def series_of(exposition: bytes, most: int) -> dict[str, dict[str, float]]:
    """Return UUID → name of a series without its prefix → value, as `samples_of`.

    A library for the format takes ten times as long, on an event loop that answers kube-scheduler too.
    """
    series = dict[str, dict[str, float]]()
    for line in exposition.decode(errors="replace").splitlines():
        if not line.startswith(_PREFIX):
            continue
        name, label, rest = line.removeprefix(_PREFIX).partition(_LABEL)
        uuid, _, figure = rest.partition('"')
        if not (label and figure.startswith("}")) or name not in _SERIES or not 0 < len(uuid) <= MAX_UUID_CHARACTERS:
            continue
        value = _number(figure[1:])
        if value is not None and (uuid in series or len(series) < most):
            series.setdefault(uuid, {})[name] = value
    return series


def _number(figure: str) -> float | None:
    try:
        value = float(figure.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return None
    return value if isfinite(value) else None


def _shown(value: float | None, factor: float = 1.0, unit: str = "") -> str:
    return "" if value is None else f"{value * factor:.0f}{unit}"


def _of(used: str, total: str, unit: str) -> str:
    return f"{used} of {total}{unit}" if used and total else f"{used}{unit}" if used else ""
