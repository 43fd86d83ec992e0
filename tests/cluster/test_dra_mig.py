"""Claims of our class for MIG devices: the real kube-scheduler keeps to what the extender allocates of GPUs in parts.

NVIDIA's driver is a stub that publishes GPUs whole and in parts, with the counters that they share. It prepares no container.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from extender.features.dra.profiles import selector_of
from tests.cluster.api import ApiError
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import CLAIMS, SLICED, SLICES, TEMPLATES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import recorded
from tests.cluster.objects import Json
from tests.cluster.planned_claims import claiming, claims_planned, dra_node, sweep_claims, template
from tests.cluster.polling import eventually
from tests.cluster.test_dra import says_why
from tests.dra import partitioned
from tests.world.kubelets import running_kubelets

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")]

MIG_CLASS: Final = "mig.gputopo.dev"
NODE: Final = "m"


@pytest.fixture(scope="module")
def started(binaries: Path) -> Iterator[GpuCluster]:
    """Start a control plane with the chart's planner, its own account, and a kube-scheduler that knows nothing of it."""
    with ControlPlane(binaries) as plane, running_kubelets(plane.kubeconfig()), claims_planned(plane) as started:
        yield started


@pytest.fixture
def cluster(started: GpuCluster) -> Iterator[GpuCluster]:
    """Lend the control plane with one node, whose driver offers eight GPUs, whole and in parts."""
    node = dra_node(NODE)
    started.join(node)
    for item in partitioned(NODE, [gpu.uuid for gpu in node.topology.gpus]):
        started.api.post(SLICES, item)
    yield started
    sweep_claims(started)
    started.api.delete(TEMPLATES)


def test_whole_gpus_and_mig_devices_are_given_side_by_side(cluster: GpuCluster) -> None:
    """No device and no counter is given twice at any time, and kube-scheduler changes no allocation."""
    pods = {"halves": ("3g.20gb", 2), "small": ("1g.5gb", 3), "whole": ("", 1), "more": ("1g.5gb", 7)}
    with recorded(cluster.api, [CLAIMS]) as claims:
        leave_two(cluster)
        submit(cluster, "halves", *pods["halves"])
        eventually(lambda: cluster.is_running("halves"))
        submit(cluster, "small", *pods["small"])
        eventually(lambda: cluster.is_running("small"))
        for name in ("whole", "more"):
            submit(cluster, name, *pods[name])
            eventually(partial(says_why, cluster, name, ""))
        given = devices(cluster)
        assert len(given.pop("rest")) == 6
        assert {name: len(of) for name, of in given.items()} == {"halves": 2, "small": 3}
        gpus = {name: {device.partition("-mig-")[0] for device in of} for name, of in given.items()}
        assert gpus["halves"].isdisjoint(gpus["small"]), "each fills one GPU"
        cluster.complete("halves")
        eventually(lambda: cluster.is_running("whole") or cluster.is_running("more"))
        for name in ("small", "whole", "more"):
            eventually(partial(cluster.is_running, name))
            cluster.complete(name)
    cluster.complete("rest")
    assert counters_exceeded(claims.changes()) == []
    assert allocations_changed(claims.changes()) == []
    eventually(lambda: not devices(cluster) and not cluster.ledger(NODE).claims)


def test_what_a_claim_of_nvidias_class_holds_counts(cluster: GpuCluster) -> None:
    """kube-scheduler allocates it; here the policy does not reserve the class, as the claim was there before."""
    leave_two(cluster)
    free = {f"gpu-{minor}" for minor in range(8)}.difference(devices(cluster)["rest"])
    taken, other = sorted(free)
    result = {"request": "gpus", "driver": "gpu.nvidia.com", "pool": NODE, "device": taken}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    status = {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "other.example.com"}}]}}
    cluster.api.post(CLAIMS, {"metadata": {"name": "theirs"}, "spec": spec})
    cluster.api.patch(f"{CLAIMS}/theirs/status", {"status": status})
    eventually(lambda: cluster.extender.metric("gpus_held_by_claims") == 1)  # those of our pods are in the ledger
    submit(cluster, "seven", "1g.5gb", 7)
    eventually(lambda: cluster.is_running("seven"))
    assert {device.partition("-mig-")[0] for device in devices(cluster)["seven"]} == {other}
    submit(cluster, "eighth", "1g.5gb", 1)
    eventually(partial(says_why, cluster, "eighth", ""))


