"""Shares beside whole GPUs against every order of events that hypothesis finds: pods, looks, words of the node, crashes.

What the extender promises follows its own rule: by its ledger and what the node says, which is what was seen a while ago.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.kubelet.listing.pod_lists import PodLists
from agent.kubelet.serving.admission import Admission, AllocationRecords
from agent.kubelet.serving.devices import DeviceLists, PluginDevice
from agent.kubelet.serving.journal_file import JournalFile
from agent.kubelet.serving.offering import Offering
from agent.metrics import AgentMetrics
from agent.node.ledger import LedgerReader, NodeLedger
from agent.plugin.choice.forms import Shared, Whole
from agent.plugin.choice.shares import Shareable
from agent.plugin.devices.offers import REPLICA, gpu_of
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod, plans_of
from agent.plugin.withdrawal import PublishedDevices
from tests.agent.plans import FirstCome
from tests.kubelet.device_manager import AdmissionFailed, DeviceManager
from tests.kubelet.pods import Container, Kind, Phase, Pod
from tests.kubelet.test_model import Direct, Lister, nobody
from topology.annotations.keys import GPU_RESOURCE, LEDGER, SHARE_RESOURCE
from topology.annotations.records import Claim, Ledger, encode_ledger

GPUS = ("GPU-a", "GPU-b")
GIB = 4
CLASSES = st.sampled_from(["", "dev"])


class SharedNode(RuleBasedStateMachine):
    """Pods with shares and with whole GPUs come and go, planned and not; kubelet and agent crash between any two of these."""

    @initialize(seed=st.integers(0, 2**16), most=st.integers(1, 2), strays=st.booleans())
    def boot(self, seed: int, most: int, *, strays: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.random, self.pods, self.claims = Random(seed), list[Pod](), list[Claim]()
        self.bound: list[Pod] = []
        """Pods that the kubelet has not heard of yet."""
        self.number = 0
        self.said: tuple[ListedPod, ...] = ()
        """What the node says: who held what when that was seen."""
        self.most = most
        """GPUs that may be shared at one time."""
        self.has_strays = strays
        """Whether pods come around the extender, which hears of them late."""
        self.crash_kubelet()

    @rule()
    def crash_kubelet(self) -> None:
        folder, active = Path(self.folder.name), lambda: self.pods
        self.managers = {
            resource: DeviceManager(folder / resource.replace("/", "."), self.random, active, resource)
            for resource in (GPU_RESOURCE, SHARE_RESOURCE)
        }
        for manager in self.managers.values():
            manager.sources_ready = True
        self.crash_agent()

    @rule()
    def crash_agent(self) -> None:
        ledger = NodeLedger(lambda: {LEDGER: encode_ledger(self._ledger())})
        lists = PodLists(Lister(self._listed), lambda: None)
        records = AllocationRecords(lists, LedgerReader(ledger), JournalFile(Path(self.folder.name)))
        admission = Admission(records, AgentMetrics("test"), self.loop.time, 5.0, nobody)
        devices = DeviceLists(lambda device: SHARE_RESOURCE if REPLICA in device.uuid else GPU_RESOURCE)
        self.offering = Offering(devices, lambda: plans_of(self._ledger()).values())
        self.managers[GPU_RESOURCE].endpoint = Direct(admission, Whole(FirstCome))
        shared = Shared(FirstCome, lambda: Shareable(self.offering.shareable, self.most))
        self.managers[SHARE_RESOURCE].endpoint = Direct(admission, shared)
        self.seen: tuple[ListedPod, ...] | None = None
        self.writing: tuple[ListedPod, ...] | None = None
        self.offering.take(PluginDevice(gpu, healthy=True, share_gib=GIB) for gpu in GPUS)
        self.offering.align(aligns=False)
        self._offer()

    @rule()
    def look(self) -> None:
        self.seen = self.loop.run_until_complete(self._listed())
        self.offering.saw(self.seen)
        self._offer()

    @precondition(lambda self: self.seen is not None and self.writing is None)
    @rule(lost=st.booleans())
    def write(self, *, lost: bool) -> None:
        """Prepare the kubelet for what the node is to say, and write that; the answer may get lost."""
        assert self.seen is not None
        self.writing = self.seen
        self.offering.about_to_publish(self._told(self.writing))
        self._offer()
        if not lost:
            self.said = self.writing

    @precondition(lambda self: self.writing is not None)
    @rule()
    def hear(self) -> None:
        assert self.writing is not None
        self.said, self.writing = self.writing, None
        self.offering.published(self._told(self.said))
        self._offer()

    @rule(
        sizes=st.lists(st.integers(1, GIB), min_size=1, max_size=2),
        name=CLASSES,
        exact=st.booleans(),
        init=st.booleans(),
        at_once=st.booleans(),
    )
    def promise_shares(self, sizes: list[int], name: str, exact: bool, init: bool, at_once: bool) -> None:
        pod, found = self._pod([Container(f"c{place}", 0, gib=gib) for place, gib in enumerate(sizes)]), list[Claim]()
        if init:
            sizes = sizes[:1]
            first = Container("setup", 0, Kind.INIT, gib=self.random.randint(1, sizes[0]))
            pod.containers = (first, *pod.containers[:1])
        for container, gib in zip([each for each in pod.containers if each.kind is Kind.APP], sizes, strict=True):
            places = [gpu for gpu in GPUS if self._has_room(gpu, gib, name, found)]
            if not places:
                return
            gpu, version = self.random.choice(places), str(self.number)
            found.append(Claim(gpu, pod.uid, "ml", pod.name, container.name, version, exact, gib, name))
        self._bind(pod, found, at_once=at_once)

    @rule(size=st.integers(1, 2), exact=st.booleans(), at_once=st.booleans())
    def promise_whole(self, size: int, exact: bool, at_once: bool) -> None:
        told = self._told(self.said)
        taken = {claim.gpu for claim in self.claims} | told.shared | {gpu for gpu, _ in self._strays() if gpu in GPUS}
        if len(free := [gpu for gpu in GPUS if gpu not in taken]) < size:
            return
        pod = self._pod([Container("c0", size)])
        gpus = self.random.sample(free, size)
        claims = [Claim(gpu, pod.uid, "ml", pod.name, "c0", str(self.number), exact) for gpu in gpus]
        self._bind(pod, claims, at_once=at_once)

    @precondition(lambda self: self.bound)
    @rule()
    def arrive(self) -> None:
        self._arrives(self.bound.pop(0))

    def _arrives(self, pod: Pod) -> None:
        mine = [claim for claim in self.claims if claim.uid == pod.uid]
        reason = self._admit(pod)
        assert self.has_strays or not reason
        if not reason and (mine[0].exact or not self.has_strays):
            planned = Counter({claim.gpu: 0 for claim in mine})
            for claim in mine:
                planned[claim.gpu] += claim.memory_gib or 1
            assert Counter(gpu_of(device) for device in self._held(pod)) == planned

    @precondition(lambda self: self.has_strays)
    @rule(gib=st.integers(0, GIB))
    def stray(self, gib: int) -> None:
        """Have a pod around the extender; one that asks for 0 GiB asks for a whole GPU."""
        before = self._robbed()
        self._admit(self._pod([Container("c0", 0 if gib else 1, gib=gib)]))
        assert self._robbed() <= before

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), release=st.booleans(), heir=st.booleans())
    def delete(self, data: Any, release: bool, heir: bool) -> None:
        """Have a pod gone; an heir asks for the other form of a GPU and comes at once."""
        pod = data.draw(st.sampled_from(self.pods))
        had_parts = any(container.gib for container in pod.containers)
        self.pods.remove(pod)
        if release:
            self.claims = [claim for claim in self.claims if claim.uid != pod.uid]
        if heir and had_parts:
            self.promise_whole(size=1, exact=True, at_once=True)
        elif heir:
            self.promise_shares(sizes=[1], name="", exact=True, init=False, at_once=True)

    @rule()
    def come_to_rest(self) -> None:
        """All that is seen is said, and heard: the kubelet counts what there is to have, no less and no more."""
        if self.writing is not None:
            self.hear()
        self.look()
        self.write(lost=False)
        self.hear()
        whole, parts = self._in_use()
        assert self.managers[GPU_RESOURCE].healthy == set(GPUS) - parts.keys()
        promised = {claim.gpu for claim in self.claims if claim.memory_gib} - whole
        is_full = len(parts) >= self.most
        of_shares = [gpu for gpu in GPUS if gpu not in whole and (not is_full or gpu in parts.keys() | promised)]
        healthy = Counter(map(gpu_of, self.managers[SHARE_RESOURCE].healthy))
        assert healthy == dict.fromkeys(of_shares, GIB)

    @invariant()
    def no_gpu_has_more_than_it_can(self) -> None:
        if not hasattr(self, "managers"):
            return
        every = [device for pod in self.pods for device in self._held(pod)]
        assert len(every) == len(set(every))
        whole, parts = self._in_use()
        assert not whole & parts.keys()
        assert all(gib <= GIB for gib in parts.values())
        if not self.has_strays:
            assert len(parts) <= self.most
            of_class = {(gpu_of(device), self._class_of(pod)) for pod in self.pods for device in self._held(pod)}
            assert len(of_class) == len({gpu for gpu, _ in of_class})

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()
            self.folder.cleanup()

    def _pod(self, containers: list[Container]) -> Pod:
        self.number += 1
        taken = {pod.name for pod in (*self.pods, *self.bound)}
        name = f"pod-{self.number % 5}"
        name = name if name not in taken else f"p{self.number}"
        return Pod(name, tuple(containers), f"uid-{self.number}", "ml", self.number)

    def _bind(self, pod: Pod, claims: list[Claim], *, at_once: bool) -> None:
        self.claims += claims
        if at_once:
            self._arrives(pod)
        else:
            self.bound.append(pod)

    def _has_room(self, gpu: str, gib: int, name: str, more: list[Claim]) -> bool:
        """Whether the extender gives a share of a GPU: by all claims, and by what the node says."""
        claims, told = [*self.claims, *more], self._told(self.said)
        mine = [claim for claim in claims if claim.gpu == gpu]
        strays = [amount for of, amount in self._strays() if of == gpu]
        is_open = gpu not in told.whole and all(claim.memory_gib and claim.sharing_class == name for claim in mine)
        shared = {claim.gpu for claim in claims if claim.memory_gib} | told.shared
        return (
            is_open
            and (not strays or name == "")
            and (gpu in shared or len(shared) < self.most)
            and sum(claim.memory_gib or 0 for claim in mine) + sum(strays) + gib <= GIB
        )

    def _strays(self) -> Iterator[tuple[str, int]]:
        """Yield what pods without claims hold, as far as the node says."""
        claimed, there = (
            {(claim.namespace, claim.name) for claim in self.claims},
            {("ml", pod.name) for pod in self.pods},
        )
        for pod in self.said:
            if pod.key in there - claimed:
                yield from Counter(map(gpu_of, pod.gpus)).items()

    def _admit(self, pod: Pod) -> str:
        """Have the kubelet admit and start a pod; return why it is turned away, or nothing."""
        self.pods.append(pod)
        try:
            for container in pod.ordered():
                for manager in self.managers.values():
                    self.loop.run_until_complete(manager.admit(pod, container))
            for container in pod.ordered():
                for manager in self.managers.values():
                    if devices := manager.devices(pod, container):
                        assert manager.endpoint is not None
                        self.loop.run_until_complete(manager.endpoint.pre_start(sorted(devices)))
            pod.phase = Phase.RUNNING
        except AdmissionFailed as error:
            self.pods.remove(pod)
            return str(error)
        return ""

    async def _listed(self) -> tuple[ListedPod, ...]:
        for manager in self.managers.values():
            manager.free_the_dead()
        return tuple(
            ListedPod(
                "ml",
                pod.name,
                tuple(
                    ListedContainer(each.name, self._devices(pod, each))
                    for each in pod.ordered()
                    if each.kind is not Kind.INIT
                ),
            )
            for pod in self.pods
        )

    def _devices(self, pod: Pod, container: Container) -> frozenset[str]:
        return frozenset().union(*(manager.devices(pod, container) for manager in self.managers.values()))

    def _held(self, pod: Pod) -> frozenset[str]:
        return frozenset().union(*(self._devices(pod, container) for container in pod.containers))

    def _in_use(self) -> tuple[set[str], Counter[str]]:
        """Return the GPUs that pods have whole, and how much of others they have."""
        held = [device for pod in self.pods for device in self._held(pod)]
        parts = Counter(gpu_of(device) for device in held if REPLICA in device)
        return {device for device in held if REPLICA not in device}, parts

    def _robbed(self) -> set[str]:
        """Return the GPUs that have less left than is promised to pods that have not come yet."""
        (whole, parts), coming = self._in_use(), {pod.uid for pod in self.bound}
        promised = Counter[str]()
        for claim in self.claims:
            if claim.uid in coming:
                promised[claim.gpu] += claim.memory_gib or GIB
        return {gpu for gpu, gib in promised.items() if gpu in whole or parts[gpu] + gib > GIB}

    def _class_of(self, pod: Pod) -> str:
        return next((claim.sharing_class for claim in self.claims if claim.uid == pod.uid), "?")

    def _ledger(self) -> Ledger:
        return Ledger(1, tuple(self.claims))

    def _offer(self) -> None:
        """Have the kubelet take the lists as they are."""
        for resource, offered in self.offering.lists.by_resource.items():
            self.managers[resource].listed({device.uuid: device.healthy for device in offered.devices})

    def _told(self, pods: tuple[ListedPod, ...]) -> PublishedDevices:
        """Return what the node says when it tells who holds what."""
        held = frozenset(device for pod in pods for device in pod.gpus)
        parts = frozenset(gpu_of(device) for device in held if REPLICA in device)
        return PublishedDevices(held & frozenset(GPUS), parts, self.most)


TestSharedNode = pytest.mark.slow(SharedNode.TestCase)
TestSharedNode.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
