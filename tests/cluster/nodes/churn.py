"""Pods come and go on real nodes, many at once and mostly alike, and everything that anybody says of their GPUs is kept.

Every pod carries a forged placement. What was planned is what the API server had after the Binding, whichever way the pod ended.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, chain
from subprocess import CalledProcessError
from typing import Any

from agent.plugin.devices.offers import gpu_of
from tests.cluster.api import ApiError, Json
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import History
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.pods import pod, share_pod
from tests.cluster.objects import PODS
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, decode_placement, encode_placement

AT_ONCE = 12
"""Pods that are created together."""
SHAPES = ((2,), (2,), (2,), (2,), (2,), (1, 1), (1,), (4,))
"""GPUs of each container, mostly equal: two pods of one size cannot be told from each other by their size."""
SHARES = ((1,), (3,), (4,), (4,), (4,), (4, 4), (9,))
"""GiB of each container, mostly equal, too, and small enough for the smallest GPU."""
RECALLED = 0.1
"""The part of the pods that is deleted wherever it is on its way, if it is still on its way then."""
_STEP_SECONDS = 0.3
_MOST = 3
"""Times as many pods as planned are created at most, where they have to run."""
_STEPS_ON_THE_WAY = 8
"""About: as many looks see a pod that was created and does not run yet."""

Container = tuple[str, str]
"""Names of a pod, never used twice, and of its container."""


@dataclass(slots=True)
class Churn:
    """What happened."""

    history: History
    held: set[tuple[Container, frozenset[str]]] = field(default_factory=set)
    """All that any kubelet has ever said, about every container."""
    shared: set[str] = field(default_factory=set)
    """Devices that a kubelet has ever listed with two containers at once, and GPUs with one whole and with another in part."""
    gib: set[tuple[Container, int]] = field(default_factory=set)
    """How much any kubelet has ever said that a container has of its GPU."""
    refused: dict[str, str] = field(default_factory=dict)
    """Pods that kubelets have turned away, and why."""
    created: int = 0
    """How many pods were created in all."""
    ran: set[str] = field(default_factory=set)
    """Pods that were seen to run."""
    recalled: set[str] = field(default_factory=set)
    """Pods that were deleted before they were seen to run; some may have been just about to."""

    def planned(self) -> dict[Container, set[str]]:
        """Return the GPUs of each container of each pod, as its Binding brought them: a later record may be a correction."""
        plans: dict[Container, set[str]] = {}
        for found in reversed(self.history.objects("Pod")):
            text = found["metadata"].get("annotations", {}).get(keys.PLACEMENT)
            if "nodeName" in found["spec"] and text and found["metadata"]["namespace"] == "default":
                for container, gpus in decode_placement(text).containers.items():
                    plans[found["metadata"]["name"], container] = set(gpus)
        return plans


def churn(
    cluster: GpuCluster,
    nodes: Iterable[GpuNode],
    history: History,
    pods: int,
    chance: random.Random,
    mismatch: str = "refuse",
    shares: float = 0.0,
    until_ran: int = 0,
    look: Callable[[Json], None] | None = None,
) -> Churn:
    """Create so many pods on the nodes, `AT_ONCE` at a time, delete running ones at random, and return when all are gone.

    Args:
        cluster: with extender and scheduler at work.
        nodes: where their device plugins serve.
        history: records the cluster since before the first pod.
        pods: how many.
        chance: decides what they ask for, what they forge, and which of them are deleted.
        mismatch: what they ask for where their planned GPUs cannot be had, `refuse` or `adopt`.
        shares: the part of them that asks for a share of a GPU.
        until_ran: where kills refuse pods, create more until so many have run, up to `_MOST` times as many.
        look: is shown each pod that runs, before it is deleted.

    """
    told, nodes = Churn(history), [*nodes]
    gpus = [uuid for node in nodes for uuid in node.machine.uuids]

    def forge(numbers: Iterable[int]) -> list[Json]:
        return [_forger(number, chance, gpus, mismatch, shares) for number in numbers]

    waiting = forge(range(pods))
    # Drawn before anything is created, so that a busy machine, where pods are on their way for longer, recalls no more of them.
    fated = {
        _name(number): chance.randrange(_STEPS_ON_THE_WAY)
        for number in chance.sample(range(pods), int(RECALLED * pods))
    }
    most = len(gpus) // 2 * (4 if shares else 1)
    with ThreadPoolExecutor(AT_ONCE) as threads, _listening(nodes, told):
        while True:
            alive = _pods(cluster)
            told.ran |= {found["metadata"]["name"] for found in alive if found["status"]["phase"] == "Running"}
            if not waiting and not alive and len(told.ran) < until_ran and told.created < _MOST * pods:
                waiting = forge(range(told.created, told.created + AT_ONCE))
            for found in alive:
                if found["status"]["phase"] == "Failed" and "deletionTimestamp" not in found["metadata"]:
                    told.refused[found["metadata"]["name"]] = _reason(found)
            if not waiting and not alive:
                return told
            recalled = [*_recalled(alive, fated)]
            told.recalled |= {each["metadata"]["name"] for each in recalled}
            doomed = [*recalled, *_doomed(alive, chance, last=not waiting)]
            if look:
                list(threads.map(look, (each for each in doomed if each["status"]["phase"] == "Running")))
            list(threads.map(lambda found: _delete(cluster, found), doomed))
            if len(alive) < most:
                batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
                list(threads.map(lambda wanted: cluster.api.post(PODS, wanted), batch))
                told.created += len(batch)
            time.sleep(_STEP_SECONDS)


def most_at_once(calls: Iterable[Mapping[str, Any]]) -> int:
    """Return how many of these calls of the extender's log were ever under way at one moment."""
    moments: list[tuple[float, int]] = []
    for call in calls:
        end = datetime.fromisoformat(call["ts"]).timestamp()
        moments += [(end - call["duration_seconds"], 1), (end, -1)]
    return max(accumulate(change for _, change in sorted(moments)), default=0)


