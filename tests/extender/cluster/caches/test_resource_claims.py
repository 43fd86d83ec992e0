"""Which GPUs of a node ResourceClaims hold, by what NVIDIA's driver publishes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.cluster.caches import resource_claims
from extender.cluster.caches.resource_claims import ResourceClaims
from extender.cluster.objects.node_devices import NOTHING
from extender.cluster.objects.versions import Listing
from tests.dra import Json, allocated, gpu, mig, read_claim, read_slice, resource_slice, vfio, waiting
from topology.annotations.records import ClaimUser

WHOLE = [gpu(minor, f"GPU-{minor}") for minor in range(4)]


class Known:
    """What one process has heard of, and the nodes that were touched by it."""

    def __init__(self, slices: Sequence[Json] = (), claims: Sequence[Json] = ()) -> None:
        self.touched: list[str] = []
        self.claims = ResourceClaims(self.touched.append)
        self.claims.slices.replaced([read_slice(each) for each in slices])
        self.claims.replaced([self.claims.keep(read_claim(each)) for each in claims])
        self.claims.hear(True)
        self.touched.clear()

    def held(self, node: str = "n1") -> dict[str, tuple[str, ...]]:
        return dict(self.claims.on(node).held)

    def take(self, claim: Json) -> None:
        self.claims.changed(self.claims.keep(read_claim(claim)))

    def publish(self, published: Json) -> None:
        self.claims.slices.changed(read_slice(published))


def test_a_device_is_the_gpu_whose_uuid_its_driver_publishes() -> None:
    """Its name is a minor number, which says nothing by itself."""
    published = [gpu(0, "GPU-z"), gpu(1, "GPU-a")]
    known = Known([resource_slice("n1", published)], [allocated("train", "n1", "gpu-1")])
    assert (known.held(), known.held("n2")) == ({"GPU-a": ("ml/train",)}, {})


def test_a_slice_of_a_gpu_holds_the_whole_of_it() -> None:
    """A MIG device that is made on demand has no UUID of its own."""
    known = Known(
        [resource_slice("n1", [*WHOLE, mig(2, "GPU-2", 0)])], [allocated("small", "n1", "gpu-2-mig-1g5gb-19-0")]
    )
    assert known.held() == {"GPU-2": ("ml/small",)}


def test_several_claims_on_one_device_are_all_named() -> None:
    """Shared devices and consumable capacity: it is held until the last one is gone."""
    shared = [allocated(name, "n1", "gpu-0", share=f"share-{name}") for name in ("b", "a")]
    known = Known([resource_slice("n1", WHOLE)], shared)
    assert known.held() == {"GPU-0": ("ml/a", "ml/b")}
    known.take(waiting("a"))
    assert known.held() == {"GPU-0": ("ml/b",)}


@pytest.mark.parametrize(
    "claim",
    [
        allocated("look", "n1", "gpu-0", admin=True),
        allocated("channel", "n1", "gpu-0", driver="compute-domain.nvidia.com"),
        waiting("later"),
    ],
)
def test_what_takes_no_gpu_holds_none(claim: Json) -> None:
    """Admin access looks on, other drivers hand out other things, and a claim that waits has nothing."""
    known = Known([resource_slice("n1", WHOLE)], [claim])
    assert known.claims.on("n1") == Known([resource_slice("n1", WHOLE)]).claims.on("n1")


@pytest.mark.parametrize("end", ["deallocated", "deleted", "missing"])
def test_a_claim_that_ends_lets_go(end: str) -> None:
    """However that is heard of."""
    held = allocated("train", "n1", "gpu-1")
    known = Known([resource_slice("n1", WHOLE)], [held])
    if end == "deallocated":
        known.take(waiting("train"))
    elif end == "deleted":
        known.claims.deleted(read_claim(held))
    else:
        known.claims.replaced([])
    assert (known.held(), known.touched) == ({}, ["n1"])


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """While a driver replaces its slices, the old ones may say otherwise."""
    old = resource_slice("n1", [gpu(0, "GPU-old"), gpu(1, "GPU-1")], name="a", generation=1)
    new = resource_slice("n1", [gpu(0, "GPU-new")], name="b", generation=2)
    claims = [allocated("train", "n1", "gpu-0"), allocated("stuck", "n1", "gpu-1")]
    known = Known([old, new], claims)
    assert known.held() == {"GPU-new": ("ml/train",)}
    assert known.claims.on("n1").unmatched == (("ml/stuck", "gpu-1"),)
    known.publish(resource_slice("n1", WHOLE, name="b", generation=3))
    assert known.held() == {"GPU-0": ("ml/train",), "GPU-1": ("ml/stuck",)}


def test_a_pool_may_come_in_several_slices() -> None:
    """A device is looked for in all of the newest ones."""
    parts = [resource_slice("n1", [device], name=device["name"], slices=4) for device in WHOLE]
    known = Known(parts, [allocated("train", "n1", "gpu-0", "gpu-3")])
    assert known.held() == {"GPU-0": ("ml/train",), "GPU-3": ("ml/train",)}


@pytest.mark.parametrize("slices", [[], [resource_slice("n1", [vfio(0)])], [resource_slice("n2", WHOLE)]])
@pytest.mark.parametrize("anywhere", [False, True])
def test_a_device_of_which_nobody_tells_the_gpu_is_told_of_its_node_alone(slices: list[Json], anywhere: bool) -> None:
    """A slice that is missing, or says no UUID; where the claim does not say the node, its pool does."""
    known = Known(slices, [allocated("vm", "n1", "gpu-vfio-0", anywhere=anywhere)])
    assert known.claims.on("n1").unmatched == (("ml/vm", "gpu-vfio-0"),)
    assert (known.held(), known.claims.on("n2").unmatched, known.claims.on("n3")) == ({}, (), NOTHING)


def test_the_allocation_says_where_a_device_is() -> None:
    """A pool need not be named after its node."""
    published = resource_slice("n1", WHOLE)
    published["spec"]["pool"]["name"] = "pool-7"
    claim = allocated("train", "n1", "gpu-1")
    claim["status"]["allocation"]["devices"]["results"][0]["pool"] = "pool-7"
    assert Known([published], [claim]).held() == {"GPU-1": ("ml/train",)}


def test_a_slice_that_comes_late_is_told_of_to_the_node() -> None:
    """A slice that goes, too; one that says the same again touches nobody."""
    known = Known(claims=[allocated("train", "n1", "gpu-0")])
    known.publish(resource_slice("n1", WHOLE))
    assert (known.held(), known.touched) == ({"GPU-0": ("ml/train",)}, ["n1"])
    known.publish(resource_slice("n1", WHOLE))
    assert known.touched == ["n1"]
    known.claims.slices.replaced([])
    assert (known.held(), known.touched) == ({}, ["n1", "n1"])


def test_a_slice_that_names_no_node_is_told_of_where_claims_hold_its_devices() -> None:
    """Its pool says who is concerned."""
    known = Known(claims=[allocated("train", "n1", "gpu-0")])
    published = resource_slice("n1", WHOLE)
    del published["spec"]["nodeName"]
    known.publish(published | {"spec": published["spec"] | {"allNodes": True}})
    assert known.held() == {"GPU-0": ("ml/train",)}
    assert "n1" in known.touched


def test_what_cannot_be_read_keeps_what_was_known() -> None:
    """It exists, whatever it says; a last version says enough."""
    held, published = read_claim(allocated("train", "n1", "gpu-0")), read_slice(resource_slice("n1", WHOLE))
    known = Known([resource_slice("n1", WHOLE)], [allocated("train", "n1", "gpu-0")])
    known.claims.replaced([], Listing("2", (held.metadata,)))
    known.claims.slices.replaced([], Listing("2", (published.metadata,)))
    known.claims.unread(held.metadata, gone=False)
    known.claims.slices.unread(published.metadata, gone=False)
    assert known.held() == {"GPU-0": ("ml/train",)}
    known.claims.slices.unread(published.metadata, gone=True)
    assert known.claims.on("n1").unmatched
    known.claims.unread(held.metadata, gone=True)
    assert known.claims.on("n1") is NOTHING


def test_silence_is_told_of_where_devices_are_published_or_held() -> None:
    """All other nodes have nothing to do with it."""
    known = Known([resource_slice("n1", WHOLE)], [allocated("vm", "n2", "gpu-0")])
    known.claims.hear(False)
    assert [known.claims.on(node).is_unheard for node in ("n1", "n2", "n3")] == [True, True, False]
    assert known.touched == ["n1", "n2"]


def test_taints_that_keep_pods_away_are_told_by_gpu() -> None:
    """A taint without effect is a word only, and one of a slice is about that slice."""
    tainted = [
        gpu(0, "GPU-0", {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute"}),
        gpu(1, "GPU-1", {"key": "gpu.nvidia.com/unmonitored", "effect": "None"}),
        mig(2, "GPU-2", 0) | {"taints": [{"key": "gpu.nvidia.com/xid", "value": "94", "effect": "NoSchedule"}]},
    ]
    known = Known([resource_slice("n1", tainted), resource_slice("n2", WHOLE, driver="other.example.com")])
    assert known.claims.on("n1").tainted == {"GPU-0": "gpu.nvidia.com/xid=79:NoExecute"}
    assert known.claims.on("n2") is NOTHING


def user(claim: str, *devices: str, pool: str = "n1") -> ClaimUser:
    """Return a container that the agent saw with devices."""
    return ClaimUser("ml", f"pod-of-{claim}", "main", claim, pool, devices)


def test_containers_with_devices_of_their_claims_are_named_by_gpu() -> None:
    """Only the slices tell which GPU a device is; a slice of a GPU is the GPU's."""
    sliced = mig(2, "GPU-2", 0)
    known = Known([resource_slice("n1", [*WHOLE, sliced])], [allocated("train", "n1", "gpu-1", sliced["name"])])
    train = user("train", "gpu-1", sliced["name"])
    devices = known.claims.on("n1", [train])
    assert (devices.users, devices.unexplained) == ({"GPU-1": (train,), "GPU-2": (train,)}, {})
    assert devices.seen_with(("ml", "pod-of-train")) == {"GPU-1", "GPU-2"}


