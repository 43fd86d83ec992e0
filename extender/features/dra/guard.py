"""Whether the policy is in force that reserves NVIDIA's DeviceClasses, and whether our own DeviceClasses match nothing.

The policy is tried and not read: a dry run of what it forbids, a claim of NVIDIA's class in our own namespace.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.claim_spec import MATCHES_NOTHING, OUR_CLASS, OUR_CLASSES, DeviceClass
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import FIELD_MANAGER, UNREADABLE, Request, Send, words_of

RESERVED: Final = f"this DeviceClass is reserved, use {OUR_CLASS}"
"""What the policy says when it refuses a claim; other policies may refuse it, too."""
_REFUSALS: Final = (403, 422)
_CLASSES_PATH: Final = "/apis/resource.k8s.io/v1/deviceclasses"
_decode_class = msgspec.json.Decoder(DeviceClass).decode

log = structlog.get_logger(__name__)


class DraGuard:
    """What is known of policy and classes, from checks now and then."""

    def __init__(self, send: Send, namespace: str, *, is_needed: bool) -> None:
        """Try the policy in this namespace; without need only the classes count."""
        self.classes: dict[str, DeviceClass] = {}
        """Ours, by name, those that exist and can be read."""
        self.policy_in_force: bool | None = None
        self._send = send
        self._namespace = namespace
        self._is_needed = is_needed
        self._answer = "it has not been tried yet"

    @property
    def obstacle(self) -> str | None:
        """Why nothing is allocated now; `None`: nothing speaks against it."""
        if OUR_CLASS not in self.classes:
            return f"there is no DeviceClass {OUR_CLASS}, or it cannot be read"
        for name, device_class in sorted(self.classes.items()):
            selectors = [selector.cel.expression for selector in device_class.spec.selectors or ()]
            if MATCHES_NOTHING not in selectors:
                return f"the DeviceClass {name} matches devices: kube-scheduler would allocate them, too"
        if self._is_needed and not self.policy_in_force:
            return f"the policy that reserves NVIDIA's DeviceClasses is not known to be in force: {self._answer}"
        return None

    def class_uid(self) -> str:
        """Return the UID of our DeviceClass for GPUs, empty while it is not known."""
        return self.classes[OUR_CLASS].metadata.uid if OUR_CLASS in self.classes else ""

    async def check(self) -> bool:
        """Read the classes and try the policy; returns whether anything has changed. No answer leaves what is known."""
        before = dict(self.classes), self.policy_in_force
        try:
            for name in sorted(OUR_CLASSES):
                await self._read_class(name)
            if self._is_needed:
                await self._try_policy()
        except Unavailable:
            return False
        return (self.classes, self.policy_in_force) != before

    async def _read_class(self, name: str) -> None:
        status, body = await self._send(Request("GET", f"{_CLASSES_PATH}/{name}"))
        if status == 200:
            try:
                self.classes[name] = _decode_class(body)
            except UNREADABLE:  # it may say what we do not know
                self.classes.pop(name, None)
        elif status in (403, 404):
            self.classes.pop(name, None)

    async def _try_policy(self) -> None:
        status, body = await self._send(forbidden_claim(self._namespace))
        if not (200 <= status < 300 or status in _REFUSALS):
            return
        is_refused = status in _REFUSALS and b"ValidatingAdmissionPolicy" in body and RESERVED.encode() in body
        if is_refused != self.policy_in_force:
            log.info("the policy on NVIDIA's DeviceClasses was tried", in_force=is_refused)
        self.policy_in_force = is_refused
        self._answer = "the API server accepts such claims" if status < 300 else words_of(status, body)


def forbidden_claim(namespace: str) -> Request:
    """Return the request that is refused; it changes nothing even where it is not."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gputopo-tries-the-policy"},
        "spec": {"devices": {"requests": requests}},
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{quote(namespace, safe='')}/resourceclaims"
    return Request("POST", f"{path}?dryRun=All&fieldManager={FIELD_MANAGER}", msgspec.json.encode(body))