def _forger(number: int, chance: random.Random, gpus: list[str], mismatch: str, shares: float) -> Json:
    name, is_share = _name(number), chance.random() < shares
    shape = chance.choice(SHARES if is_share else SHAPES)
    forged = encode_placement(PlacementRecord({"main": tuple(chance.sample(gpus, 1 if is_share else shape[0]))}))
    annotations = {keys.PLACEMENT: forged, keys.DEVICE_MISMATCH: mismatch}
    if is_share:
        annotations |= {keys.SHARING_CLASS: of} if (of := chance.choice(("", "dev", "prod"))) else {}
        return share_pod(name, *shape, annotations=annotations, schedulerName=SCHEDULER_NAME)
    return pod(name, *shape, annotations=annotations, schedulerName=SCHEDULER_NAME)


def _name(number: int) -> str:
    return f"p{number:04}"


def _pods(cluster: GpuCluster) -> list[Json]:
    return [found for found in cluster.api.list(PODS) if found["spec"].get("schedulerName") == SCHEDULER_NAME]


def _recalled(alive: Iterable[Json], fated: dict[str, int]) -> Iterator[Json]:
    """Yield the pods whose looks are used up, once each."""
    for found in alive:
        name = found["metadata"]["name"]
        if found["status"]["phase"] == "Pending" and (looks := fated.pop(name, None)) is not None:
            if looks:
                fated[name] = looks - 1
            else:
                yield found


def _doomed(alive: Iterable[Json], chance: random.Random, *, last: bool) -> Iterator[Json]:
    """Yield pods that have ended or run, and shall go now."""
    for found in alive:
        phase, leaving = found["status"]["phase"], "deletionTimestamp" in found["metadata"]
        if phase == "Failed" or (not leaving and phase == "Running" and (last or chance.random() < 0.3)):
            yield found


def _delete(cluster: GpuCluster, found: Json) -> None:
    try:
        cluster.delete(found["metadata"]["name"])
    except ApiError as error:
        if error.reason != "NotFound":
            raise


def _reason(found: Json) -> str:
    status = found["status"]
    return f"{status.get('reason')}: {status.get('message')} {status.get('containerStatuses', '')}"


def _twice(held: Iterable[set[str]]) -> set[str]:
    return {device for device, count in Counter(chain.from_iterable(held)).items() if count > 1}


@contextmanager
def _listening(nodes: Iterable[GpuNode], told: Churn) -> Iterator[None]:
    """Ask all kubelets again and again who holds what."""
    over = threading.Event()

    def listen() -> None:
        while not over.wait(0.5):
            for node in nodes:
                try:
                    listed = node.holdings()
                except CalledProcessError:
                    continue  # it was killed
                whole, parts = node.held(listed=listed), node.held(keys.SHARE_RESOURCE, listed)
                of_parts = {container: {gpu_of(device) for device in devices} for container, devices in parts.items()}
                told.held |= {(container, frozenset(gpus)) for container, gpus in (whole | of_parts).items()}
                told.gib |= {(container, len(devices)) for container, devices in parts.items()}
                told.shared |= _twice(whole.values()) | _twice(parts.values())
                told.shared |= {*chain(*whole.values())} & {*chain(*of_parts.values())}

    with ThreadPoolExecutor(1) as threads:
        listening = threads.submit(listen)
        try:
            yield
        finally:
            over.set()
    listening.result()