def test_what_cannot_be_planned_is_refused_with_a_reason(cluster: GpuCluster) -> None:
    """It is said on the pod; a claim of NVIDIA's class for MIG devices is refused by the API server."""
    two = [request("a", "1g.5gb"), request("b", "3g.20gb")]
    either = {"name": "gpus", "firstAvailable": [{"name": "a", **request("a", "1g.5gb")["exactly"]}]}
    mixed = [request("a", "1g.5gb"), {"name": "b", "exactly": {"deviceClassName": "gpus.gputopo.dev", "count": 1}}]
    none = [{"name": "gpus", "exactly": {"deviceClassName": MIG_CLASS, "count": 1}}]
    refused: Mapping[str, tuple[list[Json], str]] = {
        "two": (two, "MIG devices of one profile"),
        "either": ([either], "request one profile by `exactly`"),
        "mixed": (mixed, "MIG devices of one profile"),
        "none": (none, "no profile for mig.gputopo.dev"),
    }
    for name, (requests, _) in refused.items():
        spec = {"devices": {"requests": requests}}
        cluster.api.post(TEMPLATES, {"metadata": {"name": f"gpus-{name}"}, "spec": {"spec": spec}})
        cluster.submit(pod_of(name, f"gpus-{name}"))
    for name, (_, reason) in refused.items():
        eventually(partial(says_why, cluster, name, reason))
    with pytest.raises(ApiError, match="reserved"):
        template(cluster.api, "nvidias", SLICED)


def request(name: str, profile: str, count: int = 1) -> Json:
    selectors = [{"cel": {"expression": selector_of(profile)}}]
    return {"name": name, "exactly": {"deviceClassName": MIG_CLASS, "count": count, "selectors": selectors}}


def pod_of(name: str, template_name: str) -> Json:
    pod = claiming(name, 1)
    pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template_name
    return pod


def submit(cluster: GpuCluster, name: str, profile: str, count: int) -> None:
    """Submit a pod for so many MIG devices, or whole GPUs, by a template of its own."""
    selectors = {"selectors": request(name, profile)["exactly"]["selectors"]} if profile else {}
    device_class = MIG_CLASS if profile else "gpus.gputopo.dev"
    template(cluster.api, f"gpus-{name}", device_class, count=count, **selectors)
    cluster.submit(pod_of(name, f"gpus-{name}"))


def leave_two(cluster: GpuCluster) -> None:
    """Have a pod with six whole GPUs."""
    submit(cluster, "rest", "", 6)
    eventually(lambda: cluster.is_running("rest"))


def devices(cluster: GpuCluster) -> dict[str, list[str]]:
    """Return pod → the devices of its claim."""
    given = dict[str, list[str]]()
    for claim in cluster.api.list(CLAIMS):
        if (allocation := claim.get("status", {}).get("allocation")) and claim["metadata"].get("ownerReferences"):
            names = [result["device"] for result in allocation["devices"]["results"]]
            given[claim["metadata"]["ownerReferences"][0]["name"]] = names
    return given


def counters_exceeded(changes: list[Json]) -> list[str]:
    """Return the counters of which claims have ever held more than there is at one time."""
    published = partitioned(NODE, [f"GPU-{minor}" for minor in range(8)])
    limits = {
        (item["name"], name): int(counter["value"])
        for item in published[0]["spec"]["sharedCounters"]
        for name, counter in item["counters"].items()
    }
    takes = {
        device["name"]: device["consumesCounters"][0] for item in published[1:] for device in item["spec"]["devices"]
    }
    held, exceeded = dict[str, list[str]](), set[str]()
    for change in changes:
        claim = change["object"]
        allocation = claim.get("status", {}).get("allocation") if change["type"] != "DELETED" else None
        held[claim["metadata"]["uid"]] = [result["device"] for result in (allocation or _NOTHING)["devices"]["results"]]
        used = Counter[tuple[str, str]]()
        for device in [device for of_claim in held.values() for device in of_claim]:
            for name, counter in takes[device]["counters"].items():
                used[takes[device]["counterSet"], name] += int(counter["value"])
        exceeded |= {"/".join(counter) for counter, amount in used.items() if amount > limits[counter]}
    return sorted(exceeded)


def allocations_changed(changes: list[Json]) -> list[str]:
    """Return the claims whose allocation was ever replaced by another one."""
    before, changed = dict[str, Any](), list[str]()
    for change in changes:
        claim = change["object"]
        allocation = claim.get("status", {}).get("allocation")
        if allocation and before.setdefault(claim["metadata"]["uid"], allocation) != allocation:
            changed.append(claim["metadata"]["name"])
    return changed


_NOTHING: Final[Json] = {"devices": {"results": []}}
