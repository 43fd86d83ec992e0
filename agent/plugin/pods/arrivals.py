"""Which listed pods can be under admission at all.

The kubelet admits one pod at a time, and lists a pod from just before its admission on. So the pod under admission is the
one that was listed last. Once a List shows a pod that the List before did not, every pod listed before is past its
admission. This holds within one run of a kubelet; a new one admits all its pods anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.plugin.pods.listed_pods import Key, ListedPod


class PodArrivals:
    """Fed with every List of one kubelet session, in order."""

    def __init__(self) -> None:
        self._listed: dict[Key, bool] = {}
        self._newest: frozenset[Key] = frozenset()

    @property
    def newest(self) -> frozenset[Key]:
        """The pods that may be under admission."""
        return self._newest

    def saw(self, pods: Iterable[ListedPod]) -> None:
        """Take in one List."""
        now = {pod.key: bool(pod.gpus) for pod in pods}
        # A pod that held GPUs and holds none is another one of the same name: GPUs are freed with their pod only.
        new = frozenset(
            key for key, holds in now.items() if key not in self._listed or (self._listed[key] and not holds)
        )
        self._newest = new or self._newest
        self._listed = now
