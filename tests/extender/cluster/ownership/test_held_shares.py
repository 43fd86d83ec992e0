"""What pods hold that share GPUs: amounts by container, what an init container leaves, and what namesakes have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from msgspec.structs import replace as struct_replace

from extender.cluster.objects.gpu_pods import GpuPod, read_gpu_pod
from extender.cluster.objects.kinds import Container, Pod, ResourceRequirements
from extender.cluster.objects.parts import Part
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.ownership.holdings import Holding, holdings_of
from tests.extender.builders import claim, pod, running
from tests.extender.cluster.ownership.test_holdings import Told
from tests.extender.shares import share, sharer
from topology.annotations import keys
from topology.annotations.records import Claim, Holder, Sharer

CERTAIN = Told()


def seen_with(**gib: int) -> tuple[Sharer, ...]:
    """Return what the agent saw of pod p on one GPU: container = GiB."""
    return tuple(Sharer("ml", "p", container, amount) for container, amount in gib.items())


def held(
    item: Pod,
    *claims: Claim,
    seen: Mapping[str, Sequence[Sharer]] = {},
    whole: Mapping[str, str] = {},
    told: Told = CERTAIN,
) -> Holding:
    """Return what pod p holds; `whole` is GPU → its container that the agent saw with it."""
    found = read_gpu_pod(item)
    assert found
    (holding,) = holdings_of(
        [found],
        claims,
        {gpu: Holder("ml", "p", container) for gpu, container in whole.items()},
        cast("Evidence", told),
        {gpu: tuple(sharers) for gpu, sharers in seen.items()},
    )
    return holding


TWO = sharer("p", {"main": 10, "side": 5}, on="n1", phase="Running", terminated=False)
LOADING = struct_replace(
    sharer("p", 20, on="n1", phase="Running", terminated=False),
    spec=struct_replace(
        sharer("p", 20, on="n1").spec,
        init_containers=[Container("load", ResourceRequirements({keys.SHARE_RESOURCE: 30}))],
    ),
)
"""Its init container needs 10 GiB beyond the other one."""


def test_a_pod_with_shares_is_seen_when_all_of_them_are() -> None:
    """Each container with its amount; else what is missing is hidden."""
    both = held(TWO, seen={"a": seen_with(main=10), "b": seen_with(side=5)})
    assert both.gpus == {"a": (Part("main", 10),), "b": (Part("side", 5),)}
    assert (both.seen, both.hidden) == (True, 0)
    one = held(TWO, seen={"a": seen_with(main=10)})
    assert (one.seen, one.hidden) == (False, 5)


def test_what_an_init_container_needs_is_on_the_gpu_of_the_containers_after_it() -> None:
    """No kubelet lists it. Where the others are not seen as they should be, nobody can say so."""
    whole = held(LOADING, seen={"a": seen_with(main=20)})
    assert whole.gpus == {"a": (Part("load", 10), Part("main", 20))}
    assert (whole.seen, whole.hidden) == (True, 0)
    for seen in {"a": seen_with(main=19)}, {"a": seen_with(main=10), "b": seen_with(main=10)}:
        assert {part.container for parts in held(LOADING, seen=seen).gpus.values() for part in parts} == {"main"}
        assert not held(LOADING, seen=seen).seen


def test_of_a_gpu_that_namesakes_share_each_has_its_containers() -> None:
    """What an earlier pod of that name has claimed stays its own until its end is proven."""
    old, both = replace(share("a", "old", 10), name="p"), {"a": seen_with(main=10, side=5)}
    assert held(TWO, old, seen=both).gpus == {"a": (Part("side", 5),)}
    assert held(TWO, old, seen={"a": seen_with(main=10)}).gpus == {}
    assert held(TWO, old, seen=both, told=Told(replaced=frozenset({"old"}))).seen


@dataclass(frozen=True)
class Recording(Told):
    """Remembers of which GPUs a report is said to be about the pod."""

    gpus: list[frozenset[str]] = field(default_factory=list)

    def is_about(self, pod: GpuPod, gpus: frozenset[str]) -> bool:
        self.gpus.append(gpus)
        return True


def test_a_gpu_that_is_all_a_namesakes_is_in_no_report_about_the_pod() -> None:
    """The next report about the pod is news then, also when it names the same GPU."""
    told = Recording()
    old = replace(share("a", "old", 10), name="p")
    held(TWO, old, seen={"a": seen_with(main=10), "b": seen_with(side=5)}, told=told)
    assert told.gpus == [frozenset({"b"})]


def test_a_whole_gpu_of_a_namesake_is_the_namesakes_in_every_container() -> None:
    """A container of this pod's may have another name."""
    stray, old = pod("p", 1, on="n1", phase="Running", terminated=False), replace(claim("a", "old"), name="p")
    assert held(stray, old, whole={"a": "side"}).gpus == {}


