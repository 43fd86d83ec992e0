"""Keeps kube-scheduler from devices that are about to be allocated: a DeviceTaintRule for each of them, since Kubernetes 1.37.

kube-scheduler may choose a device before it has seen our allocation. Then two claims have the device. To take ours back is not
enough: kube-scheduler counts a device as free as soon as one of its claims gives it back. So where it may choose, it is kept from
the devices first. What it has chosen before that, the watch of claims shows before anything is allocated.

The second look at what is written still comes. So nothing waits for long for a rule that cannot be had.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final
from urllib.parse import quote

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from extender.core.openings import Openings
from extender.features.dra.claim_spec import OUR_CLASS
from extender.features.dra.inventory import DeviceId
from extender.kit.clock import Clock
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import FIELD_MANAGER, UNREADABLE, Request, Send, words_of
from topology.annotations import keys

RULES: Final = "/apis/resource.k8s.io/v1/devicetaintrules"
TAINT: Final = keys.PLANNED
LABELS: Final = {"app.kubernetes.io/name": "gputopo-planned-device", "app.kubernetes.io/managed-by": FIELD_MANAGER}
REPLICA: Final = "app.kubernetes.io/instance"
"""Label of the replica that has written a rule."""
DEVICES: Final = 4096
"""With a rule at one time, at most; further ones go without."""
WANTED_SECONDS: Final = 30.0
"""How long a device is kept for a pod that asks for it no more: its plan was given up, or its replica is slow."""
ALLOCATED_SECONDS: Final = 5.0
"""Until kube-scheduler has seen an allocation."""
PATIENCE_SECONDS: Final = 10.0
"""After that an allocation goes without a rule."""
LISTING_SECONDS: Final = 60.0
"""Between two looks for rules of replicas that are gone, and whether the API server knows rules at all."""
AT_ONCE: Final = 16
"""Requests."""
_EXISTS: Final = 409
_GONE: Final = 404
_NO_RULES: Final = (403, 404, 422)
"""Before Kubernetes 1.37, without the right, or where something refuses them."""

log = structlog.get_logger(__name__)


class _Rule(msgspec.Struct):
    metadata: ObjectMeta


class _Rules(msgspec.Struct):
    items: list[_Rule]


_decode_rules = msgspec.json.Decoder(_Rules).decode


@dataclass(slots=True)
class _Kept:
    """One device; moments are monotonic seconds."""

    rule: str
    """Its name. The next rule of the device has another one, so that a late deletion of this one does not meet it."""
    wanted_at: float
    until: float
    since: float = math.inf
    """When the rule was seen to exist."""

    @property
    def has_rule(self) -> bool:
        return self.since < math.inf


@dataclass(slots=True)
class DeviceTaints:
    """The rules of one replica."""

    send: Send
    clock: Clock
    openings: Openings
    owner_uid: Callable[[], str] = lambda: ""
    """UID of our DeviceClass: the rules go with it."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a device to be kept."""
    _kept: dict[DeviceId, _Kept] = field(default_factory=dict)
    _removing: dict[str, None] = field(default_factory=dict)
    """Names of rules that are to go."""
    _leftovers: frozenset[str] = frozenset()
    """Names of the rules of other replicas at the last look."""
    _are_known: bool = False
    _refused_until: float = -math.inf
    _complain_at: float = -math.inf
    _list_at: float = -math.inf
    _replica: str = field(default_factory=lambda: token_hex(8))
    _number: int = 0

    @property
    def are_served(self) -> bool:
        """Whether the API server knows rules, and lets us write them."""
        return self._are_known and self.clock().monotonic >= self._refused_until

    @property
    def count(self) -> int:
        """How many rules there are that we have written, or are to remove."""
        return sum(kept.has_rule for kept in self._kept.values()) + len(self._removing)

    def keep(self, devices: Iterable[DeviceId]) -> float:
        """Keep kube-scheduler from these devices; returns for how many seconds it has been.

        That is 0 while one of them waits for its rule, and endless for those that cannot have one.
        """
        now = self.clock().monotonic
        seconds = math.inf
        for device in devices:
            if device not in self._kept and len(self._kept) + len(self._removing) < DEVICES:
                self._number += 1
                self._kept[device] = _Kept(f"gputopo-{self._replica}-{self._number}", now, now)
                self.wake.set()
            if kept := self._kept.get(device):
                kept.until = now + WANTED_SECONDS
                if kept.has_rule:
                    seconds = min(seconds, now - kept.since)
                elif now - kept.wanted_at < PATIENCE_SECONDS:
                    seconds = 0.0
        return seconds

    def allocated(self, devices: Iterable[DeviceId]) -> None:
        """Keep kube-scheduler from these devices for as long as it may take to hear of their allocation."""
        until = self.clock().monotonic + ALLOCATED_SECONDS
        for device in devices:
            if kept := self._kept.get(device):
                kept.until = until

    async def work(self) -> None:
        """Write the rules that are wanted, and remove those that are not."""
        now = self.clock().monotonic
        for device, kept in [*self._kept.items()]:
            if kept.until <= now:
                del self._kept[device]
                self._removing[kept.rule] = None
        if now >= self._list_at:
            await self._look(now)
        if self.openings.are_here() and self.are_served:
            await _in_turns(self._create(*item) for item in [*self._kept.items()] if not item[1].has_rule)
        await _in_turns(map(self._remove, [*self._removing]))

    async def _create(self, device: DeviceId, kept: _Kept) -> None:
        uid = self.owner_uid()
        owner = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "name": OUR_CLASS, "uid": uid}
        metadata = {"name": kept.rule, "labels": {**LABELS, REPLICA: self._replica}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {**metadata, "ownerReferences": [owner] if uid else []},
            "spec": {
                "deviceSelector": {"driver": device.driver, "pool": device.pool, "device": device.name},
                "taint": {"key": TAINT, "effect": "NoSchedule"},
            },
        }
        creation = Request("POST", f"{RULES}?fieldManager={FIELD_MANAGER}", msgspec.json.encode(body))
        status, answer = await self._answer(creation)
        now = self.clock().monotonic
        if 200 <= status < 300 or status == _EXISTS:
            kept.since = now
            return
        if status and now >= self._complain_at:
            log.warning("a planned device is not tainted", device=str(device), why=words_of(status, answer))
            self._complain_at = now + LISTING_SECONDS
        if status in _NO_RULES:
            self._refused_until = now + LISTING_SECONDS

    async def _look(self, now: float) -> None:
        """Learn whether there are rules, and remove those of other replicas that were there at the last look, too."""
        others = ",".join((*map("=".join, LABELS.items()), f"{REPLICA}!={self._replica}"))
        status, answer = await self._answer(Request("GET", f"{RULES}?limit=500&labelSelector={quote(others)}"))
        if status != 200 and status not in _NO_RULES:
            return
        self._list_at = now + LISTING_SECONDS
        try:
            names = frozenset(rule.metadata.name for rule in _decode_rules(answer).items) if status == 200 else None
        except UNREADABLE:
            names = None
        self._are_known = names is not None
        if names and self.openings.are_here():
            self._removing |= dict.fromkeys(names & self._leftovers)
        self._leftovers = names or frozenset()

    async def _remove(self, name: str) -> None:
        status, _ = await self._answer(Request("DELETE", f"{RULES}/{quote(name, safe='')}"))
        if 200 <= status < 300 or status == _GONE:
            self._removing.pop(name, None)

    async def _answer(self, request: Request) -> tuple[int, bytes]:
        """Return status and body; a status of 0: there was no answer, and the next round asks again."""
        try:
            return await self.send(request)
        except Unavailable:
            return 0, b""


async def _in_turns(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Do a few things at a time."""
    waiting = [*work]
    for first in range(0, len(waiting), AT_ONCE):
        await asyncio.gather(*waiting[first : first + AT_ONCE])