@pytest.mark.parametrize(
    "claims", [[], [waiting("train")], [allocated("train", "n1", "gpu-2")], [allocated("other", "n1", "gpu-1")]]
)
def test_a_container_with_a_device_that_its_claim_does_not_hold_is_unexplained(claims: list[Json]) -> None:
    """The claim is gone, was deallocated or has other devices; another claim does not explain it."""
    known = Known([resource_slice("n1", WHOLE)], claims)
    devices = known.claims.on("n1", [user("train", "gpu-1")])
    assert (devices.users, devices.unexplained) == ({}, {"GPU-1": (user("train", "gpu-1"),)})


def test_a_container_with_an_unknown_device_that_no_claim_holds_may_have_any_gpu() -> None:
    known = Known([resource_slice("n1", WHOLE)])
    assert known.claims.on("n1", [user("train", "gpu-9")]).unmatched == (("ml/train", "gpu-9"),)


MONITOR = allocated("monitor", "n1", "gpu-0", "gpu-1", admin=True)


def test_who_has_admin_access_to_a_device_does_not_use_it() -> None:
    """The kubelet lists devices of admin access like any others; what is kept of the claim tells the difference."""
    known = Known([resource_slice("n1", WHOLE)], [MONITOR])
    assert known.claims.on("n1", [user("monitor", "gpu-0", "gpu-1")]) == known.claims.on("n1")


