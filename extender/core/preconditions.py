"""Whether the API server honours what a Binding names as its preconditions: the whole protocol rests on that.

Servers have passed over the UID before (kubernetes/kubernetes#105913, #116550). So it is tried, as a dry run on a pod
that exists. It is tried once with another UID and once with another resourceVersion than the pod's. A bound pod is taken
where there is one, which not even a server that knew no dry runs could bind again. This takes no right that binding does
not take anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.kit.plain_structlog import structlog
from extender.kubernetes.documents import BrokenStream, decoder, read_page
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import FIELD_MANAGER, Request, Send

UNTIL_KNOWN_SECONDS = 5.0
NOBODY = "00000000-0000-0000-0000-000000000000"
NOWHERE = "gputopo-no-such-node"
_FAILED = b"Precondition failed"

log = structlog.get_logger(__name__)


_decode_pod = decoder(Pod)


class Preconditions:
    """What is known about the API server, from trying until it is known."""

    def __init__(self, send: Send, pods: Iterable[GpuPod]) -> None:
        self.honoured: bool | None = None
        """`None` before anything could tell: there is no pod to try it on, or the server has not answered."""
        self.tried = False
        """Whether it has been tried at all."""
        self._send = send
        self._pods = pods

    async def check(self) -> None:
        """Try once, unless it is known, which it is for good; an answer that says nothing leaves what is known."""
        try:
            if self.honoured is None:
                await self._check()
        finally:
            self.tried = True

    async def _check(self) -> None:
        try:
            pod = await self._somebody()
            if pod is None:
                return
            verdicts = [verdict(*await self._send(request)) for request in trials(pod.metadata)]
        except Unavailable:
            return
        if False in verdicts:
            self.honoured = False
            log.error("the API server ignores the preconditions of a Binding: no pod is bound through it")
        elif all(verdicts):
            self.honoured = True
            log.info("the API server honours the preconditions of a Binding")

    async def _somebody(self) -> Pod | None:
        """Return a pod to try it on, a bound one if there is one; where none asks for GPUs, any other will do."""
        pods = (pod.pod for pod in self._pods)
        if pod_to_ask := min(pods, key=lambda pod: (pod.spec.node_name is None, pod.metadata.uid), default=None):
            return pod_to_ask
        status, body = await self._send(Request("GET", "/api/v1/pods?limit=1"))
        try:
            listed = (read_page(body).items or []) if status == 200 else []
            return _decode_pod(listed[0]) if listed else None
        except BrokenStream:
            return None


def trials(pod: ObjectMeta) -> tuple[Request, Request]:
    """Return two Bindings that must fail: one meant for another pod, one for an older version."""
    return _trial(pod, {"uid": NOBODY}), _trial(pod, {"uid": pod.uid, "resourceVersion": "1"})


def verdict(status: int, body: bytes) -> bool | None:
    """Say what an answer to a trial tells: whether the precondition was looked at, and before anything else.

    A pod that is bound, gated or being deleted is refused with 409 in any case, and ours may have become one meanwhile.
    """
    if 200 <= status < 300:
        return False
    return True if status == 409 and _FAILED in body else None


def _trial(pod: ObjectMeta, precondition: dict[str, str]) -> Request:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace, "name": pod.name, **precondition},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NOWHERE},
    }
    path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/binding"
    return Request("POST", f"{path}?dryRun=All&fieldManager={FIELD_MANAGER}", msgspec.json.encode(binding))
