"""Tell which devices of a node are the same silicon.

Those are a GPU and each of its MIG slices, and slices of one cut and those of another.

A pod keeps what it has when its GPU is cut, made whole or cut anew: nothing stops its containers. So the slices of an
earlier cut exclude their GPU and its present slices for as long as a pod has them. Nobody publishes those slices any
more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

SLICE_PREFIX: Final = "MIG-"
"""Of the UUIDs of MIG devices."""


class _Kind(Enum):
    """What a device is of its GPU."""

    WHOLE = auto()
    SLICE = auto()
    """Of the present cut."""
    GONE = auto()
    """A slice of an earlier cut."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """What nobody else may have while some devices are held; ask by `in`, also for devices that are not published."""

    silicon: Silicon
    devices: frozenset[str]
    """Those that are held."""
    gpus: Mapping[_Kind, frozenset[str | None]]
    """The GPUs that they are of; `None`: a slice of which nobody knows the GPU, and which may be of any."""

    def __contains__(self, device: str) -> bool:
        return device in self.devices or self.across(device)

    def across(self, device: str) -> bool:
        """Whether another device excludes it, be it held itself or not."""
        kind, gpu = self.silicon.place(device)
        if not self.devices.isdisjoint(self.silicon.overlaps.get(device, ())):
            return True
        return any(gpu is None or gpu in gpus or None in gpus for held, gpus in self.gpus.items() if held is not kind)


@dataclass(frozen=True, slots=True)
class Silicon:
    """The MIG slices of one node; every other device is a GPU."""

    slices: Mapping[str, str] = field(default_factory=dict)
    """Slice of the present cut → its GPU."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Slice of an earlier cut → its GPU, as far as that is remembered."""
    overlaps: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Slice that is made on demand → the other slices that cannot be had beside it."""
    is_partial: bool = False
    """Whether a GPU is cut into slices that nobody can name: then one of which nothing is known is of such a GPU."""

    def excluded_by(self, devices: Iterable[str]) -> Excluded:
        """Return what nobody else may have while somebody has these devices: the one answer to that question.

        Slices of one cut do not exclude each other, unless they are made on demand. Neither do two of earlier cuts: nobody is
        given them any more.
        """
        held, gpus = frozenset(devices), dict[_Kind, set[str | None]]()
        for device in held:
            kind, gpu = self.place(device)
            gpus.setdefault(kind, set()).add(gpu)
        return Excluded(self, held, {kind: frozenset(of) for kind, of in gpus.items()})

    def remembering(self, gone: Mapping[str, str]) -> Silicon:
        """Return the same with the GPUs of more slices, those of the present cut aside."""
        more = {device: gpu for device, gpu in gone.items() if device not in self.slices}
        return replace(self, gone={**self.gone, **more}) if more else self

    def is_gone(self, device: str) -> bool:
        """Whether it is a slice of an earlier cut."""
        return self.place(device)[0] is _Kind.GONE

    def crossing(self, devices: Collection[str]) -> tuple[str, ...]:
        """Return those of them that may exclude one another: all of a GPU of which there are several kinds."""
        if not self.slices and not any(device.startswith(SLICE_PREFIX) or device in self.gone for device in devices):
            return ()
        kinds = dict[str | None, set[_Kind]]()
        places = {device: self.place(device) for device in devices}
        for kind, gpu in places.values():
            kinds.setdefault(gpu, set()).add(kind)
        if None in kinds:
            return tuple(places)
        return tuple(device for device, (_, gpu) in places.items() if len(kinds[gpu]) > 1)

    def place(self, device: str) -> tuple[_Kind, str | None]:
        """Return what a device is of which GPU."""
        if gpu := self.slices.get(device):
            return _Kind.SLICE, gpu
        if device in self.gone or (device.startswith(SLICE_PREFIX) and not self.is_partial):
            return _Kind.GONE, self.gone.get(device)
        return _Kind.WHOLE, device


NO_SLICES: Final = Silicon()
"""Of a node where no GPU was ever cut."""
