"""Whether a DeviceClass maps our resource: then kube-scheduler allocates devices (DRA) where no device plugin offers any.

Two planners for one GPU is what must not be, so such nodes are closed. Reading DeviceClasses takes a right that the extender has
where it shares kube-scheduler's account; where it has not, pods tell (`extendedResourceClaimStatus`), one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import UNREADABLE, Request, Send

PATH = "/apis/resource.k8s.io/v1/deviceclasses"

log = structlog.get_logger(__name__)


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str | None = None


class _DeviceClass(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = _Spec()


class _DeviceClasses(msgspec.Struct):
    items: list[_DeviceClass] = []


class DeviceClasses:
    """What is known of them, from checks now and then."""

    def __init__(self, send: Send, resource: str, tell: Callable[[bool], None]) -> None:
        """Begin knowing of none; `tell` hears whether one maps our resource, when that changes."""
        self.mapping: str | None = None
        """The name of one that maps our resource."""
        self._send = send
        self._tell = tell
        self._resource = resource

    async def check(self) -> None:
        """Check once; an answer that says nothing leaves what is known."""
        classes = await read_device_classes(self._send)
        if classes is None:
            return
        names = (name for name, resource in classes.items() if resource == self._resource)
        before, self.mapping = self.mapping, next(names, None)
        if (self.mapping is None) == (before is None):
            return
        self._tell(self.mapping is not None)
        if self.mapping:
            log.warning("a DeviceClass maps our resource: nodes without a device plugin are closed", name=self.mapping)


async def read_device_classes(send: Send) -> Mapping[str, str | None] | None:
    """Return the resource that each DeviceClass maps, if any; `None` where the answer says nothing."""
    try:
        status, body = await send(Request("GET", PATH))
        classes = msgspec.json.decode(body, type=_DeviceClasses).items if status == 200 else []
    except (Unavailable, *UNREADABLE):
        return None
    if status not in (200, 404):  # 404: the API server knows of no DRA
        return None
    return {item.metadata.name: item.spec.extended_resource_name for item in classes}
