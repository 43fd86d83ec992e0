"""The API server as far as DeviceTaintRules go."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.taints import LABELS, REPLICA, RULES
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request


@dataclass(slots=True)
class TaintRules:
    """The rules that exist."""

    devices: dict[str, str] = field(default_factory=dict)
    """Name of a rule → pool and device, with a slash."""
    replicas: dict[str, str] = field(default_factory=dict)
    """Name of a rule → the replica that has written it."""
    owners: list[dict[str, Any]] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    """What it answers to a method without doing anything."""
    listing: bytes | None = None
    """What it answers to a list, instead of the truth."""
    answers_get_lost: bool = False
    requests: list[str] = field(default_factory=list)
    """Method of each request."""

    async def send(self, request: Request) -> tuple[int, bytes]:
        """Answer a request."""
        self.requests.append(request.method)
        if status := self.statuses.get(request.method):
            return status, b'{"message": "no"}'
        if request.method == "GET":
            ours, _, asking = unquote(request.path).rpartition("labelSelector=")[2].rpartition(f",{REPLICA}!=")
            assert ours == ",".join(map("=".join, LABELS.items()))
            others = [name for name, replica in self.replicas.items() if replica != asking]
            return 200, self.listing or json.dumps(
                {"items": [{"metadata": {"name": name}} for name in others]}
            ).encode()
        if request.method == "DELETE":
            name = request.path.removeprefix(f"{RULES}/")
            self.replicas.pop(name, None)
            return (200, b"{}") if self.devices.pop(name, None) else (404, b"{}")
        if not self._create(json.loads(request.body or b"")):
            return 409, b"{}"
        if self.answers_get_lost:
            raise Unavailable("the answer is lost")
        return 201, b"{}"

    def _create(self, rule: dict[str, Any]) -> bool:
        metadata, selector = rule["metadata"], rule["spec"]["deviceSelector"]
        assert (rule["apiVersion"], rule["kind"]) == ("resource.k8s.io/v1", "DeviceTaintRule")
        assert metadata["labels"].items() >= LABELS.items() and selector["driver"] == DRIVER
        assert rule["spec"]["taint"] == {"key": "alloc.gputopo.dev/planned", "effect": "NoSchedule"}
        if metadata["name"] in self.devices:
            return False
        self.devices[metadata["name"]] = f"{selector['pool']}/{selector['device']}"
        self.replicas[metadata["name"]] = metadata["labels"][REPLICA]
        self.owners = metadata.get("ownerReferences", [])
        return True
