"""U4: where a DeviceClass maps our resource, kube-scheduler hands out devices itself, and we leave it the nodes concerned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.simulated.double.resources import PODS
from benchmarks.simulated.fleet import SimulatedNode
from extender.binding.outcome import Failure, NotBound
from extender.cluster.candidates.openness import BY_DRA
from extender.cluster.objects.kinds import Pod
from extender.core.device_classes import DeviceClasses
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from extender.verbs.filter_prioritize import filter_nodes
from extender.verbs.wire import ExtenderArgs
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
    told: list[bool] = []
    found = DeviceClasses(ApiServer(status, body).send, keys.GPU_RESOURCE, told.append)
    await found.check()
    assert found.mapping == mapping
    assert told == ([True] if mapping else [])


@pytest.mark.parametrize(("status", "mapping"), [(0, "class-0"), (403, "class-0"), (500, "class-0"), (404, None)])
async def test_what_is_known_stays_until_an_answer_says_otherwise(status: int, mapping: str | None) -> None:
    """An outage is no reason to come back."""
    api = ApiServer(200, classes(keys.GPU_RESOURCE))
    told: list[bool] = []
    found = DeviceClasses(api.send, keys.GPU_RESOURCE, told.append)
    await found.check()
    api.answer = (status, b"")
    await found.check()
    assert found.mapping == mapping
    assert told == ([True] if mapping else [True, False])


@pytest.mark.slow
async def test_the_verbs_are_answered_beside_a_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a device plugin is offered; one where kube-scheduler hands out the GPUs itself is refused by name."""
    really = KubeApi.send

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if "deviceclasses" in request.path:
            return 200, classes(keys.GPU_RESOURCE)
        return await really(api, request)

    monkeypatch.setattr(KubeApi, "send", send)
    names = ["n1", "n2"]
    async with serving(tmp_path, *(SimulatedNode(name, "dgx-a100") for name in names)) as extender:
        nothing = {"status": {"allocatable": {keys.GPU_RESOURCE: "0"}}}
        patch = "application/merge-patch+json"
        (await extender.api.call("PATCH", "/api/v1/nodes/n2/status", nothing, content_type=patch)).ok()
        pod = await extender.create("train", 4)

        async def answer() -> dict[str, Any] | None:
            _, found = await extender.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": names})
            return found if found["NodeNames"] == ["n1"] else None

        assert await eventually(answer)
        _, refused = await extender.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": ["n2"]})
        assert refused["FailedAndUnresolvableNodes"]["n2"].startswith(BY_DRA)
        assert "gputopo_stands_aside 1.0" in (await extender.get("/metrics", extender.health_url))[1]


def test_a_pod_whose_gpus_come_from_a_claim_is_not_bound() -> None:
    """kube-scheduler has written that into its status before it asks for the bind; nothing is claimed for it."""
    world = World()
    world.add_pod("p")
    world.patch(PODS, "p", {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "p-gpus"}}}, "status")
    replica = Replica(world)
    outcome = replica.bind("p")
    assert isinstance(outcome, NotBound)
    assert (outcome.failure, world.claims()) == (Failure.CLAIMED_BY_DRA, {})
    asked = ExtenderArgs(msgspec.convert(world.find("p"), Pod), node_names=["n1"])
    answer = filter_nodes(replica.state, asked, replica.clock())
    assert answer.failed_and_unresolvable_nodes == {"n1": outcome.message}, (
        "filter says so, too, when it is asked again"
    )
