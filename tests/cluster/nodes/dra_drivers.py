"""The stub of NVIDIA's DRA driver on a real node: it prepares claims, and its test publishes the node's devices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from extender.cluster.objects.devices import DRIVER
from tests.cluster.claims import SLICES, publish, published
from tests.cluster.nodes.kubelet import ROOT
from tests.cluster.nodes.node import GpuNode
from tests.cluster.objects import Json
from tests.cluster.polling import eventually


@dataclass(frozen=True, slots=True)
class DraDriver:
    """The driver of one node, and what it has done."""

    node: GpuNode
    record: Path

    def gpu(self, device: str) -> str:
        """Return the UUID of a device."""
        return published(self._uuids(), device)

    def prepared(self) -> dict[str, list[str]]:
        """Return claim → its devices, for claims that are prepared and have not ended."""
        now = dict[str, list[str]]()
        for what, claim, devices in self._lines():
            if what == "ended":
                del now[claim]
            elif what == "prepared":
                now[claim] = devices
        return now

    def refused(self) -> list[str]:
        """Return the claims that were refused, since another claim had one of their devices."""
        return [claim for what, claim, _ in self._lines() if what == "refused"]

    def _lines(self) -> Iterator[tuple[str, str, list[str]]]:
        for text in self.record.read_text().splitlines():
            line = json.loads(text)
            yield line["what"], line["claim"], line["devices"]

    def _uuids(self) -> list[str]:
        return sorted(self.node.machine.uuids)


def start_driver(node: GpuNode, *parts: Json) -> DraDriver:
    """Start the stub with the kubelet's own rights, and publish the node's GPUs; or these slices, of GPUs in parts."""
    user = yaml.safe_load(node.plane.kubeconfig(f"system:node:{node.name}").read_text())["users"][0]["user"]
    uuids, record = sorted(node.machine.uuids), node.state / "dradriver.jsonl"
    record.touch()
    devices = [f"gpu-{minor}={published(uuids, f'gpu-{minor}')}" for minor in range(len(uuids))]
    if parts:
        offered = (device for item in parts for device in item["spec"].get("devices", ()))
        devices = [f"{device['name']}={device['name']}" for device in offered]
    program, server = node.parts.tools / "dradriver", node.plane.url
    driver = node.run(
        "dradriver", program, ROOT, DRIVER, *devices, SERVER=server, TOKEN=user["token"], RECORD=str(record)
    )
    eventually(lambda: "connected" in driver.log_tail())
    for item in parts:
        node.plane.admin.post(SLICES, item)
    if not parts:
        publish(node.plane.admin, node.name, uuids)
    return DraDriver(node, record)
