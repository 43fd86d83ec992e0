"""Placeholders for pods with ResourceClaims of our class, which matches no device: autoscalers add no node for them."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import msgspec
import pytest

from benchmarks.simulated.double.resources import NODES
from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.stands_for import StandsFor
from extender.cluster.state import ClusterState
from extender.features.autoscaling.feature import NODE_REQUESTS, Autoscaling
from extender.features.autoscaling.need import NODES_AT_ONCE, FreeCounts, Need, NoNeed, need_of
from extender.features.autoscaling.settings import AutoscalingSettings
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from tests.extender.builders import DGX, at, cluster, node
from tests.extender.features.dra.claim_site import ClaimSite
from tests.extender.scattered import LABEL, NAMESPACE, counted
from topology.annotations import keys
from topology.formats.catalog import machine
from topology.request.gpu_request import GpuRequest

A100 = "device.attributes['gpu.nvidia.com'].architecture == 'Ampere'"


def site_with(*counts: int) -> ClaimSite:
    """Return one node of a group, where other pods hold so many of eight GPUs each."""
    site = ClaimSite(1, Random(0))
    site.world.patch(NODES, "n0", {"metadata": {"labels": {LABEL: "dgx.8"}}})
    for number, count in enumerate(counts):
        site.create(f"first-{number}", count)
    site.ticks(3)
    return site


def need(site: ClaimSite, name: str) -> Need | NoNeed:
    """Return what a placeholder of a waiting pod would request."""
    site.ticks(1)
    state, uid = site.planner.state, site.pod(name).metadata.uid
    pod = state.pods.get(uid)
    assert pod is not None
    return need_of(state, pod, ["n0"], FreeCounts(state), at())


def test_one_more_device_than_any_node_has_without_a_claim() -> None:
    """So kube-scheduler gives it none of these. It accepts the devices that its pod accepts."""
    site = site_with(5)
    site.create("waits", 4, selector=A100)
    answer = need(site, "waits")
    assert isinstance(answer, Need)
    assert (answer.gpus, answer.groups, answer.devices.selectors) == (4, ("dgx.8",), (A100,))
    site.create("small", 2, selector="device.driver == 'nic.example.com'")
    assert isinstance(answer := need(site, "small"), Need) and answer.gpus == 4


def test_none_for_a_pod_for_which_others_end() -> None:
    """The node would come in vain, and kube-scheduler could give the placeholder what they give back."""
    site = site_with(8)
    site.create("waits", 8)
    assert isinstance(need(site, "waits"), Need)
    hold = Hold("n0", 255, expires=at().monotonic + 60.0, is_firm=True)
    site.planner.state.holds.put(site.pod("waits").metadata.uid, hold)
    assert need(site, "waits") is NoNeed.OTHER_REASON


def test_nodes_are_counted_in_steps() -> None:
    """To read the claims of all nodes of a large cluster takes half a second."""
    steps = [*FreeCounts(ClusterState()).read(f"n{number}" for number in range(10 * NODES_AT_ONCE))]
    assert len(steps) == 10


def test_none_where_no_node_of_the_group_has_more() -> None:
    site = site_with()
    site.create("waits", 2, selector="device.driver == 'nic.example.com'")
    assert need(site, "waits") is NoNeed.NO_LARGER


def test_groups_of_device_plugins_get_no_placeholder_of_a_claim() -> None:
    """Their new nodes would publish no devices. Of a declared group without nodes nothing else is known."""
    by_claim, by_plugin = GpuRequest(2, by_claim=True), GpuRequest(2)
    [group] = cluster(counted(node("n", DGX))).node_groups
    assert not group.would_take(by_claim) and group.would_take(by_plugin)
    [group] = site_with().planner.state.node_groups
    assert group.would_take(by_claim) and not group.would_take(by_plugin)
    [group] = ClusterState(expected={"a100.8": machine(DGX)}).node_groups
    assert group.would_take(by_claim) and group.would_take(by_plugin)
    assert group.how_many_fit(by_claim) == 4


def stand_in(*, on: str = "", by_claim: bool = True) -> Pod:
    """Return the pod of a placeholder for eight GPUs."""
    text = str(StandsFor("ml", "q", "q", 8))
    spec: dict[str, Any] = {"containers": [{"name": "main"}], "nodeName": on}
    if by_claim:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gputopo-q"}]
    metadata = {"name": "p", "namespace": NAMESPACE, "uid": "p", "annotations": {keys.PLACEHOLDER_FOR: text}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("on", "by_claim", "standing", "bound"), [("", True, 8, 0), ("n", True, 0, 8), ("", False, 0, 0)]
)
def test_a_placeholder_is_known_though_its_containers_request_no_gpu(
    on: str, by_claim: bool, standing: int, bound: int
) -> None:
    """It takes no GPUs by itself: what its claim holds is known from the claim."""
    state = ClusterState()
    state.claimed.reader = lambda _: None
    cluster(counted(node("n", DGX)), stand_in(on=on, by_claim=by_claim), into=state)
    stand_ins = state.indexes.stand_ins
    assert sum(item.gpus or 0 for item in stand_ins.by_pod(NAMESPACE).values()) == standing
    assert sum(item.gpus or 0 for item in stand_ins.bound_by_pod(NAMESPACE).values()) == bound
    assert state.views["n"].shape.free.bit_count() == 8


@pytest.mark.parametrize("text", ["ml/q/q/0x8", "ml/q/q/9999", "ml/q/q/-8", "ml/q/q/"])
def test_a_count_that_nobody_would_write_is_none(text: str) -> None:
    """Users may write the annotation, too."""
    pod = msgspec.convert({"metadata": {"annotations": {keys.PLACEHOLDER_FOR: text}}}, Pod)
    assert StandsFor.read(pod) == StandsFor("ml", "q", "q")


class Api:
    """Takes requests, and answers that for a template of claims with a status."""

    def __init__(self, site: ClaimSite, status: int = 201) -> None:
        self.site, self.status = site, status
        self.sent: list[Request] = []

    async def send(self, request: Request) -> tuple[int, bytes]:
        self.sent.append(request)
        if request.method == "GET":
            pod = self.site.world.find(request.path.split("/")[-1])
            return 200, msgspec.json.encode(pod)
        created = json.loads(request.body or b"{}")
        created.setdefault("metadata", {})["uid"] = "job-uid"
        return self.status if "template" in request.path else 201, msgspec.json.encode(created)

    def bodies(self, method: str) -> list[dict[str, Any]]:
        return [json.loads(request.body or b"{}") for request in self.sent if request.method == method]


def asked(site: ClaimSite, name: str, status: int = 201, looks: int = 2) -> Api:
    """Let a planner ask for a node, for a pod that has had no room for long."""
    api, state, moments = Api(site, status), site.planner.state, [100.0]
    autoscaling = Autoscaling(
        state=state,
        send=api.send,
        events=EventRecorder(api.send),
        metrics=Metrics("digest", [NODE_REQUESTS]),
        clock=lambda: at(moments[-1]),
        settings=AutoscalingSettings(enabled=True),
    )
    autoscaling.queue.is_here = lambda: True
    autoscaling.queue.without_room = lambda: [site.pod(name).metadata.uid]
    for _ in range(looks):
        asyncio.run(autoscaling.round())
        moments.append(moments[-1] + 60.0)
    return api


def full_site() -> ClaimSite:
    site = site_with(8)
    site.create("waits", 2, selector=A100)
    site.ticks(1)
    return site


def test_the_placeholder_has_a_claim_of_nvidias_class_that_goes_with_its_job() -> None:
    """Its containers request no GPU of a device plugin, which no such node has."""
    job, template = asked(full_site(), "waits").bodies("POST")
    pod = job["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": template["metadata"]["name"]}]
    assert pod["containers"][0]["resources"] == {"requests": {}, "limits": {}, "claims": [{"name": "gpus"}]}
    assert job["metadata"]["annotations"][keys.PLACEHOLDER_FOR].endswith("/2")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": [{"cel": {"expression": A100}}],
    }
    (owner,) = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", job["metadata"]["name"], "job-uid")


def test_a_placeholder_whose_claim_is_refused_goes_again() -> None:
    """As where the right to create templates is missing: no autoscaler would look at it. The next attempt is minutes later."""
    api = asked(full_site(), "waits", status=403, looks=4)
    assert [request.method for request in api.sent] == ["GET", "POST", "POST", "DELETE"]
