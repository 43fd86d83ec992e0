"""N16: a node that lies in its annotations closes itself, soon, and changes nothing for others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from extender.cluster.caches.topology_changes import WINDOW_SECONDS
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import args, at, cluster, free, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import Ledger, encode_ledger
from topology.effort import finish

Forge = Callable[[dict[str, Any]], object]

FORGERIES: dict[str, Forge] = {
    "10,000 GPUs": lambda topology: topology.update(gpus=topology["gpus"][:1] * 10_000),
    "100 GPUs": lambda topology: topology.update(
        gpus=[{"uuid": f"GPU-{number}", "index": number} for number in range(100)]
    ),
    "the same GPU twice": lambda topology: topology["gpus"].append(topology["gpus"][0]),
    "no GPUs": lambda topology: topology.update(gpus=[]),
    "a link to nowhere": lambda topology: topology.update(links=[{"a": 0, "b": 99, "nvlinks": 1}]),
    "a lopsided link": lambda topology: topology.update(links=[{"a": 1, "b": 0, "nvlinks": 1}]),
    "fewer links than none": lambda topology: topology.update(links=[{"a": 0, "b": 1, "nvlinks": -4}]),
    "endless memory": lambda topology: topology["gpus"][0].update(memory_bytes=10**30),
    "a number for a name": lambda topology: topology["gpus"][0].update(uuid=7),
    "another version": lambda topology: topology.update(v=9),
}


def forged(forge: Forge) -> str:
    """Return a node's topology after a forgery."""
    topology: dict[str, Any] = json.loads((node("bad").metadata.annotations or {})[keys.TOPOLOGY])
    forge(topology)
    return json.dumps(topology)


def passing(state: ClusterState) -> list[str]:
    """Return the nodes that may take a pod of four GPUs."""
    return list(filter_nodes(state, args(pod("asked", 4), "good", "bad"), at()).node_names)


@pytest.mark.parametrize("name", FORGERIES)
def test_n16_forged_topology_closes_its_own_node(name: str) -> None:
    """The other one keeps all of its GPUs, and takes the pod."""
    state = cluster(node("good"), node("bad"))
    assert set(passing(state)) == {"good", "bad"}
    state.nodes.changed(node("bad", version=2, topology=forged(FORGERIES[name])))
    assert passing(state) == ["good"]
    assert len(free(state, "good")) == 8 and state.views["bad"].shape.closed


@pytest.mark.parametrize("name", FORGERIES)
def test_n16_forgery_is_seen_through_soon(
    name: str, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Within a millisecond of the processor's time, so that a node that lies all the time holds up nobody."""
    state, text = cluster(node("good"), node("bad")), forged(FORGERIES[name])
    seconds = []
    for version in range(2, 32):
        finish(state.listening(version * WINDOW_SECONDS))  # else it would soon not be read at all
        written = node("bad", version=version, topology=f"{text}{' ' * version}")
        began = time.process_time()
        state.nodes.changed(written)
        seconds.append(time.process_time() - began)
    figure(f"N16: {name}: seen through in {1000 * median(seconds):.2f} ms of CPU (median of {len(seconds)})")
    assert median(seconds) <= goal(0.001)


def test_n16_another_nodes_gpus_are_no_claim_on_them() -> None:
    """Who publishes a neighbour's GPUs as its own takes none of them away, and has none to give itself."""
    stolen = (node("good").metadata.annotations or {})[keys.TOPOLOGY]
    good, bad = (encode_ledger(Ledger(1, (), "", gpus(name, *range(8)))) for name in ("good", "bad"))
    state = cluster(node("good", ledger=good), node("bad", ledger=bad))
    assert set(passing(state)) == {"good", "bad"}
    state.nodes.changed(node("bad", version=2, topology=stolen, ledger=bad))
    assert (len(free(state, "good")), len(free(state, "bad"))) == (8, 0)
    assert passing(state) == ["good"]
