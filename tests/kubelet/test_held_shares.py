"""Whom a container with a share is held as before it starts, also where nobody remembers to whom the share was handed out."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from agent.kubelet.listing.pod_lists import PodLists
from agent.kubelet.serving.admission import Admission, AllocationRecords
from agent.kubelet.serving.journal_file import JournalFile
from agent.limits.share import Share
from agent.metrics import AgentMetrics
from agent.node.ledger import LedgerReader, NodeLedger
from agent.plugin.choice.forms import Shared
from agent.plugin.choice.shares import Shareable
from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from tests.agent.plans import FirstCome
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger

FORM = Shared(FirstCome, lambda: Shareable({"GPU-a": 30}, 1))


class Listed:
    """A kubelet that lists one pod, whose init container runs: none of its containers has a device yet."""

    async def pods(self, timeout_seconds: float) -> tuple[ListedPod, ...]:
        return (ListedPod("ml", "p", (ListedContainer("main"),)),)


async def test_a_forgotten_init_container_is_held_by_the_plan_that_it_may_be_of(tmp_path: Path) -> None:
    """The journal is lost, and no kubelet lists it: its pod is one of those that are listed, and promised as much."""
    claims = [
        Claim("GPU-a", name, "ml", name, container, "1", memory_gib=gib)
        for name, container, gib in (("p", "load", 3), ("p", "main", 5), ("other", "main", 9))
    ]
    ledger = LedgerReader(NodeLedger(lambda: {keys.LEDGER: encode_ledger(Ledger(1, tuple(claims)))}))
    records = AllocationRecords(PodLists(Listed(), lambda: None), ledger, JournalFile(tmp_path))
    held: list[Collection[Share]] = []

    async def limited(shares: Collection[Share]) -> str | None:
        held.append(shares)
        return None

    admission = Admission(records, AgentMetrics("test"), lambda: 0.0, 5.0, _nobody, limited)
    assert await admission.may_start(frozenset(share_devices("GPU-a", 8)), FORM) is None
    assert [sorted((share.uid, share.container, share.memory_gib) for share in shares) for shares in held] == [
        [("p", "load", 3), ("p", "main", 5)]
    ]
    ledger.close()


async def _nobody(gpus: frozenset[str]) -> str | None:
    return None
