"""Pods that come and go while something else happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread

from tests.cluster.nodes.pods import pod
from tests.cluster.objects import PODS, Json
from tests.cluster.polling import TimedOut, eventually
from tests.installed.cluster import Cluster
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import decode_placement

_AT_ONCE = 3
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class Seen:
    """What became of them."""

    waited: list[float] = field(default_factory=list)
    """Seconds from creation until its container ran, of each pod."""
    gpus: set[str] = field(default_factory=set)
    """All that any of them had."""
    turned_away: list[str] = field(default_factory=list)
    """What a kubelet said of each pod that failed before it began, when, and which one."""
    unplanned: list[str] = field(default_factory=list)
    """Pods that have other GPUs than was planned for them."""
    gpus_given_twice: set[str] = field(default_factory=set)
    """To two pods that ran side by side, as the kubelet has it."""


@contextmanager
def comings_and_goings(cluster: Cluster) -> Iterator[Seen]:
    """Let pods of one GPU come one after the other for the length of a `with` block, three of them at a time.

    Raises at the end what went wrong meanwhile: a pod that neither ran nor was turned away within two minutes.
    """
    seen, over, failures = Seen(), Event(), list[BaseException]()

    def keep_coming() -> None:
        try:
            _come_and_go(cluster, seen, over)
        except BaseException as failure:
            failures.append(failure)

    thread = Thread(target=keep_coming, name="load")
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        if failures:
            raise failures[0]


def _wait_settled(cluster: Cluster, name: str) -> Json:
    """Return the pod when it runs, or was turned away; says what the cluster says of it where neither comes."""

    def found() -> Json:
        pod = cluster.plane.admin.get(f"{PODS}/{name}")
        is_turned_away = pod["status"].get("reason") == "UnexpectedAdmissionError"
        return pod if is_turned_away or pod["status"].get("phase") == "Running" else {}

    try:
        return eventually(found, PATIENCE_SECONDS)
    except TimedOut as late:
        told = [("describe", "pod", name), ("get", "pods", "--all-namespaces", "--output=wide"), ("gputopo", "nodes")]
        told += [("logs", f"--namespace={NAMESPACE}", "deployment/gputopo-scheduler", "--all-containers", "--tail=40")]
        raise AssertionError("\n".join(cluster.kubectl(*words) for words in told)) from late


def _come_and_go(cluster: Cluster, seen: Seen, over: Event) -> None:
    running: dict[str, set[str]] = {}
    for number in count():
        if over.is_set():
            return
        name, began = f"load-{number}", time.monotonic()
        cluster.plane.admin.post(PODS, pod(name, 1, schedulerName=SCHEDULER_NAME))
        found = _wait_settled(cluster, name)
        if found["status"]["phase"] == "Failed":
            seen.turned_away.append(
                f"{time.strftime('%X')} {found['spec']['nodeName']}: {found['status'].get('message')}"
            )
            cluster.kubectl("delete", "pod", name, "--wait")
            continue
        seen.waited.append(time.monotonic() - began)
        node = cluster.node_of(found)
        planned = set(decode_placement(found["metadata"]["annotations"][keys.PLACEMENT]).containers["main"])
        gpus = node.held()[name, "main"]
        if gpus != planned:
            seen.unplanned.append(f"{time.strftime('%X')} {node.name}/{name}: planned {planned}, has {gpus}")
        seen.gpus_given_twice |= {gpu for others in running.values() for gpu in others & gpus}
        seen.gpus |= gpus
        running[name] = gpus
        if len(running) > _AT_ONCE:
            oldest = next(iter(running))
            cluster.kubectl("delete", "pod", oldest, "--grace-period=1", "--wait")
            del running[oldest]
