"""Invariant I3 against every order of events that hypothesis finds: no GPU in two live pods, nor in one and another's promise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.kubelet.api.deviceplugin_pb2 import ContainerAllocateResponse, DevicePluginOptions
from agent.kubelet.listing.pod_lists import PodLists
from agent.kubelet.serving.admission import Admission, AllocationRecords
from agent.kubelet.serving.journal_file import JournalFile
from agent.metrics import AgentMetrics
from agent.node.ledger import LedgerReader, NodeLedger
from agent.plugin.choice.choose import AllocationRefusal, Ask
from agent.plugin.choice.forms import DeviceForm
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from tests.agent.plans import WHOLE
from tests.kubelet.device_manager import AdmissionFailed, DeviceManager
from tests.kubelet.pods import Container, Kind, Phase, Pod
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger

GPUS = [f"GPU-{letter}" for letter in "abcdefgh"]


class Direct:
    """The plugin as the device manager calls it, without sockets in between."""

    options = DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def __init__(self, admission: Admission, form: DeviceForm = WHOLE) -> None:
        self._admission = admission
        self._form = form

    async def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        answer = await self._admission.prefer(Ask(frozenset(available), frozenset(must), size), self._form)
        if isinstance(answer, AllocationRefusal):
            raise AdmissionFailed(answer.reason)
        return list(answer.gpus)

    async def allocate(self, devices: list[str]) -> ContainerAllocateResponse:
        answer = await self._admission.allocate(frozenset(devices), self._form)
        if isinstance(answer, AllocationRefusal):
            raise AdmissionFailed(answer.reason)
        return ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(answer.gpus)})

    async def pre_start(self, devices: list[str]) -> None:
        reason = await self._admission.may_start(frozenset(devices), self._form)
        if reason is not None:
            raise AdmissionFailed(reason)


class Node(RuleBasedStateMachine):
    """Pods come with promises and without, and go; kubelet and agent crash between any two of these."""

    @initialize(seed=st.integers(0, 2**16))
    def boot(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.random, self.pods, self.claims = Random(seed), list[Pod](), list[Claim]()
        self.bound: list[Pod] = []
        """Pods that the kubelet has not heard of yet."""
        self.number = 0
        self.crash_kubelet()

    @rule()
    def crash_kubelet(self) -> None:
        self.manager = DeviceManager(Path(self.folder.name) / "checkpoint", self.random, lambda: self.pods)
        self.crash_agent()
        self.manager.sources_ready = True

    @rule()
    def crash_agent(self) -> None:
        journal, ledger = JournalFile(Path(self.folder.name)), LedgerReader(NodeLedger(self._annotations))
        clock = self.loop.time
        records = AllocationRecords(PodLists(Lister(self.pods_listed), lambda: None), ledger, journal)
        admission = Admission(records, AgentMetrics("test"), clock, 5.0, nobody)
        self.manager.endpoint = Direct(admission)
        self.manager.listed(dict.fromkeys(GPUS, True))

    @rule(size=st.integers(1, 4), exact=st.booleans(), init=st.booleans())
    def promise(self, size: int, exact: bool, init: bool) -> None:
        free = self._unclaimed()
        if len(free) < size:
            return
        pod = self._pod(size, init=init)
        mine = self.random.sample(free, size)
        self.claims += [Claim(gpu, pod.uid, "ml", pod.name, "main", str(self.number), exact) for gpu in mine]
        self.bound.append(pod)

    @precondition(lambda self: self.bound)
    @rule()
    def arrive(self) -> None:
        pod = self.bound.pop(0)
        mine = {claim.gpu: claim.exact for claim in self.claims if claim.uid == pod.uid}
        self._admit(pod)
        if pod.phase is Phase.RUNNING and any(mine.values()):
            assert self._held(pod) == mine.keys()

    @rule(size=st.integers(1, 4))
    def stray_pod(self, size: int) -> None:
        self._admit(self._pod(size))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), release=st.booleans())
    def delete(self, data: Any, release: bool) -> None:
        pod = data.draw(st.sampled_from(self.pods))
        self.pods.remove(pod)
        if release:
            self.claims = [claim for claim in self.claims if claim.uid != pod.uid]

    @invariant()
    def no_gpu_twice(self) -> None:
        if not hasattr(self, "manager"):
            return
        held = {pod.uid: self._held(pod) for pod in self.pods}
        all_held = [gpu for gpus in held.values() for gpu in gpus]
        assert len(all_held) == len(set(all_held))
        # The kubelet tells no UID: a pod that has the name of one that is gone inherits what was promised to that one.
        names = {pod.name for pod in self.pods}
        waiting = {claim.gpu: int(claim.resource_version) for claim in self.claims if claim.name not in names}
        claimed = {claim.uid for claim in self.claims}
        for stray in (pod for pod in self.pods if pod.uid not in claimed):
            assert not any(waiting.get(gpu, self.number) < stray.created for gpu in held[stray.uid])

    async def pods_listed(self) -> tuple[ListedPod, ...]:
        self.manager.free_the_dead()
        return tuple(
            ListedPod(
                "ml",
                pod.name,
                tuple(
                    ListedContainer(item.name, self.manager.devices(pod, item))
                    for item in pod.ordered()
                    if item.kind is not Kind.INIT
                ),
            )
            for pod in self.pods
        )

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()
            self.folder.cleanup()

    def _pod(self, size: int, *, init: bool = False) -> Pod:
        self.number += 1
        containers = [Container("main", size)]
        if init:
            containers.insert(0, Container("setup", self.random.randint(1, size), Kind.INIT))
        taken = {pod.name for pod in (*self.pods, *self.bound)}
        name = f"pod-{self.number % 5}"
        name = name if name not in taken else f"p{self.number}"
        return Pod(name, tuple(containers), f"uid-{self.number}", "ml", self.number)

    def _admit(self, pod: Pod) -> None:
        self.pods.append(pod)
        try:
            for container in pod.ordered():
                self.loop.run_until_complete(self.manager.admit(pod, container))
            for container in pod.ordered():
                gpus = self.manager.devices(pod, container)
                self.loop.run_until_complete(self.manager.endpoint.pre_start(sorted(gpus)))  # type: ignore[union-attr]
            pod.phase = Phase.RUNNING
        except AdmissionFailed:
            self.pods.remove(pod)

    def _held(self, pod: Pod) -> set[str]:
        return {gpu for container in pod.containers for gpu in self.manager.devices(pod, container)}

    def _unclaimed(self) -> list[str]:
        taken = {claim.gpu for claim in self.claims} | {gpu for pod in self.pods for gpu in self._held(pod)}
        return [gpu for gpu in GPUS if gpu not in taken]

    def _annotations(self) -> dict[str, str]:
        return {keys.LEDGER: encode_ledger(Ledger(1, tuple(self.claims)))}


async def nobody(gpus: frozenset[str]) -> None:
    """Find nobody on these GPUs."""


class Lister:
    """Gives `PodLists` the pods of a machine such as the one above, whose own `pods` is a list."""

    def __init__(self, listed: Callable[[], Awaitable[tuple[ListedPod, ...]]]) -> None:
        self._listed = listed

    async def pods(self, timeout_seconds: float) -> tuple[ListedPod, ...]:
        return await self._listed()


TestNode = pytest.mark.slow(Node.TestCase)
TestNode.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
