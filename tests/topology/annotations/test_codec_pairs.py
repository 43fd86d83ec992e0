"""What a payload says of one pair goes before what it says of all; a writer may say both."""

from __future__ import annotations

import json

from topology.annotations.codec import decode_topology
from topology.node.model import Link


def links(**pairs: object) -> tuple[Link, ...]:
    """Decode three GPUs with these words about their pairs."""
    gpus = [{"uuid": f"GPU-{index}", "index": index, "model": "NVIDIA L4"} for index in range(3)]
    return decode_topology(json.dumps({"v": 1, "gpus": gpus} | pairs)).links


def test_peer_access_of_a_listed_pair_goes_before_that_of_every_pair() -> None:
    """One pair of three lacks it, and one is said to have it that the others lack."""
    for every in (True, False):
        listed = {"a": 0, "b": 2, "p2p": not every}
        assert [link.p2p for link in links(every_pair={"p2p": every}, links=[listed])] == [every, not every, every]


def test_a_listed_pair_that_says_nothing_of_peer_access_has_that_of_every_pair() -> None:
    """Silence is no word against it."""
    found = links(every_pair={"p2p": True}, links=[{"a": 0, "b": 1, "nvlinks": 2}])
    assert [(link.nvlinks, link.p2p) for link in found] == [(2, True), (0, True), (0, True)]


def test_peer_access_of_the_other_pairs_goes_before_that_of_every_pair() -> None:
    """And is not that of the pairs that are listed."""
    for every in (True, False):
        said = {"every_pair": {"p2p": every}, "other_pairs": {"path": "PIX", "p2p": not every}}
        assert [link.p2p for link in links(**said, links=[{"a": 0, "b": 1}])] == [every, not every, not every]
