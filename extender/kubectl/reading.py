"""Where the plugin's answers come from: a running extender, or the annotations of a cluster or of a snapshot of one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import typer

from extender.cluster.caches.resource_claims import NO_RIGHT
from extender.cluster.objects.devices import CLAIMS_PATH, SLICES_PATH, SLICES_SELECTOR, ResourceClaim, ResourceSlice
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.movable_pods import OPTED_IN, MovablePods
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.config.defaults import SCHEDULER_NAME
from extender.core.device_classes import read_device_classes
from extender.inspect.control_plane import ControlPlane
from extender.kit.clock import Instant
from extender.kubectl import extender_client
from extender.kubectl.claim_holdings import holdings_of, recognise, say_what_is_not_known
from extender.kubectl.control_plane import read_control_plane
from extender.kubectl.eviction import NoSuchPods, PodName, without
from extender.kubectl.extender_client import ExtenderUnavailable
from extender.kubectl.following import follow
from extender.kubectl.form import Form, say
from extender.kubectl.leader import AUTO, forwarded, leader
from extender.kubectl.snapshot import PodAsListed, Snapshot, Unreadable
from extender.kubernetes.documents import BrokenStream, Expired, decoder
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable, list_objects
from topology.annotations import keys

Answer = TypeVar("Answer")

APPRAISE_SECONDS: Final = 2.0
"""For the values of free GPUs, which break ties; a machine of many unlike sets would take a minute, and keeps the formula."""


@dataclass(frozen=True)
class StateSource:
    """What is asked, as the options name it: a snapshot, else an extender, else the cluster itself."""

    file: Path | None
    context: str | None
    snapshot_file: Path | None
    resource: str = keys.GPU_RESOURCE
    extender: str | None = None
    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)
    """Of the schedulers that ask us."""
    tolerated_taints: tuple[str, ...] = ()
    """Keys of taints that all pods with GPUs tolerate."""
    movable: MovablePods = OPTED_IN
    until_end: ExitStack = field(default_factory=ExitStack)
    """What is closed when the command ends."""

    @cached_property
    def place(self) -> Kubeconfig | Snapshot:
        """The snapshot, or where kubectl would find the cluster; ends the program where there is neither."""
        if self.snapshot_file is None:
            return kubeconfig(self.file, self.context)
        try:
            return Snapshot.read(self.snapshot_file)
        except Unreadable as error:
            fail(str(error))

    @property
    def now(self) -> Instant:
        """The moment that is asked about: of a snapshot, when it was taken."""
        wall = self.place.taken if isinstance(self.place, Snapshot) else time.time()
        return Instant(time.monotonic(), wall)

    def state(self, gone: Collection[PodName] = ()) -> ClusterState:
        """Return the cluster as its annotations tell it, without the pods in `gone`; ends the program where it cannot be read."""
        try:
            state = ask(read_state(self.place, self._empty(), gone))
        except NoSuchPods as error:
            fail(str(error))
        say_what_is_not_known(state)
        until = time.monotonic() + APPRAISE_SECONDS
        for _ in state.values.appraise():
            if time.monotonic() > until:
                break
        return state

    def control_plane(self) -> ControlPlane:
        """Return what API server and extender say of themselves, or said when the snapshot was taken."""
        if isinstance(self.place, Snapshot):
            return self.place.control_plane or ControlPlane(policies_unknown="the snapshot does not hold them")
        return control_plane(self.place, self.extender, self.url)

    def follow(self, show: Callable[[ClusterState], None], form: Form) -> None:
        """Print what `show` prints of the cluster, and again what changes, until Ctrl-C; ends the program for a snapshot."""
        if isinstance(self.place, Snapshot):
            fail("a snapshot does not change: -w is for a cluster")
        with suppress(KeyboardInterrupt):
            ask(follow(self.place, self._empty(), show, is_document=form.is_document))

    def _empty(self) -> ClusterState:
        return ClusterState(
            resource=self.resource,
            scheduler_names=self.scheduler_names,
            tolerated_taints=self.tolerated_taints,
            movable=self.movable,
        )

    def answer(self, question: Callable[[str], Answer], estimate: Callable[[], Answer]) -> Answer:
        """Ask the extender, and decide here where that cannot be."""
        if self.extender and self.snapshot_file is None:
            try:
                return question(self.url())
            except ExtenderUnavailable as error:
                complaint = no_answer(self.extender, error)
                say(f"{complaint}; this is an estimate from the annotations alone", to=sys.stderr)
        return estimate()

    def url(self) -> str:
        """Return where the extender is that `--extender` names; raises `ExtenderUnavailable`."""
        assert self.extender is not None
        return self._leader if self.extender == AUTO else self.extender

    @cached_property
    def _leader(self) -> str:
        """Forward a port to the extender that decides, until the command ends."""
        assert isinstance(self.place, Kubeconfig)
        pod = asyncio.run(leader(self.place))
        return self.until_end.enter_context(forwarded(*pod, self.file, self.context))


def kubeconfig(file: Path | None, context: str | None) -> Kubeconfig:
    """Return what kubectl would use; ends the program where there is none."""
    try:
        return Kubeconfig.find(file, context, os.environ)
    except Unavailable as error:
        fail(f"cannot read the cluster: {error}")


def ask(question: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what the API server answers; ends the program where it does not."""
    try:
        return asyncio.run(question)
    except (Unavailable, BrokenStream, Expired) as error:
        fail(f"cannot read the cluster: {str(error) or 'the list expired, try again'}")


