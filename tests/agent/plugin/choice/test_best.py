"""The scorer of last resort: by the node's wires, and never a GPU that is not in the pool."""

from __future__ import annotations

from agent.plugin.choice.best import Scorer
from topology.formats.catalog import machine

NODE = machine("dgx-1v")
G = [gpu.uuid for gpu in NODE.gpus]
SCORER = Scorer(NODE)


def best(pool: str, must: str, size: int) -> str | None:
    """Return positions instead of UUIDs."""
    found = SCORER.best([G[int(at)] for at in pool], [G[int(at)] for at in must], size)
    return None if found is None else "".join(str(G.index(uuid)) for uuid in found)


def test_a_set_grows_from_what_it_must_have_along_the_fastest_hops() -> None:
    """The next one is the one that is joined best to all that are in it; of equals the first."""
    assert set(best("01234567", "6", 2) or "") in ({"6", "5"}, {"6", "7"})
    hops = {at: NODE.nvlinks(6, int(at)) for at in "0123457"}
    (other,) = set(best("01234567", "6", 2) or "") - {"6"}
    assert other == min(at for at, links in hops.items() if links == max(hops.values()))
    assert set(best("01234567", "456", 4) or "") == set("4567")


def test_only_gpus_of_the_pool_join_those_that_must_be_there() -> None:
    """Be they ever so well joined; too few are no set, and too many neither."""
    assert set(best("016", "6", 3) or "") == set("016")
    assert best("06", "6", 3) is None
    assert best("01", "456", 2) is None
    assert set(best("01", "45", 2) or "") == set("45")


def test_a_doubtful_gpu_comes_last_among_equals() -> None:
    """As the extender takes it; a set that is worth more has it all the same."""
    scorer = Scorer(NODE)
    scorer.doubtful = frozenset({G[2], "GPU-unheard-of"})
    assert set(scorer.best(G, [], 4) or ()) == set(G[4:])
    assert set(scorer.best([*G[:4], *G[6:]], [], 4) or ()) == set(G[:4])


def test_gpus_that_the_topology_does_not_know_are_not_chosen() -> None:
    """Nobody could say what they are worth; they come last where the kubelet has taken them."""
    assert SCORER.best([G[0], "GPU-unheard-of"], [], 2) is None
    assert SCORER.ring(["GPU-z", "GPU-y"]) == ("GPU-y", "GPU-z")
    assert SCORER.ring(["GPU-y", G[3]]) == (G[3], "GPU-y")
    assert SCORER.ring([]) == ()
