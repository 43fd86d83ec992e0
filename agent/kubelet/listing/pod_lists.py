"""Every list of the node's pods and what they hold goes through here, so that each is taken in, and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agent.plugin.pods.arrivals import PodArrivals
from agent.plugin.pods.listed_pods import Key, ListedPod


class PodLister(Protocol):
    """Where the lists come from."""

    async def pods(self, timeout_seconds: float) -> tuple[ListedPod, ...]:
        """Return the node's active pods; raises `KubeletUnavailable`."""
        ...


class PodLists:
    """The last one, and what follows from the order in which they came.

    `freed` is called when GPUs are held no longer. The kubelet frees them when it is asked for a list. It writes that
    down only with the next list of devices that it gets. Until then a restart would restore the dead holder.
    """

    def __init__(self, lister: PodLister, freed: Callable[[], None]) -> None:
        self._lister = lister
        self._freed = freed
        self._holders: dict[str, Key] = {}
        self.arrivals = PodArrivals()
        self.pods: tuple[ListedPod, ...] = ()

    def kubelet_restarted(self) -> None:
        """Forget who arrived when: a new kubelet admits all pods anew."""
        self.arrivals = PodArrivals()

    async def read(self, timeout_seconds: float) -> tuple[ListedPod, ...]:
        """List the pods; raises `KubeletUnavailable`."""
        pods = await self._lister.pods(timeout_seconds)
        self.arrivals.saw(pods)
        self.pods, before = pods, self._holders
        self._holders = {gpu: pod.key for pod in pods for gpu in pod.gpus}
        if any(self._holders.get(gpu) != key for gpu, key in before.items()):
            self._freed()
        return pods