def no_answer(extender: str, error: ExtenderUnavailable) -> str:
    """Say that an extender does not answer, or that `auto` has not found one."""
    return f"--extender auto: {error}" if extender == AUTO else f"the extender at {extender} does not answer: {error}"


def control_plane(place: Kubeconfig, extender: str | None, url: Callable[[], str]) -> ControlPlane:
    """Return what the API server says of itself, and the extender, where one is to be asked and answers."""
    plane = ask(read_control_plane(place))
    if extender is None:
        return plane
    try:
        return plane.model_copy(update={"extender": extender_client.extender(url())})
    except ExtenderUnavailable as error:
        say(f"{no_answer(extender, error)}; its version is not known", to=sys.stderr)
        unknown = "none was found" if extender == AUTO else f"{extender} does not say"
        return plane.model_copy(update={"extender_unknown": unknown})


async def read_state(place: Kubeconfig | Snapshot, state: ClusterState, gone: Collection[PodName] = ()) -> ClusterState:
    """Read the cluster as its annotations tell it into an empty state, with values of free GPUs by formula.

    Raises `NoSuchPods`.
    """
    feed = PodFeed(state)
    snapshot = place if isinstance(place, Snapshot) else await read_cluster(place, feed.keep)
    nodes, pods = without(snapshot.nodes, snapshot.pods, gone) if gone else (snapshot.nodes, snapshot.pods)
    state.nodes.replaced(nodes)
    feed.replaced(pods)
    recognise(state, snapshot.device_classes)
    state.claims.slices.replaced(snapshot.slices)
    state.claims.replaced(snapshot.claims)
    state.claims.hear(True)
    state.claims.trouble = snapshot.claims_trouble
    return state


async def read_cluster(config: Kubeconfig, keep: Callable[[Pod], Pod | None] = lambda pod: pod) -> Snapshot:
    """Return all nodes, what `keep` makes of all pods, and of DRA's objects what may be read."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        nodes, pods = await asyncio.gather(
            list_objects(api.resource("/api/v1/nodes"), decoder(Node)),
            list_objects(api.resource("/api/v1/pods"), decoder(PodAsListed), keep),
        )
        claims, slices, trouble = await _read_devices(api)
        classes = await read_device_classes(api.send)
    taken = time.time()
    return Snapshot(nodes.objects, pods.objects, taken, config.namespace, claims, slices, trouble, classes)


async def _read_devices(api: KubeApi) -> tuple[list[ResourceClaim], list[ResourceSlice], str | None]:
    """Return the claims that hold GPUs, and the slices of the same driver; else why not, unless the server has none."""
    try:
        slices = await list_objects(api.resource(SLICES_PATH, field_selector=SLICES_SELECTOR), decoder(ResourceSlice))
        claims = await list_objects(api.resource(CLAIMS_PATH), decoder(ResourceClaim), holdings_of)
    except Unavailable as error:
        return [], [], NO_RIGHT if error.denied else None
    return [claim for claim in claims.objects if claim.held], slices.objects, None


def fail(why: str) -> NoReturn:
    """End the program: wrong usage, or no cluster."""
    say(why, to=sys.stderr)
    raise typer.Exit(2)


def say_no(why: str) -> NoReturn:
    """End the program with a clear no."""
    say(why, to=sys.stderr)
    raise typer.Exit(1)
