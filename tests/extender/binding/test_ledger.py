"""What a ledger's replacement rests on, and what is in it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from extender.binding.intents import SwapLedger
from extender.binding.ledger import next_generation, swap_ledger
from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import claim, cluster, gpus, node, pod, running
from tests.extender.shares import share
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import Claim, Ledger, decode_ledger, encode_ledger
from topology.errors import PayloadError

G = gpus("n1", *range(8))


def view(*objects: Node | Pod) -> NodeView:
    return cluster(*objects).views["n1"]


def owners(swap: SwapLedger) -> dict[str, str]:
    """Return GPU → UID as the new ledger has it."""
    return {entry.gpu: entry.uid for entry in decode_ledger(swap.ledger).claims}


@pytest.mark.parametrize(
    ("found", "generation"),
    [
        (node(generation=7, version=3), 8),
        (node(generation=3, version=7), 8),
        (node(claims=None, version=7), 8),
        (node(claims=None, version=0), 1),
    ],
    ids=["the ledger's is greater", "the node's version is", "no ledger", "neither"],
)
def test_a_generation_is_beyond_all_that_were_before(found: Node, generation: int) -> None:
    """Beyond the ledger's own, and beyond the node's version, which a lost ledger's cannot have reached."""
    assert next_generation(view(found)) == generation


def test_a_version_that_is_no_number_counts_for_nothing() -> None:
    """Then the ledger's own generation has to do."""
    for found, generation in ((node(generation=4), 5), (node(claims=None), 1)):
        metadata = msgspec.structs.replace(found.metadata, resource_version="abc")
        assert next_generation(view(msgspec.structs.replace(found, metadata=metadata))) == generation


def test_shares_leave_room_in_the_ledger_for_whole_gpus() -> None:
    """Or many small ones on one GPU would keep whole pods from all others of the node."""
    full, claims = None, [share(G[0], "notebook-0", 1)]
    begun = view(node(claims=tuple(claims)))
    while full is None:
        claims.append(share(G[0], f"notebook-{len(claims)}", 1))
        try:
            swap_ledger(begun, claims=claims[1:])
        except PayloadError as error:
            full = error
    assert len(claims) > 100
    assert full.reason == "shares are in all of it but what whole GPUs need"
    found = view(node(claims=tuple(claims[:-1])))
    with pytest.raises(PayloadError):
        swap_ledger(found, claims=claims[-1:])
    whole = [replace(claim(gpu, "u" * 36), name="n" * 253, namespace="n" * 63, container="n" * 63) for gpu in G[1:]]
    assert owners(swap_ledger(found, claims=whole)).keys() == {*G}


def test_new_claims_rest_on_all_that_they_were_chosen_by() -> None:
    """The old ledger, the topology and the health of the GPUs."""
    found = view(node(digest=view(node()).payloads.topology.value.digest))  # type: ignore[union-attr]
    swap = swap_ledger(found, claims=[claim(G[0], "p")])
    assert (swap.expected, swap.status, swap.digest) == (
        found.payloads.ledger.text,
        found.payloads.status.text,
        found.payloads.digest,
    )
    assert None not in (swap.expected, swap.status, swap.digest)


@pytest.mark.parametrize("facts", [(), (claim(G[0], "p"),)], ids=["claims end", "facts"])
def test_what_rests_on_no_choice_is_written_whatever_the_machine_is_like(facts: tuple[()]) -> None:
    """A GPU that has fallen sick is held all the same."""
    found = view(node(digest=view(node()).payloads.topology.value.digest))  # type: ignore[union-attr]
    swap = swap_ledger(found, facts=facts)
    assert (swap.expected, swap.status, swap.digest) == (found.payloads.ledger.text, None, None)


def test_a_ledger_that_cannot_be_relied_on_is_not_compared() -> None:
    """The node's version is, then."""
    state = cluster(node(claims=(claim(G[0], "p"),)))
    state.nodes.changed(node(ledger="{", version=2))
    swap = swap_ledger(state.views["n1"])
    assert (swap.expected, swap.resource_version, owners(swap)) == (None, "2", {G[0]: "p"})


@pytest.mark.parametrize("kind", ["claims", "facts"])
def test_who_comes_replaces_whoever_had_the_gpu(kind: str) -> None:
    """One GPU has one claim; all others stay."""
    found = view(node(claims=(claim(G[0], "old"), claim(G[1], "other"))), running("stray", "n1", G[2], G[3]))
    new = [claim(G[0], "new"), claim(G[2], "new")]
    swap = swap_ledger(found, claims=new) if kind == "claims" else swap_ledger(found, facts=new)
    assert owners(swap) == {G[0]: "new", G[1]: "other", G[2]: "new", G[3]: "stray"}
    assert len(decode_ledger(swap.ledger).claims) == 4


def test_claims_that_are_proven_dead_or_end_are_left_out() -> None:
    """Of a pod that ends neither its claims nor what it holds without one stays."""
    ended = pod("dead", on="n1", phase="Succeeded", terminated=True)
    found = view(node(claims=(claim(G[0], "dead"), claim(G[1], "q"))), ended, running("q", "n1", G[1], G[2]))
    assert owners(swap_ledger(found)) == {G[1]: "q", G[2]: "q"}
    assert owners(swap_ledger(found, without={"q"})) == {}


def test_a_full_ledger_loses_claims_though_it_records_no_gpus() -> None:
    """An earlier version wrote it to the last byte: the record waits until there is room."""
    claims = list[Claim]()

    def length() -> int:
        return len(encode_ledger(Ledger(1, tuple(claims), "uid-n1")))

    while length() < MAX_BYTES - 200:
        claims.append(share(G[0], f"notebook-{len(claims):04d}", 1))
    claims[-1] = replace(claims[-1], name=claims[-1].name + "x" * (MAX_BYTES - length()))
    full = view(node(claims=tuple(claims)))
    first, second = claims[0].uid, claims[1].uid
    small = decode_ledger(swap_ledger(full, without={first}).ledger)
    assert (len(small.claims), small.gpus) == (len(claims) - 1, None)
    assert decode_ledger(swap_ledger(full, without={first, second, claims[2].uid}).ledger).gpus == tuple(sorted(G))