@pytest.mark.parametrize("end", ["deallocated", "deleted", "missing"])
def test_who_had_admin_access_is_no_user_when_the_claim_is_gone(end: str) -> None:
    """Agents report its containers for a while after that. All GPUs would be in conflict whenever monitors are replaced."""
    known = Known([resource_slice("n1", WHOLE)], [MONITOR])
    if end == "deallocated":
        known.take(waiting("monitor"))
    elif end == "deleted":
        known.claims.deleted(known.claims.keep(read_claim(MONITOR)))
    else:
        known.claims.replaced([])
    assert known.touched == ["n1"]
    assert known.claims.on("n1", [user("monitor", "gpu-0")]) == known.claims.on("n1")
    assert known.claims.on("n1", [user("monitor", "gpu-2")]).unexplained.keys() == {"GPU-2"}


def test_a_claim_of_the_same_name_without_admin_access_does_not_inherit_it() -> None:
    """A container that keeps the device of a claim which is removed by force would not be seen."""
    known = Known([resource_slice("n1", WHOLE)], [MONITOR])
    known.take(waiting("monitor"))
    known.take(allocated("monitor", "n1", "gpu-0"))
    known.take(waiting("monitor"))
    assert known.claims.on("n1", [user("monitor", "gpu-0")]).unexplained


