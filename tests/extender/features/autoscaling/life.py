"""One extender's rounds on virtual time, against an API server of a few lines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from extender.binding.outcome import BindTarget, Bound
from extender.cluster.objects.kinds import Node, OwnerReference, Pod
from extender.cluster.state import ClusterState
from extender.features.autoscaling.feature import NODE_REQUESTS, Autoscaling
from extender.features.autoscaling.settings import AutoscalingSettings
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from extender.verbs.wire import ExtenderFilterResult
from tests.extender.builders import args, at, cluster, node
from tests.extender.rounds import at_work
from tests.extender.scattered import counted, placeholder, refuse, ring, scattered
from topology.annotations import keys
from topology.annotations.records import PlacementRecord

AFTER = 30.0
REFUSAL = ExtenderFilterResult([])
BOUND = BindTarget("default", "r1", "r1", "b"), Bound(PlacementRecord({}))
FOUR_LEFT = (0, 2, 4, 6)
EXISTS, FORBIDDEN = 409, 403


def created(seconds: float) -> str:
    """Write a moment of the tests' clock as the API server does."""
    minutes, rest = divmod(int(seconds), 60)
    return f"2026-01-01T00:{minutes:02}:{rest:02}Z"


class Api:
    """Shows pods, takes events, and keeps the names of Jobs; the watch shows their pods a moment later."""

    def __init__(self, state: ClusterState, answer: int = 201) -> None:
        self.state = state
        self.answer = answer
        self.jobs: dict[str, Pod] = {}
        """By UID of the pod that waits."""
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.reason = "Unschedulable"

    async def send(self, request: Request) -> tuple[int, bytes]:
        match request.method, request.path.split("/")[-1].split("?")[0]:
            case "POST", "events":
                self.events.append(json.loads(request.body or b""))
                return 201, b"{}"
            case "POST", "jobs":
                return self._create(json.loads(request.body or b""))
            case "DELETE", name:
                self.deleted.append(name)
                found = self.jobs.pop(name.removeprefix("gputopo-"), None)
                if found:
                    self.state.pods.deleted(found)
                return (200 if found else 404), b"{}"
            case _, name:
                return 200, self._show(request.path.split("/")[-3], name)

    def _create(self, job: dict[str, Any]) -> tuple[int, bytes]:
        if self.answer >= 300:
            return self.answer, msgspec.json.encode({"message": "no"})
        namespace, name, uid = job["metadata"]["annotations"][keys.PLACEHOLDER_FOR].split("/")
        if uid in self.jobs:
            return EXISTS, b"{}"
        count = int(job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][keys.GPU_RESOURCE])
        of = in_namespace(namespace, ring(name))
        self.jobs[uid] = placeholder(of, count, created=created(asyncio.get_running_loop().time()))
        self.created.append(uid)
        self.state.pods.changed(self.jobs[uid])
        return 201, b"{}"

    def _show(self, namespace: str, name: str) -> bytes:
        found = self.state.pods.find(namespace, name)
        assert found
        containers = [{"name": "main", "resources": {"limits": {keys.GPU_RESOURCE: str(found.gpus)}}}]
        conditions = [{"type": "PodScheduled", "status": "False", "reason": self.reason}]
        metadata = {"namespace": namespace, "name": name, "uid": found.uid}
        spec = {"containers": containers, "schedulingGates": found.pod.spec.scheduling_gates or []}
        return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}})

    def end(self, uid: str) -> None:
        """Let Kubernetes end a placeholder."""
        self.state.pods.deleted(self.jobs.pop(uid))

    def told(self, reason: str) -> list[str]:
        """Return what pods heard."""
        return [event["message"] for event in self.events if event["reason"] == reason]


class Life:
    """One extender's rounds, on the loop's own clock."""

    def __init__(self, state: ClusterState, api: Api | None = None, **settings: Any) -> None:
        self.state = state
        self.api = api or Api(state)
        self.recorder = EventRecorder(self.api.send)
        self.loop = asyncio.get_running_loop()
        self.autoscaling = Autoscaling(
            state=state,
            send=self.api.send,
            events=self.recorder,
            metrics=Metrics("digest", [NODE_REQUESTS]),
            clock=lambda: at(self.loop.time()),
            settings=AutoscalingSettings(enabled=True, **settings),
        )

    def refuse(self, asked: Pod, *names: str) -> None:
        """Have kube-scheduler ask in vain."""
        refuse(self.state, asked, *names, now=self.loop.time())
        self.autoscaling.after_filter(args(asked, *names), REFUSAL)

    def plan(self, *without_room: str) -> None:
        """Have the queue's plan find no room for these pods."""
        self.autoscaling.queue.is_here = lambda: True
        self.autoscaling.queue.without_room = lambda: without_room

    async def rounds(self, seconds: float) -> None:
        """Go on for so long, round by round."""
        posting = asyncio.create_task(self.recorder.run())
        async with at_work(self.autoscaling, failed=pytest.fail):
            await asyncio.sleep(seconds)
        posting.cancel()


def unreported(name: str, when: str) -> Node:
    """Build a node whose agent has not reported yet."""
    return counted(node(name, topology=None, status=None, observed=None, claims=None), created=when)


def in_namespace(namespace: str, item: Pod, *, owner: str = "") -> Pod:
    references = [OwnerReference(owner, controller=True)] if owner else None
    metadata = msgspec.structs.replace(item.metadata, namespace=namespace, owner_references=references)
    return msgspec.structs.replace(item, metadata=metadata)


def two_rings() -> ClusterState:
    """Return a machine with scattered GPUs, and two pods that need a link."""
    return cluster(*scattered("a", *FOUR_LEFT), ring("r1"), ring("r2"))


def bound_to(node: str, item: Pod) -> Pod:
    """Return the next version of a pod, bound."""
    metadata = msgspec.structs.replace(item.metadata, resource_version="99")
    return msgspec.structs.replace(item, metadata=metadata, spec=msgspec.structs.replace(item.spec, node_name=node))


def full_with(*waiting: Pod) -> ClusterState:
    """Return a machine without a free GPU, and these pods."""
    return cluster(*scattered("a", *range(8)), *waiting)
