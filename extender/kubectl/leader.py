"""`--extender auto`: finds the extender that decides, and reaches it with `kubectl port-forward`.

An extender listens on loopback in the pod of its kube-scheduler, where nothing else reaches it. All extenders know the cluster,
but only that of the leading kube-scheduler holds GPUs for pods that are being bound. Without a kube-scheduler of ours it is the
extender that plans the queue.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from extender.config.defaults import QUEUE_LEASE
from extender.kubectl.extender_client import ExtenderUnavailable
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.lease import path_of_lease
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, words_of

AUTO: Final = "auto"
"""In the place of a URL."""
PORT: Final = "extender"
"""The name of the extender's port, in a pod of the chart."""
FORWARD_SECONDS: Final = 15.0
"""Within which kubectl says where it listens."""
_SELECTOR: Final = "app.kubernetes.io/name=gputopo,app.kubernetes.io/component in (scheduler,extender)"
_COMPONENT: Final = "app.kubernetes.io/component"
_TLS: Final = "tls"
"""The volume with the certificate, in a pod of the chart."""
_SAYS_WHERE: Final = "Forwarding from 127.0.0.1:"
_MAX_LINE_BYTES: Final = 4096


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Volume(msgspec.Struct):
    name: str = ""


class _PodSpec(msgspec.Struct):
    volumes: list[_Volume] = []


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)

    @property
    def has_scheduler(self) -> bool:
        """Whether it is one of kube-scheduler, and not of an extender alone."""
        return (self.metadata.labels or {}).get(_COMPONENT) == "scheduler"

    @property
    def wants_certificates(self) -> bool:
        """Whether its extender is behind a Service."""
        return not self.has_scheduler and any(volume.name == _TLS for volume in self.spec.volumes)

    @property
    def deployment(self) -> str:
        """The name of its Deployment: that of the ReplicaSet is cut nowhere, as that of a pod may be."""
        owner = self.metadata.controller
        return owner.name.rpartition("-")[0] if owner else ""

    @property
    def lease(self) -> str:
        """The name of the Lease by which the replicas elect a leader."""
        return self.deployment if self.has_scheduler else QUEUE_LEASE

    def is_in(self, holder: str) -> bool:
        """Whether this is how the replica in this pod calls itself: the host's name, and what tells processes apart."""
        return holder.startswith(self.metadata.name + ("_" if self.has_scheduler else ":"))


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


Document = TypeVar("Document", _Pods, _Lease)


async def leader(config: Kubeconfig) -> tuple[str, str]:
    """Return namespace and name of the pod whose extender decides; raises `ExtenderUnavailable`."""
    try:
        async with KubeApi.from_kubeconfig(config.files, config.context) as api:
            listed = await _get(api, f"/api/v1/pods?labelSelector={quote(_SELECTOR, safe='')}", _Pods)
            pods = [pod for pod in listed.items if pod.is_ready]
            if not pods:
                raise ExtenderUnavailable("no pod of gputopo's scheduler is ready in this cluster")
            if any(pod.wants_certificates for pod in pods):
                raise ExtenderUnavailable("extenders behind a Service answer only clients with a certificate")
            pod = pods[0] if len(pods) == 1 else await _leading(api, pods)
    except Unavailable as error:
        raise ExtenderUnavailable(str(error)) from error
    return pod.metadata.namespace, pod.metadata.name


async def _leading(api: KubeApi, pods: Sequence[_Pod]) -> _Pod:
    """Return the pod that holds the Lease."""
    namespace, name = pods[0].metadata.namespace, pods[0].lease
    if len(places := {f"{pod.metadata.namespace}/{pod.deployment}" for pod in pods}) > 1:
        raise ExtenderUnavailable(
            f"there are several schedulers with gputopo: {', '.join(sorted(places))}; forward a port and name its URL"
        )
    holder = (await _get(api, path_of_lease(namespace, name), _Lease)).spec.holder_identity or ""
    for pod in pods:
        if pod.is_in(holder):
            return pod
    raise ExtenderUnavailable(f"no ready pod holds the Lease {namespace}/{name}, but {holder or 'nobody'}")


async def _get(api: KubeApi, path: str, form: type[Document]) -> Document:
    status, body = await api.send(Request("GET", path))
    if status != 200:
        raise ExtenderUnavailable(f"{path.partition('?')[0]}: {words_of(status, body)}")
    try:
        return msgspec.json.decode(body, type=form)
    except (ValueError, RecursionError) as error:
        raise ExtenderUnavailable(f"{path.partition('?')[0]}: {error}") from error


@contextmanager
def forwarded(namespace: str, pod: str, file: Path | None, context: str | None) -> Iterator[str]:
    """Give the URL of a pod's extender for the length of a `with` block; raises `ExtenderUnavailable`."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ExtenderUnavailable("kubectl is not on the PATH, and forwards no port")
    command = [kubectl, "port-forward", f"--namespace={namespace}", f"pod/{pod}", f":{PORT}", "--address=127.0.0.1"]
    command += [f"--kubeconfig={file}"] if file else []
    command += [f"--context={context}"] if context else []
    pipe = subprocess.PIPE
    # What the user named, and names that the API server knows: no shell reads them.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:  # noqa: S603
        try:
            yield _url(process)
        finally:
            process.kill()


def _url(process: subprocess.Popen[bytes]) -> str:
    """Return where kubectl listens, as its first line says; raises `ExtenderUnavailable` with its last words."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = b""
    if select([process.stdout], [], [], FORWARD_SECONDS)[0]:
        line = os.read(process.stdout.fileno(), _MAX_LINE_BYTES)
    port, _, _ = line.decode(errors="replace").removeprefix(_SAYS_WHERE).partition(" ")
    if port.isdecimal():
        return f"http://127.0.0.1:{port}"
    process.kill()
    complaint = " ".join(process.stderr.read(_MAX_LINE_BYTES).decode(errors="replace").split())
    raise ExtenderUnavailable(f"kubectl port-forward: {complaint or 'it does not say where it listens'}")
