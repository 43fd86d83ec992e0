"""Who hears of the objects that a reflector lists and watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.devices import ResourceClaim, ResourceSlice
from extender.cluster.objects.group_sizes import GroupMaker
from extender.cluster.objects.kinds import Node, ObjectMeta, Pod
from extender.cluster.objects.versions import NOTHING_MORE, Listing

Object_contra = TypeVar(
    "Object_contra", Node, Pod, PodDisruptionBudget, ResourceClaim, ResourceSlice, GroupMaker, contravariant=True
)


class Sink(Protocol[Object_contra]):
    """Whoever keeps the cache."""

    def replaced(self, objects: Sequence[Object_contra], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that `listing` names, for all that exist."""
        ...

    def changed(self, item: Object_contra) -> None:
        """Take this for the newest version of an object, new or known."""
        ...

    def deleted(self, item: Object_contra) -> None:
        """Take this for the last version of an object that is gone."""
        ...

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version of which no more can be told; `gone`: it is the object's last."""
        ...


@runtime_checkable
class StepwiseSink(Protocol[Object_contra]):
    """A cache of so many objects that others are to have their turns while it takes a list."""

    def replacing(self, objects: Sequence[Object_contra], listing: Listing) -> Iterator[None]:
        """Do the same as `replaced` in small steps; until the last one is done the cache says what it said before.

        Devices of claims may be held in addition. Before the first list it says nothing, and may fill meanwhile.
        """
        ...
