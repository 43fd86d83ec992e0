"""U4: where a DeviceClass maps our resource, kube-scheduler hands out the devices itself, and we stand aside and say so."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.simulated.double.resources import PODS
from extender.binding.outcome import Failure, NotBound
from extender.checks.device_classes import DeviceClasses
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.polling import eventually
from tests.extender.serving import serving
from tests.extender.world import Replica, World
from topology.annotations import keys


def classes(*resources: str | None) -> bytes:
    items = [
        {"metadata": {"name": f"class-{number}"}, "spec": {"extendedResourceName": resource} if resource else {}}
        for number, resource in enumerate(resources)
    ]
    return msgspec.json.encode({"items": items})


class ApiServer:
    """Gives the same answer to everything."""

    def __init__(self, status: int, body: bytes = b"") -> None:
        self.answer = (status, body)

    async def send(self, request: Request) -> tuple[int, bytes]:
        if not self.answer[0]:
            raise Unavailable("nobody there")
        return self.answer


@pytest.mark.parametrize(
    ("status", "body", "mapping"),
    [
        (200, classes(None, keys.GPU_RESOURCE), "class-1"),
        (200, classes("example.com/fpga"), None),
        (200, classes(), None),
        (404, b"", None),
        (200, b"{", None),
    ],
)
async def test_only_a_class_that_maps_our_resource_counts(status: int, body: bytes, mapping: str | None) -> None:
    """Others are not our business, and without the API there are none."""
    found = DeviceClasses(ApiServer(status, body).send, keys.GPU_RESOURCE)
    await found.check()
    assert found.mapping == mapping


@pytest.mark.parametrize(("status", "mapping"), [(0, "class-0"), (403, "class-0"), (500, "class-0"), (404, None)])
async def test_what_is_known_stays_until_an_answer_says_otherwise(status: int, mapping: str | None) -> None:
    """An outage is no reason to come back."""
    api = ApiServer(200, classes(keys.GPU_RESOURCE))
    found = DeviceClasses(api.send, keys.GPU_RESOURCE)
    await found.check()
    api.answer = (status, b"")
    await found.check()
    assert found.mapping == mapping


async def test_an_extender_stands_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not ready, says why, and answers no verb."""
    really = KubeApi.send

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if "deviceclasses" in request.path:
            return 200, classes(keys.GPU_RESOURCE)
        return await really(api, request)

    monkeypatch.setattr(KubeApi, "send", send)
    async with serving(tmp_path, ready=False) as extender:

        async def complaint() -> str | None:
            status, text = await extender.get("/readyz")
            return text if status == 503 and "DeviceClass" in text else None

        assert "DeviceClass class-0" in (await eventually(complaint) or "")
        assert (await extender.post("filter", {}))[0] == 503


def test_a_pod_whose_gpus_come_from_a_claim_is_not_bound() -> None:
    """kube-scheduler has written that into its status before it asks for the bind; nothing is claimed for it."""
    world = World()
    world.add_pod("p")
    world.patch(PODS, "p", {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "p-gpus"}}}, "status")
    outcome = Replica(world).bind("p")
    assert isinstance(outcome, NotBound)
    assert (outcome.failure, world.claims()) == (Failure.CLAIMED_BY_DRA, {})
