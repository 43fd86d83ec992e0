"""Every container that holds a GPU, or any part of it, is named."""

from __future__ import annotations

from agent.plugin.pods.holders import HeldDevices, held_of
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from topology.annotations.records import ClaimUser, Holder, Sharer
from topology.node.silicon import NO_SLICES


def pod(name: str, *devices: str, elsewhere: tuple[str, ...] = ()) -> ListedPod:
    """Return a pod of namespace `ml` with these devices."""
    return ListedPod("ml", name, (ListedContainer("main", frozenset(devices), elsewhere),))


def test_a_gpu_has_one_holder() -> None:
    """What is no GPU of the node, such as a network device, is passed over."""
    pods = [pod("train", "GPU-a", "GPU-b", elsewhere=("mlx5_0",)), pod("foreign", "GPU-x")]
    holder = Holder("ml", "train", "main")
    assert held_of(pods, {"GPU-a", "GPU-b", "GPU-c"}, NO_SLICES) == HeldDevices({"GPU-a": holder, "GPU-b": holder})


def test_a_shared_gpu_has_all_its_sharers() -> None:
    """Also those by another resource; two replicas of one GPU may be one pod's."""
    pods = [
        pod("two", "GPU-a::1", "GPU-a::0"),
        pod("one", "GPU-a::2", "GPU-b::0"),
        pod("renamed", elsewhere=("GPU-b::1",)),
    ]
    one, two, renamed = (Sharer("ml", name, "main", parts) for name, parts in (("one", 1), ("two", 2), ("renamed", 1)))
    held = held_of(pods, {"GPU-a", "GPU-b"}, NO_SLICES)
    assert held.shared == {"GPU-a": (one, two), "GPU-b": (one, renamed)}
    assert held.gpus == dict.fromkeys(("GPU-a", "GPU-b"), Holder("ml", "one", "main"))


def test_containers_and_gpus_are_told_in_their_order() -> None:
    """A report is written again only where something has changed."""
    names = [f"c{number}" for number in range(6)]
    devices = tuple(f"GPU-{number}::0" for number in range(6))
    pods = [ListedPod("ml", "p", tuple(ListedContainer(name, frozenset(devices)) for name in reversed(names)))]
    held = held_of(pods, {gpu.partition("::")[0] for gpu in devices}, NO_SLICES)
    assert list(held.shared) == [f"GPU-{number}" for number in range(6)]
    assert [who.container for who in held.shared["GPU-0"]] == names


def test_devices_of_claims_are_told_by_container_and_claim() -> None:
    """In one order, as a report is written again only where something has changed. No list names their GPUs."""
    names = tuple(f"gpu-{minor}" for minor in range(8))
    shared = frozenset(("a", "n1", name) for name in names)
    two = ListedContainer("two", claimed=shared | {("b", "n1", "gpu-2")})
    one = ListedContainer("one", claimed=shared)
    held = held_of([ListedPod("ml", "p", (two, one)), pod("none")], {"GPU-a"}, NO_SLICES)
    users = ("one", "a", "n1", names), ("two", "a", "n1", names), ("two", "b", "n1", ("gpu-2",))
    assert held == HeldDevices(claimed=tuple(ClaimUser("ml", "p", *user) for user in users))


def test_whoever_has_it_whole_is_its_holder() -> None:
    """A pod kept a replica while the plugin stopped sharing; both are told."""
    held = held_of([pod("a-replica", "GPU-a::0"), pod("whole", "GPU-a")], {"GPU-a"}, NO_SLICES)
    assert held.gpus == {"GPU-a": Holder("ml", "whole", "main")}
    assert held.shared == {"GPU-a": (Sharer("ml", "a-replica", "main"),)}