def test_of_a_whole_gpu_any_container_of_the_pod_may_have_the_claim() -> None:
    """The record may name another one."""
    assert held(running("p", "n1", "a"), replace(claim("a", "p"), container="side")).is_settled


def test_the_class_is_that_of_the_claims_and_else_that_of_the_pod() -> None:
    """The class of a share never changes; a whole GPU has none."""
    asks_dev = sharer("p", 10, on="n1", sharing_class="dev", phase="Running", terminated=False)
    assert held(asks_dev, share("a", "p", 10, "prod")).sharing_class == "prod"
    assert held(asks_dev).sharing_class == "dev"
    assert held(pod("p", on="n1", wants={keys.SHARING_CLASS: "dev"})).sharing_class == ""


@pytest.mark.parametrize(("gib", "has_all"), [(9, False), (10, True), (11, True)])
def test_a_pod_has_all_its_claims_when_they_add_up_to_its_shares(gib: int, *, has_all: bool) -> None:
    """More than that hides nothing."""
    holding = held(sharer("p", 10, on="n1"), share("a", "p", gib))
    assert (holding.has_all_claims, holding.hidden) == (has_all, max(0, 10 - gib))


def test_a_pod_whose_request_cannot_be_read_has_all_its_claims() -> None:
    """Nobody can say which one is missing."""
    assert held(pod("p", "many", on="n1")).has_all_claims


def test_more_gpus_than_the_pod_asks_for_hide_none() -> None:
    """Neither more nor fewer than none."""
    assert held(pod("p", 1, on="n1"), claim("a", "p"), claim("b", "p")).hidden == 0


@pytest.mark.parametrize(
    ("gib_by_gpu", "is_outdated"), [({"b": 10}, True), ({"b": 5, "c": 5}, False)], ids=["one GPU", "two GPUs"]
)
def test_a_record_is_outdated_if_it_can_name_the_gpus_that_ledger_and_agent_agree_on(
    gib_by_gpu: Mapping[str, int], *, is_outdated: bool
) -> None:
    """A record names one GPU for the share of a container."""
    placed = sharer("p", 10, on="n1", gpu="a", phase="Running", terminated=False)
    claims = [share(gpu, "p", gib) for gpu, gib in gib_by_gpu.items()]
    holding = held(placed, *claims, seen={gpu: seen_with(main=gib) for gpu, gib in gib_by_gpu.items()})
    assert (holding.seen, holding.is_settled, holding.outdates_record) == (True, True, is_outdated)


REFUSES = {keys.DEVICE_MISMATCH: "refuse"}


def test_a_pod_that_takes_no_others_is_followed_where_the_ledger_agrees_or_nothing_was_planned() -> None:
    """Also before it runs: there is nothing for which its node could hold it back."""
    placed = pod("p", 1, on="n1", placed=("a",), wants=REFUSES, phase="Pending")
    corrected = held(placed, claim("b", "p"), whole={"b": "main"})
    assert (set(corrected.gpus), corrected.seen) == ({"b"}, True)
    unplanned = held(pod("p", 1, on="n1", wants=REFUSES, phase="Pending"), whole={"b": "main"})
    assert (set(unplanned.gpus), unplanned.seen) == ({"b"}, True)
