"""What the plugin knows without an extender: the kubeconfig, and the state that the cluster's annotations add up to."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import typer

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.kubectl.eviction import NoSuchPods, PodName, without
from extender.kubernetes.documents import BrokenStream, decoder
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Expired, Unavailable, list_objects
from extender.logs import printable

Answer = TypeVar("Answer")

APPRAISE_SECONDS: Final = 2.0
"""For the values of free GPUs, which break ties; a machine of many unlike sets would take a minute, and keeps the formula."""


def kubeconfig(file: Path | None, context: str | None) -> Kubeconfig:
    """Return what kubectl would use; ends the program where there is none."""
    try:
        return Kubeconfig.find(file, context, os.environ)
    except Unavailable as error:
        fail(f"cannot read the cluster: {error}")


def load(config: Kubeconfig, resource: str, gone: Collection[PodName] = ()) -> ClusterState:
    """Return the cluster as its annotations tell it, without the pods in `gone`; ends the program where it cannot be read."""
    try:
        state = ask(read_state(config, resource, gone))
    except NoSuchPods as error:
        fail(str(error))
    until = time.monotonic() + APPRAISE_SECONDS
    for _ in state.values.appraise():
        if time.monotonic() > until:
            break
    return state


def ask(question: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what the API server answers; ends the program where it does not."""
    try:
        return asyncio.run(question)
    except (Unavailable, BrokenStream, Expired) as error:
        fail(f"cannot read the cluster: {str(error) or 'the list expired, try again'}")


async def read_state(config: Kubeconfig, resource: str, gone: Collection[PodName] = ()) -> ClusterState:
    """Return the cluster as its annotations tell it, with values of free GPUs by formula; raises `NoSuchPods`."""
    state = ClusterState(resource=resource)
    pods = PodFeed(state)
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        found_nodes, found_pods = await asyncio.gather(
            list_objects(api.resource("/api/v1/nodes"), decoder(Node)),
            list_objects(api.resource("/api/v1/pods"), decoder(Pod), pods.keep),
        )
    nodes, there = found_nodes.objects, found_pods.objects
    if gone:
        nodes, there = without(nodes, there, gone)
    state.nodes.replaced(nodes)
    pods.replaced(there)
    return state


def fail(why: str) -> NoReturn:
    """End the program: wrong usage, or no cluster."""
    print(printable(why), file=sys.stderr)
    raise typer.Exit(2)


def say_no(why: str) -> NoReturn:
    """End the program with a clear no."""
    print(printable(why), file=sys.stderr)
    raise typer.Exit(1)
