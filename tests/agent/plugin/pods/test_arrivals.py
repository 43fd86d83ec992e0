"""Which pods may be under admission: the last that came, for as long as nobody comes after them."""

from __future__ import annotations

from agent.plugin.pods.arrivals import PodArrivals
from tests.agent.plans import listed

A, B = ("ml", "a"), ("ml", "b")


def test_nobody_has_come_before_the_first_list() -> None:
    """Then all that are listed may be the one."""
    arrivals = PodArrivals()
    assert arrivals.newest == frozenset()
    arrivals.saw([listed("a", main=""), listed("b", main="x")])
    assert arrivals.newest == {A, B}


def test_the_last_that_came_stay_the_newest_while_nobody_comes() -> None:
    """However often the kubelet is asked, and whatever they are given meanwhile."""
    arrivals = PodArrivals()
    arrivals.saw([listed("a", main="")])
    arrivals.saw([listed("a", main=""), listed("b", main="")])
    for held in ("", "x", "x"):
        arrivals.saw([listed("a", main=""), listed("b", main=held)])
        assert arrivals.newest == {B}
    arrivals.saw([listed("b", main="x")])
    assert arrivals.newest == {B}


def test_a_pod_that_is_listed_again_has_come_again() -> None:
    """It was gone in between; or held GPUs and holds none, and these are freed with their pod only."""
    arrivals = PodArrivals()
    for pods in ([listed("a", main="x")], [listed("b", main="")], [listed("a", main="x"), listed("b", main="")]):
        arrivals.saw(pods)
    assert arrivals.newest == {A}
    arrivals.saw([listed("a", main=""), listed("b", main="")])
    assert arrivals.newest == {A}
    arrivals.saw([listed("a", main=""), listed("b", main="y")])
    assert arrivals.newest == {A}
    arrivals.saw([listed("a", main=""), listed("b", main="")])
    assert arrivals.newest == {B}
