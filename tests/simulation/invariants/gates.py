"""The invariants of the queue: what is in the ledgers when a gate is opened.

- GATE no gate is opened of a pod that has not all its claims on the node where it is sent
- GANG no gate of a gang is opened while a member of it has neither claims nor a place. In the end no gang is bound in parts
  while its other pods wait with no claim
- KEPT no claim leaves that a pod has on the node to which it is pinned, before it comes or ends

Gangs that have lost a member are left out: nobody can know at once that it is gone, and its successor waits for room. So are
members that nobody may bind, and runs in which strangers have spoiled a node: they take claims away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from benchmarks.simulated.double.resources import NODES, PODS, Object
from benchmarks.simulated.double.store import StoreChange
from benchmarks.simulated.pod_life import has_ended
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of, read_ledger
from tests.simulation.world.scheduler import gpus_of, pinned_to
from tests.simulation.world.server import Server
from topology.annotations import keys
from topology.annotations.records import Ledger


class Gates:
    """Listens to the server."""

    def __init__(self, server: Server, ownership: Ownership, trace: Trace) -> None:
        self._server = server
        self._ownership = ownership
        self._trace = trace
        self._torn: set[str] = set()
        """Gangs of which a pod was deleted, or has ended."""
        server.ears.append(self._hear)

    def check(self) -> None:
        """GANG, in the end."""
        for gang in {_gang_of(pod) for pod in self._server.pods()} - {None, *self._torn}:
            members = [pod for pod in self._server.pods() if _gang_of(pod) == gang]
            if any(pod["metadata"]["name"] in self._server.forbidden for pod in members):
                continue  # a bind that a policy refuses drops its claim
            without = [name for name, is_placed in self._places(members) if not is_placed]
            self._trace.count("gangs: whole, or waiting" if len(without) in (0, len(members)) else "gangs: in parts")
            if 0 < len(without) < len(members) and not self._ownership.spoiled:
                self._trace.violation("GANG", f"{gang} is half a gang: {without} wait without claims")

    def _hear(self, writer: str, change: StoreChange) -> None:
        before, after = change.before, change.after
        if before is None or change.resource not in (PODS, NODES):
            return
        if change.resource is NODES:
            self._check_kept(change.key[1], read_ledger(before), read_ledger(after))
        elif after is None or has_ended(after) or "deletionTimestamp" in after["metadata"]:
            self._torn.update(filter(None, [_gang_of(before)]))
        elif before["spec"].get("schedulingGates") and not after["spec"].get("schedulingGates"):
            self._trace.count("gates: opened")
            self._check_opened(after)

    def _check_opened(self, pod: Object) -> None:
        node, metadata, gang = annotations_of(pod).get(keys.PLANNED), pod["metadata"], _gang_of(pod)
        if self._ownership.spoiled:
            return
        self._trace.count("gates: opened where nobody has spoiled a node")
        if self._claims()[metadata["uid"], node] != gpus_of(pod):
            self._trace.violation("GATE", f"the gate of {metadata['name']} is open for {node}, where it has no claims")
        if gang is None or gang in self._torn:
            return
        members = [other for other in self._server.pods() if _gang_of(other) == gang]
        if without := [name for name, is_placed in self._places(members) if not is_placed]:
            self._trace.violation("GANG", f"the gate of {metadata['name']} is open, and {without} have no claims")

    def _check_kept(self, node: str, before: Ledger | None, after: Ledger | None) -> None:
        """KEPT; a bind that is refused for good drops its claim."""
        if before is None or after is None or self._ownership.spoiled:
            return
        refused = self._server.forbidden | self._server.refused
        for uid in {claim.uid for claim in before.claims} - {claim.uid for claim in after.claims}:
            pod = self._server.pod(uid)
            if pod is None or has_ended(pod) or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
                continue
            if pinned_to(pod) == node and pod["metadata"]["name"] not in refused:
                self._trace.violation("KEPT", f"{uid} is pinned to {node}, and has lost its claims there")

    def _places(self, members: list[Object]) -> Iterator[tuple[str, bool]]:
        """Yield the pods by name, and whether they are bound or have claims."""
        claimed = {uid for uid, _ in self._claims()}
        for pod in members:
            metadata = pod["metadata"]
            yield metadata["name"], metadata["uid"] in claimed or bool(pod["spec"].get("nodeName"))

    def _claims(self) -> Counter[tuple[str, str | None]]:
        """Return how many claims there are by pod and node."""
        ledgers = ((node["metadata"]["name"], read_ledger(node)) for node in self._server.nodes())
        return Counter((claim.uid, name) for name, ledger in ledgers if ledger for claim in ledger.claims)


def _gang_of(pod: Object) -> str | None:
    return annotations_of(pod).get(keys.GROUP)
