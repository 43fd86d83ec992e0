"""What the kubelet offers to pods, and whether it has taken the lists of devices that it got."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agent.errors import KubeletUnavailable
from agent.kubelet.listing.pod_resources import Allocatable, PodResourcesClient
from agent.kubelet.serving.devices import DeviceLists
from agent.plugin.devices.mig import is_ours

_TAKES_SECONDS, _TAKING_SECONDS = 1.0, 0.02
"""Within which a kubelet has usually taken a list of devices, and how often it is asked meanwhile."""


class OfferedDevices:
    """One kubelet's, as of the last time that it was asked.

    Args:
        kubelet: Answers.
        lists: Our own devices, as the kubelet gets them.
        resource: The name of whole GPUs.
        answer_seconds: How long an answer may take.

    """

    def __init__(self, kubelet: PodResourcesClient, lists: DeviceLists, resource: str, answer_seconds: float) -> None:
        self._kubelet = kubelet
        self._lists = lists
        self._resource = resource
        self._answer_seconds = answer_seconds
        self._latest: Allocatable | None = None
        self._awaited, self._await_until = -1, 0.0

    @property
    def by_resource(self) -> Mapping[str, frozenset[str]]:
        """Healthy devices of each resource; none while the kubelet does not answer."""
        return self._latest.devices if self._latest else {}

    @property
    def cpus(self) -> frozenset[int]:
        """CPUs that a container can have for itself."""
        return self._latest.cpus if self._latest else frozenset()

    @property
    def ours(self) -> frozenset[str] | None:
        """All devices of our resources that the kubelet would give away; `None` while it does not answer."""
        if self._latest is None:
            return None
        ours = (devices for name, devices in self._latest.devices.items() if is_ours(name, self._resource))
        return frozenset().union(*ours)

    @property
    def are_of_another_list(self) -> bool:
        """Whether the kubelet would give away other devices than ours, or takes them to be near other NUMA nodes."""
        ours = self._lists.healthy, self._lists.numa_nodes
        return self._latest is not None and (self.ours, self._latest.numa_nodes) != ours

    async def are_taken(self, *, is_served: bool) -> bool:
        """Ask what the kubelet offers, and ask a server's kubelet again for a moment after its lists have changed.

        Returns whether it offers exactly our healthy devices.
        """
        clock = asyncio.get_running_loop().time
        if self._awaited != self._lists.changes:
            self._awaited, self._await_until = self._lists.changes, clock() + _TAKES_SECONDS
        while True:
            self._latest = await self._read()
            are_taken = self.ours == self._lists.healthy
            if are_taken or not self._latest or not is_served or clock() >= self._await_until:
                return are_taken
            await asyncio.sleep(_TAKING_SECONDS)

    async def _read(self) -> Allocatable | None:
        try:
            return await self._kubelet.allocatable(self._answer_seconds)
        except KubeletUnavailable:
            return None
