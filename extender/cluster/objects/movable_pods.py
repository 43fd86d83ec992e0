"""Which pods may move to make room for others: those that say so, and those that the configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from extender.cluster.objects.kinds import Pod
from topology.annotations import keys


@dataclass(frozen=True, slots=True)
class MovablePods:
    """Names pods by these lists: a pod is named by all that are not empty, and by none where all are empty."""

    namespaces: tuple[str, ...] = ()
    """Names, or patterns with `*` and `?`."""
    priority_classes: tuple[str, ...] = ()
    owner_kinds: tuple[str, ...] = ()
    """Of controllers."""

    def include(self, pod: Pod) -> bool:
        """Whether a pod may move; what it says itself goes first."""
        said = (pod.metadata.annotations or {}).get(keys.MOVABLE)
        return self._name(pod) if said is None else said == "true"

    def _name(self, pod: Pod) -> bool:
        if not (self.namespaces or self.priority_classes or self.owner_kinds):
            return False
        if self.namespaces and not any(fnmatchcase(pod.metadata.namespace, name) for name in self.namespaces):
            return False
        if self.priority_classes and pod.spec.priority_class_name not in self.priority_classes:
            return False
        owner = pod.metadata.controller
        return not self.owner_kinds or (owner is not None and owner.kind in self.owner_kinds)


OPTED_IN: Final = MovablePods()
"""Only those that say so."""
