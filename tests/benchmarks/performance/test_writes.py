"""The floor of a burst: the writes of a steered pod, by nobody but one client."""

from __future__ import annotations

from benchmarks.performance.writes import write
from benchmarks.processes.client import ApiClient
from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from topology.annotations import keys


async def test_each_pod_is_nominated_claimed_for_and_bound() -> None:
    """Four writes each, as the extender makes them."""
    store = ObjectStore()
    for name in ("n0", "n1"):
        store.create(NODES, "", {"metadata": {"name": name}})
    before = store.resource_version
    async with ApiServer(store) as server, ApiClient(server.url) as api:
        await write(api, ["n0", "n1"], 3)
    assert store.resource_version - before == 4 * 3
    for number, node in enumerate(("n0", "n1", "n0")):
        pod = store.get(PODS, "default", f"pod-{number}")
        assert pod["spec"]["nodeName"] == node
        assert {keys.NOMINATED, keys.PLACEMENT} <= pod["metadata"]["annotations"].keys()
        assert keys.LEDGER in store.get(NODES, "", node)["metadata"]["annotations"]
