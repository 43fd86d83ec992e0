"""Which claims are missing in a ledger, by what pods, records and the agent say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from extender.cluster.ownership.holdings import Holding
from extender.cluster.ownership.standing import Standing
from extender.cluster.ownership.unledgered import unledgered_of
from tests.extender.builders import claim, cluster, gpus, node, running
from tests.extender.shares import share
from topology.annotations.records import Claim, Holder, Sharer

A, B, C, *_ = gpus("n1", *range(8))
Standings = Sequence[tuple[Claim, Standing]]


def recorded(name: str, *placed: str) -> tuple[Holding, ...]:
    """Return what a pod holds by its record alone."""
    return cluster(node("n1"), running(name, "n1", *placed)).views["n1"].holdings


def said(claims: Sequence[Claim]) -> list[tuple[str, str, str, int | None]]:
    return [(claim.uid, claim.gpu, claim.container, claim.memory_gib) for claim in claims]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ((), [("p", A, "main", None)]),
        (((claim(A, "p"), Standing.FREE),), [("p", A, "main", None)]),
        (((claim(C, "q"), Standing.HELD),), [("p", A, "main", None)]),
        (((claim(A, "q"), Standing.HELD),), []),
        (((claim(A, "q"), Standing.GONE),), []),
        (((claim(A, "q"), Standing.FREE),), [("p", A, "main", None)]),
    ],
    ids=[
        "no claim",
        "a dead one",
        "on another GPU",
        "of another pod",
        "of a pod that is gone",
        "a dead one of another",
    ],
)
def test_a_pod_without_a_claim_gets_one_beside_those_that_stand(
    claims: Standings, expected: list[tuple[str, str, str, int | None]]
) -> None:
    """A ledger has room for one pod on a whole GPU, and what stands there comes first."""
    assert said(unledgered_of(claims, recorded("p", A), {}, {})) == expected


def test_a_pod_with_all_its_claims_gets_none_for_what_else_is_said_of_it() -> None:
    """The ledger has been corrected since its record was written."""
    state = cluster(node("n1", claims=(claim(B, "p"),)), running("p", "n1", A))
    [held] = state.views["n1"].holdings
    elsewhere = replace(held, gpus={A: held.claimed[B]})
    assert elsewhere.has_all_claims
    assert unledgered_of(((claim(B, "p"), Standing.HELD),), (elsewhere,), {}, {}) == []


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing.GONE, [("p", B, "side", None)]),
        (Standing.HELD, []),
        (Standing.UNSEEN, []),
        (Standing.FREE, []),
    ],
)
def test_what_the_agent_sees_of_a_pod_that_is_gone_gets_a_claim_like_the_one_that_stands(
    standing: Standing, expected: list[tuple[str, str, str, int | None]]
) -> None:
    """Nothing else tells of its containers; of other pods their records do."""
    found = unledgered_of(
        ((claim(A, "p"), standing),), (), {B: Holder("ml", "p", "side"), C: Holder("ml", "q", "x")}, {}
    )
    assert said(found) == expected


def test_a_whole_gpu_of_a_pod_that_is_gone_has_nothing_of_a_share() -> None:
    """Though what stands for the pod is a share."""
    [found] = unledgered_of(
        ((replace(share(A, "p", 5, "dev"), compute_percent=50), Standing.GONE),), (), {B: Holder("ml", "p", "main")}, {}
    )
    assert (found.gpu, found.memory_gib, found.sharing_class, found.compute_percent) == (B, None, "", None)


def test_parts_of_a_pod_that_is_gone_get_claims_of_their_class() -> None:
    """Each container that was seen; whoever has the GPU first in the report has it in parts, too."""
    sharers = {B: (Sharer("ml", "p", "side", 3), Sharer("ml", "q", "main", 4))}
    found = unledgered_of(
        ((share(A, "p", 5, "dev"), Standing.GONE),),
        (),
        {B: Holder("ml", "p", "side"), C: Holder("ml", "q", "x")},
        sharers,
    )
    assert said(found) == [("p", B, "side", 3)]
    assert found[0].sharing_class == "dev"


def test_a_gpu_of_which_others_have_parts_is_nobodys_as_a_whole() -> None:
    """The first holder in the report stands for all who share it."""
    sharers = {B: (Sharer("ml", "q", "main", 4),)}
    assert unledgered_of(((claim(A, "p"), Standing.GONE),), (), {B: Holder("ml", "p", "main")}, sharers) == []


def test_what_is_reported_under_the_name_of_a_live_namesake_is_not_of_the_pod_that_is_gone() -> None:
    """The live one's record says what it has."""
    found = unledgered_of(((claim(A, "p"), Standing.GONE),), recorded("p", C), {B: Holder("ml", "p", "main")}, {})
    assert said(found) == [("p", C, "main", None)]


def test_another_namespace_is_another_pod() -> None:
    """Names are the same."""
    assert unledgered_of(((claim(A, "p"), Standing.GONE),), (), {B: Holder("web", "p", "main")}, {}) == []


def test_what_the_agent_sees_comes_before_a_record() -> None:
    """Both are of one GPU: containers run there, and the record is only a plan."""
    found = unledgered_of(((claim(C, "p"), Standing.GONE),), recorded("q", A), {A: Holder("ml", "p", "main")}, {})
    assert said(found) == [("p", A, "main", None)]