def test_only_a_bounded_number_of_claims_is_kept_that_had_admin_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones are forgotten first."""
    monkeypatch.setattr(resource_claims, "MAX_HAD_ADMIN_ACCESS", 2)
    known = Known([resource_slice("n1", WHOLE)])
    for name in ("a", "b", "c"):
        known.take(allocated(name, "n1", "gpu-0", admin=True))
        known.take(waiting(name))
    users = [user(name, "gpu-0") for name in ("a", "b", "c")]
    assert known.claims.on("n1", users).unexplained == {"GPU-0": (users[0],)}


def test_a_driver_says_nothing_about_the_gpus_of_another_node() -> None:
    """It may publish a pool of any name, with any generation, and only for its own node."""
    forged = resource_slice("n2", [gpu(0, "GPU-3")], name="forged", generation=2**40)
    forged["spec"]["pool"]["name"] = "n1"
    known = Known([resource_slice("n1", WHOLE), forged], [allocated("train", "n1", "gpu-0")])
    assert (known.held(), known.claims.on("n1").unmatched) == ({"GPU-0": ("ml/train",)}, ())


def test_an_agent_says_nothing_about_the_devices_of_another_node() -> None:
    """What it costs to look at a report does not grow with the pools that the report names."""
    known = Known([resource_slice("n1", WHOLE), resource_slice("n2", [gpu(0, "GPU-9")])])
    assert known.claims.on("n1", [user("train", "gpu-0", pool="n2")]) == known.claims.on("n1")


def test_a_claim_that_is_heard_of_after_the_report_explains_its_container() -> None:
    """Two watches have no common order."""
    known = Known([resource_slice("n1", WHOLE)])
    assert known.claims.on("n1", [user("train", "gpu-1")]).unexplained.keys() == {"GPU-1"}
    known.take(allocated("train", "n1", "gpu-1"))
    assert known.touched == ["n1"]
    devices = known.claims.on("n1", [user("train", "gpu-1")])
    assert devices.users.keys() == {"GPU-1"} and not devices.unexplained


def test_where_claims_or_slices_are_not_known_a_container_proves_nothing() -> None:
    """It may have admin access. Without the right to read claims a cluster would have no GPUs left where monitors run."""
    unheard = Known([resource_slice("n1", WHOLE)])
    unheard.claims.hear(False)
    assert unheard.claims.on("n1", [user("train", "gpu-1")]) == unheard.claims.on("n1")
    assert Known().claims.on("n1", [user("train", "gpu-1")]) is NOTHING


def test_of_a_claim_without_gpus_its_name_alone_is_kept() -> None:
    """There may be any number of those, each with any number of words."""
    claim = waiting("other")
    claim["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d" * 1000}}
    claim["status"] = {
        "allocation": {"devices": {"results": [{"driver": "fpga.example.com", "pool": "n1", "device": "f"}]}}
    }
    known = Known()
    kept = known.claims.keep(read_claim(claim))
    assert kept == known.claims.keep(read_claim(waiting("other")))
    assert (kept.metadata.labels, kept.metadata.annotations) == (None, None)


def test_nothing_is_kept_of_what_is_gone() -> None:
    """However many claims and slices there were."""
    known = Known()
    for number in range(50):
        known.publish(resource_slice(f"n{number}", WHOLE))
        known.take(allocated(f"job-{number}", f"n{number}", "gpu-0"))
    known.claims.replaced([])
    known.claims.slices.replaced([])
    for cache in (known.claims, known.claims.slices):
        assert not any(value for value in vars(cache).values() if isinstance(value, dict))


def test_no_device_seems_free_while_a_list_is_taken() -> None:
    """One that has gone from claim to claim, in whichever order the list has them."""
    for names in ("ab", "ba"):
        known = Known([resource_slice("n1", WHOLE)], [allocated("a", "n1", "gpu-0")])
        listed = {"a": waiting("a"), "b": allocated("b", "n1", "gpu-0")}
        steps = known.claims.replacing([read_claim(listed[name]) for name in names], Listing())
        assert all(known.held() for _ in steps)
        assert known.held() == {"GPU-0": ("ml/b",)}


def test_claims_that_are_gone_are_removed_one_after_the_other() -> None:
    """Any number of them may be missing from one list."""
    nodes = [f"n{number}" for number in range(3)]
    known = Known([resource_slice(node, WHOLE) for node in nodes], [allocated(node, node, "gpu-0") for node in nodes])
    left = [sum(bool(known.held(node)) for node in nodes) for _ in known.claims.replacing([], Listing())]
    assert left == [2, 1, 0]
