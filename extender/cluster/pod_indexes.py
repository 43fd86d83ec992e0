"""Pods that ask for GPUs, by what they are looked up by; each index takes every version of every pod."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from extender.cluster.caches.departures import Departures
from extender.cluster.caches.evictions import Evictions
from extender.cluster.caches.gates import Gates
from extender.cluster.caches.namespace_use import NamespaceUse
from extender.cluster.caches.restart_groups import RestartGroups
from extender.cluster.caches.schedulers import Schedulers
from extender.cluster.caches.stand_ins import StandIns
from extender.cluster.caches.waiting import Waiting
from extender.cluster.candidates.groups import Groups
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.group_words import GroupWords
from topology.request.domains import Location


class PodIndexes:
    """The indexes of one cluster state."""

    def __init__(
        self, locations: Mapping[str, Location], group_words: GroupWords, scheduler_names: Collection[str]
    ) -> None:
        """Begin without a pod; `locations` say where nodes stand, by name."""
        self.groups = Groups(locations, group_words)
        self.stand_ins = StandIns()
        self.schedulers = Schedulers(scheduler_names)
        self.waiting = Waiting()
        self.gates = Gates()
        self.evictions = Evictions(self.groups.beside)
        self.use = NamespaceUse()
        self.departures = Departures()
        self.restart_groups = RestartGroups()
        self._all = (
            self.groups,
            self.stand_ins,
            self.schedulers,
            self.waiting,
            self.gates,
            self.evictions,
            self.use,
            self.departures,
            self.restart_groups,
        )

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take this for the newest version of a pod; `None`: it is gone."""
        for index in self._all:
            index.take(uid, pod)
