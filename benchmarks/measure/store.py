"""Where figures are kept: a file, or a ConfigMap that the extender's pod mounts. New ones are added to what is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.measure.cluster import ApiRefused, JobNamespace
from topology.annotations.measurements import decode_measurements, encode_measurements
from topology.bandwidth.measured import Measurements, merged
from topology.errors import PayloadError

_TRIES = 3


class Unusable(Exception):
    """What is there cannot be added to; the text says why."""


class FigureStore(Protocol):
    """Keeps figures."""

    async def read(self) -> Measurements:
        """Return what is there; raises `Unusable`."""

    async def add(self, new: Measurements) -> None:
        """Add to what is there; raises `Unusable`."""


@dataclass(frozen=True, slots=True)
class FileStore:
    """A file on this machine."""

    path: Path

    async def read(self) -> Measurements:
        """Return what the file says, nothing where it is not there."""
        try:
            return _decoded(self.path.read_text(encoding="utf-8"), str(self.path))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable(f"{self.path}: {error}") from error

    async def add(self, new: Measurements) -> None:
        """Write the file anew, whole or not at all."""
        text = _encoded(merged(await self.read(), new))
        beside = self.path.with_name(f".{self.path.name}.new")
        try:
            beside.write_text(text + "\n", encoding="utf-8")
            beside.replace(self.path)
        except OSError as error:
            raise Unusable(f"{self.path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class ConfigMapStore:
    """A ConfigMap."""

    cluster: JobNamespace
    name: str

    async def read(self) -> Measurements:
        """Return what it says, nothing where it is not there."""
        return (await self._read())[0]

    async def add(self, new: Measurements) -> None:
        """Write it; where somebody else has just done so, on top of that."""
        for last in (*[False] * (_TRIES - 1), True):
            old, version = await self._read()
            try:
                await self.cluster.write_config_map(self.name, _encoded(merged(old, new)), version)
            except ApiRefused as error:
                if error.code == 409 and not last:
                    continue
                raise Unusable(f"ConfigMap {self._called}: {error}") from error
            return

    @property
    def _called(self) -> str:
        return f"{self.cluster.namespace}/{self.name}"

    async def _read(self) -> tuple[Measurements, str | None]:
        try:
            text, version = await self.cluster.read_config_map(self.name)
        except ApiRefused as error:
            raise Unusable(f"ConfigMap {self._called}: {error}") from error
        return (_decoded(text, f"ConfigMap {self._called}") if text else {}), version


def _decoded(text: str, source: str) -> Measurements:
    """Return what can be believed of a document; one with mistakes is not written over, they are somebody's to look at."""
    try:
        read = decode_measurements(text)
    except PayloadError as error:
        raise Unusable(f"{source}: {error}") from error
    if read.refused:
        raise Unusable(f"{source}: {read.refused[0]}")
    return read.measurements


def _encoded(measurements: Measurements) -> str:
    try:
        return encode_measurements(measurements)
    except PayloadError as error:
        raise Unusable(f"too many figures to keep: {error}") from error
