"""`-w`: prints again what has changed, as kubectl does, until Ctrl-C."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, Final, NoReturn

from extender.cluster.caches.resource_claims import NO_RIGHT
from extender.cluster.objects.devices import CLAIMS_PATH, SLICES_PATH, SLICES_SELECTOR, ResourceClaim, ResourceSlice
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.core.device_classes import read_device_classes
from extender.kubectl.claim_holdings import recognise, say_what_is_not_known
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Reflector, Unavailable

_SECONDS: Final = 1.0
"""Between two looks: a burst of changes is one."""


class Printed:
    """Prints what is new since the last time: line by line, or a whole document."""

    def __init__(self, *, is_document: bool = False) -> None:
        self._is_document = is_document
        self._before: frozenset[str] = frozenset()

    def print(self, show: Callable[[], None]) -> None:
        """Print the lines of `show` that it did not print the last time; of a document all lines, if any is new or gone."""
        with redirect_stdout(io.StringIO()) as said:
            show()
        text = said.getvalue()
        lines = [text.rstrip("\n")] if self._is_document else text.splitlines()
        for line in lines:
            if line not in self._before:
                print(line, flush=True)
        self._before = frozenset(lines)


async def follow(
    config: Kubeconfig, state: ClusterState, show: Callable[[ClusterState], None], *, is_document: bool = False
) -> NoReturn:
    """Print what `show` prints of the cluster, read into the empty `state`, and again the lines that change, until cancelled.

    With `is_document` the whole is printed again.

    Raises `Unavailable` where the cluster cannot be read at the start; later it is waited for. Raises whatever a watch dies of:
    what is printed then would be old, and nobody could see it.
    """
    feed = PodFeed(state)
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        all_nodes, all_pods = api.resource("/api/v1/nodes"), api.resource("/api/v1/pods")
        for resource in (all_nodes, all_pods):
            await resource.latest_version()  # a reflector would try for ever
        reflectors: list[Reflector[Any]] = []
        reflectors.append(Reflector("nodes", all_nodes, Node, state.nodes, peers=reflectors))
        reflectors.append(Reflector("pods", all_pods, Pod, feed, keep=feed.keep, peers=reflectors))
        await _add_devices(reflectors, api, state)
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        tasks.append(asyncio.create_task(_keep_printing(reflectors, state, show, Printed(is_document=is_document))))
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await ended.pop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_printing(
    reflectors: list[Reflector[Any]], state: ClusterState, show: Callable[[ClusterState], None], printed: Printed
) -> NoReturn:
    await asyncio.gather(*(reflector.synced.wait() for reflector in reflectors))
    state.claims.hear(True)
    say_what_is_not_known(state)
    while True:
        printed.print(lambda: show(state))
        await asyncio.sleep(_SECONDS)


async def _add_devices(reflectors: list[Reflector[Any]], api: KubeApi, state: ClusterState) -> None:
    """Add what follows DRA's objects, where they may be read."""
    all_slices, all_claims = api.resource(SLICES_PATH, field_selector=SLICES_SELECTOR), api.resource(CLAIMS_PATH)
    try:
        for resource in (all_slices, all_claims):
            await resource.latest_version()
    except Unavailable as error:
        state.claims.trouble = NO_RIGHT if error.denied else None
        return
    slices, claims = state.claims.slices, state.claims
    recognise(state, await read_device_classes(api.send))
    reflectors.append(Reflector("resourceslices", all_slices, ResourceSlice, slices, peers=reflectors))
    reflectors.append(
        Reflector("resourceclaims", all_claims, ResourceClaim, claims, keep=claims.keep, peers=reflectors)
    )
