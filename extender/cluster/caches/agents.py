"""How the nodes' agents are: whether their pods are ready, or were a moment ago, and since when they have not written.

Time is handed in, and is this process's own: a report counts from when it was heard of, never from what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.versions import NOTHING_MORE, Listing, is_older

SILENCE_SECONDS = 750.0
"""Two refreshes of an agent and a half."""
RESTART_SECONDS = 60.0
"""How long a node may be without the agent that was ready there: an upgrade, or a process that is started anew."""
LABELS: Mapping[str, str] = {"app.kubernetes.io/name": "gputopo", "app.kubernetes.io/component": "agent"}


class AgentPods:
    """The agents' pods, by node; of no interest beyond whether they are ready.

    Args:
        namespace: Where they are; anybody may put our labels on a pod elsewhere.
        touched: Is called with a node's name when its agent's pod has changed.

    """

    def __init__(self, namespace: str, touched: Callable[[str], None]) -> None:
        self._namespace = namespace
        self._touched = touched
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, dict[str, bool]] = {}
        """Node → UID → ready."""
        self._left: dict[str, float] = {}
        """Node whose agent was ready, and is not → since when."""
        self._now = 0.0

    def is_one(self, pod: Pod) -> bool:
        """Whether the pod is an agent."""
        labels = pod.metadata.labels or {}
        return pod.metadata.namespace == self._namespace and LABELS.items() <= labels.items()

    def replaced(self, objects: Sequence[Pod], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all pods that exist."""
        uids = {metadata.uid for metadata in (*(pod.metadata for pod in objects), *listing.unread)}
        for gone in [pod for uid, pod in self._pods.items() if uid not in uids]:
            self.deleted(gone)
        for pod in objects:
            self._take(pod)

    def changed(self, item: Pod) -> None:
        """Take this for the newest version of a pod, unless a newer one is known."""
        before = self._pods.get(item.metadata.uid)
        if not (before and is_older(item.metadata, before.metadata)):
            self._take(item)

    def _take(self, item: Pod) -> None:
        if self.is_one(item):
            self._pods[item.metadata.uid] = item
            if node := item.spec.node_name:
                was_ready = self.is_ready(node)
                self._on.setdefault(node, {})[item.metadata.uid] = _is_ready(item)
                self._changed(node, was_ready)

    def deleted(self, item: Pod) -> None:
        """Take this for the last version of a pod that is gone."""
        last = self._pods.pop(item.metadata.uid, item)
        node = last.spec.node_name or ""
        there, was_ready = self._on.get(node, {}), self.is_ready(node)
        if there.pop(item.metadata.uid, None) is not None:
            if not there:
                del self._on[node]
            self._changed(node, was_ready)

    def is_ready(self, node: str) -> bool | None:
        """Whether an agent on the node is ready; `None`: there is none, as far as its pods tell."""
        pods = self._on.get(node)
        return any(pods.values()) if pods else None

    def pod_on(self, node: str) -> tuple[str, str] | None:
        """Return namespace and name of the agent's pod that is ready on a node; `None`: there is none."""
        ready = next((uid for uid, is_ready in self._on.get(node, {}).items() if is_ready), None)
        metadata = self._pods[ready].metadata if ready in self._pods else None
        return None if metadata is None else (metadata.namespace, metadata.name)

    def restarts(self, node: str) -> bool:
        """Whether an agent was ready on the node less than a minute ago, and none is now."""
        return node in self._left

    def tell(self, now: float) -> None:
        """Take `now` (monotonic seconds) for the time from here on; an agent that does not come back is no restart."""
        self._now = now
        for node in [node for node, since in self._left.items() if now - since > RESTART_SECONDS]:
            del self._left[node]
            self._touched(node)

    def _changed(self, node: str, was_ready: bool | None) -> None:
        if self.is_ready(node):
            self._left.pop(node, None)
        elif was_ready:
            self._left[node] = self._now
        self._touched(node)


class AgentHeartbeats:
    """When each node's agent was last heard: each of its writes changes the status.

    Args:
        status_of: Returns the text of a node's status, which is empty where it has none; `None` where the node is gone.
        silence_seconds: After so long without a write an agent is silent.

    """

    def __init__(self, status_of: Callable[[str], str | None], silence_seconds: float = SILENCE_SECONDS) -> None:
        self._status_of = status_of
        self._silence_seconds = silence_seconds
        self._changed: set[str] = set()
        """Nodes that have changed since the last call of `listen`."""
        self._texts: dict[str, str] = {}
        self._heard: dict[str, float] = {}
        """Nodes that are not silent, and since when their texts are what they are; the longest first."""
        self._silent: set[str] = set()

    def node_changed(self, node: str) -> None:
        """Take note that there may be another status."""
        self._changed.add(node)

    def listen(self, now: float) -> set[str]:
        """Take in the statuses of the nodes that changed, as of `now`; returns those that fell silent, or are so no more."""
        news, self._changed, changed = sorted(self._changed), set(), set[str]()
        for node in news:
            text = self._status_of(node)
            if text is not None and self._texts.get(node) == text:
                continue
            self._heard.pop(node, None)
            self._texts.pop(node, None)
            if text is not None:
                self._texts[node], self._heard[node] = text, now
            if node in self._silent:
                self._silent.remove(node)
                changed.add(node)
        return changed | self._fallen_silent(now - self._silence_seconds)

    def _fallen_silent(self, latest: float) -> set[str]:
        fallen = {node for node, _ in takewhile(lambda heard: heard[1] < latest, self._heard.items())}
        for node in fallen:
            del self._heard[node]
        self._silent |= fallen
        return fallen

    def is_silent(self, node: str) -> bool:
        """Whether nothing was heard of the node's agent for too long."""
        return node in self._silent

    def __len__(self) -> int:
        return len(self._silent)


def _is_ready(pod: Pod) -> bool:
    statuses = pod.status.container_statuses
    is_lost = any(
        condition.type == "Ready" and condition.status == "False" for condition in pod.status.conditions or ()
    )
    return not is_lost and bool(statuses) and all(status.ready for status in statuses or ())
