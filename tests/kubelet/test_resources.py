"""Several resources from one agent: each device in the list of its own, and each question about the plans of its own."""

from __future__ import annotations

from pathlib import Path

from agent.kubelet.listing.pod_lists import PodLists
from agent.kubelet.serving.admission import Admission, AllocationRecords
from agent.kubelet.serving.devices import DeviceLists, PluginDevice
from agent.kubelet.serving.journal_file import JournalFile
from agent.metrics import AgentMetrics
from agent.node.ledger import LedgerReader, NodeLedger
from agent.plugin.choice.choose import Ask, Basis, Grant
from agent.plugin.choice.forms import Whole
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from tests.agent.plans import FirstCome
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger

SLICES = frozenset({"MIG-a", "MIG-b"})


def lists(*devices: PluginDevice) -> DeviceLists:
    found = DeviceLists(lambda device: keys.MIG_PREFIX + device.profile if device.profile else keys.GPU_RESOURCE)
    found.set(devices)
    return found


def test_each_device_is_told_under_its_resource() -> None:
    """A resource stays when its last device is gone: the kubelet has to hear that there is none."""
    whole, small = PluginDevice("GPU-a", healthy=True), PluginDevice("MIG-a", healthy=False, profile="1g.10gb")
    told = lists(whole, small)
    assert {name: each.devices for name, each in told.by_resource.items()} == {
        "nvidia.com/gpu": (whole,),
        "nvidia.com/mig-1g.10gb": (small,),
    }
    assert told.elsewhere("nvidia.com/gpu") == {"MIG-a"}
    assert told.healthy == {"GPU-a"}
    told.set([whole])
    assert told.by_resource["nvidia.com/mig-1g.10gb"].devices == ()


class Listed:
    """Two pods that were listed at once, neither of which has a device yet."""

    async def pods(self, timeout_seconds: float) -> tuple[ListedPod, ...]:
        return tuple(ListedPod("ml", name, (ListedContainer("main"),)) for name in ("whole", "slice"))


async def test_plan_of_another_resource_is_not_taken_for_the_pods(tmp_path: Path) -> None:
    """Both wait for one device each, as after the kubelet's start; whose turn it is shows in what is asked for."""
    plans = {"whole": "GPU-a", "slice": "MIG-b"}
    claims = tuple(Claim(device, name, "ml", name, "main", "1") for name, device in plans.items())
    ledger = LedgerReader(NodeLedger(lambda: {keys.LEDGER: encode_ledger(Ledger(1, claims))}))
    records = AllocationRecords(PodLists(Listed(), lambda: None), ledger, JournalFile(tmp_path))
    admission = Admission(records, AgentMetrics("test"), lambda: 0.0, 5.0, _nobody)
    slices = Whole(FirstCome, lambda: frozenset({"GPU-a"}))
    answer = await admission.prefer(Ask(SLICES, frozenset(), 1), slices)
    assert answer == Grant(("MIG-b",), Basis.PLANNED)
    assert await admission.allocate(frozenset({"MIG-b"}), slices) == Grant(("MIG-b",), Basis.PLANNED)
    ledger.close()


async def _nobody(gpus: frozenset[str]) -> str | None:
    return None
