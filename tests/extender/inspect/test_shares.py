"""What people are told of a pod that shares GPUs."""

from __future__ import annotations

from extender.inspect import inspection
from extender.inspect.what_if import what_if
from extender.inspect.why import why
from extender.web.pages import pod_page
from tests.extender.builders import at, cluster, gpus
from tests.extender.shares import share, sharer, sharing_node

FULL = tuple(share(gpu, f"u{number}", 30, "prod") for number, gpu in enumerate(gpus("n1", *range(8))))


def test_why_a_share_waits_is_told_in_the_words_of_the_refusal() -> None:
    """Rule, figures and remedy, node by node; and what it asks for."""
    state = cluster(sharing_node(*FULL), sharer("p", 10, sharing_class="prod"))
    told = why(state, "ml", "p", at(), limit=10)
    assert told is not None
    (verdict,) = told.nodes
    assert (verdict.fits, verdict.message) == (False, "no GPU has 10 GiB left for class prod")
    assert (verdict.figures, verdict.remedy) == ("the most that one has is 9", "wait or ask for less")
    assert told.pod.asked == "10 GiB of a GPU"


def test_what_if_and_the_page_say_which_gpu_a_share_would_get() -> None:
    """The fullest with room, by its index."""
    state = cluster(sharing_node(share(gpus("n1", 5)[0], "u", 20)), sharer("p", {"a": 10, "b": 4}))
    told = what_if(state, sharer("p", {"a": 10, "b": 4}), at())
    assert [(fit.node, fit.indexes) for fit in told.fits] == [("n1", (5,))]
    explained = inspection.explain(state, "ml", "p", at())
    assert explained is not None
    assert "10 + 4 GiB of a GPU" in "".join(pod_page(explained))
