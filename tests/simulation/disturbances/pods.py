"""What users, controllers, other schedulers and administrators do to pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from random import Random

from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import PODS, Object
from benchmarks.simulated.pod_life import EXIT_CODE
from tests.simulation.wording import annotations_of
from tests.simulation.world.hardware import PROFILES, SHARE_GIB
from tests.simulation.world.kubelet import CRASHING, LONG_GRACE
from tests.simulation.world.scheduler import NAME as SCHEDULER
from tests.simulation.world.scheduler import sharing_class_of
from tests.simulation.world.server import NAMESPACE, Server
from tests.world.faults import AnyFault, Fault
from tests.world.http_faults import RequestFault
from topology.annotations import keys

_MOST_WAITING = 5
_SHARES_GIB = (2, 4, 4, 6, 8, SHARE_GIB)
_OF_GANGS = (keys.GROUP, keys.GROUP_SIZE, keys.GANG)
CLASSES = ("", "prod", "dev")
"""Of shares."""


class PodDisturbances:
    """They create the pods, too."""

    def __init__(
        self,
        server: Server,
        random: Random,
        *,
        gpus_per_node: int,
        share_ratio: float,
        slice_ratio: float,
        queued_ratio: float,
        owned_ratio: float,
    ) -> None:
        self._server = server
        self._random = random
        self._gpus_per_node = gpus_per_node
        self._share_ratio = share_ratio
        self._slice_ratio = slice_ratio
        self._queued_ratio = queued_ratio
        self._owned_ratio = owned_ratio
        self._numbers = count(1)
        self.events: Mapping[AnyFault, Callable[[], str | None]] = {
            Fault.POD_DELETED: self._delete,
            Fault.POD_FORCED: self._force,
            Fault.POD_LONG_GRACE: self._delete_slowly,
            Fault.POD_ENDED: self._end,
            Fault.POD_FAILED_UNBOUND: self._fail_unbound,
            Fault.POD_PATCHED: self._patch,
            Fault.POD_NAMESAKE: self._replace,
            Fault.POD_NOMINATED: self._nominate,
            Fault.POD_UNREADABLE: self._garble,
            Fault.POD_CRASHING: self._crash_container,
            Fault.FOREIGN_BINDING: self._bind_around,
            Fault.FORGED_PLACEMENT: self._forge,
            RequestFault.FORBIDDEN: self._forbid,
        }

    def create(self) -> None:
        """Create a pod, unless there are plenty waiting."""
        waiting = self._pods(lambda pod: not pod["spec"].get("nodeName"))
        gated = [pod for pod in waiting if pod["spec"].get("schedulingGates")]
        if len(waiting) - len(gated) > _MOST_WAITING:
            return
        if len(gated) > _MOST_WAITING:  # gangs that have lost a member wait for ever
            self._remove(gated[0], 0)
        name = f"p{next(self._numbers)}"
        if self._share_ratio and self._random.random() < self._share_ratio:
            sharing_class = self._random.choice(CLASSES)
            self._create(name, {keys.SHARE_RESOURCE: str(self._random.choice(_SHARES_GIB))}, sharing_class)
            return
        if self._slice_ratio and self._random.random() < self._slice_ratio:
            profile = self._random.choice([*PROFILES])
            self._create(name, {keys.MIG_PREFIX + profile: self._random.choice("112")})
            return
        gpus = min(self._random.choice((1, 1, 1, 2, 2, 4)), self._gpus_per_node)
        if self._queued_ratio and self._random.random() < self._queued_ratio:
            self._create_queued(name, gpus)
            return
        self._create(name, {keys.GPU_RESOURCE: str(gpus)})

    def _create_queued(self, name: str, gpus: int) -> None:
        """Create a pod that waits in the queue, or a gang of such pods."""
        size = min(self._random.choice((1, 1, 2, 3)), self._gpus_per_node)
        gpus = gpus if size == 1 else 1
        said = {keys.GROUP: name, keys.GROUP_SIZE: str(size), keys.GANG: "required"} if size > 1 else {}
        owner = f"job-of-{name}" if self._owned_ratio and self._random.random() < self._owned_ratio else ""
        for number in range(size):
            member = f"{name}-{number}" if said else name
            self._create(member, {keys.GPU_RESOURCE: str(gpus)}, said=said, is_queued=True, owner=owner if said else "")

    def _delete(self) -> str | None:
        return self._with_pod(lambda pod: self._remove(pod, None), _is_not_deleted)

    def _force(self) -> str | None:
        """Prefer the pod that was started last: little has been told of it yet."""
        running = self._pods(_is_running)
        if running and self._random.random() < 0.5:
            newest = max(running, key=lambda pod: int(pod["metadata"]["resourceVersion"]))
            self._remove(newest, 0)
            return str(newest["metadata"]["name"])
        return self._with_pod(lambda pod: self._remove(pod, 0), _is_any)

    def _delete_slowly(self) -> str | None:
        def delete(pod: Object) -> None:
            self._annotate(pod, LONG_GRACE, "true")
            self._remove(pod, 600)

        return self._with_pod(delete, lambda pod: _is_running(pod) and _is_not_deleted(pod))

    def _end(self) -> str | None:
        return self._with_pod(lambda pod: self._annotate(pod, EXIT_CODE, self._random.choice("01")), _is_running)

    def _fail_unbound(self) -> str | None:
        return self._with_pod(lambda pod: self._set_status(pod, {"phase": "Failed"}), _is_pending)

    def _patch(self) -> str | None:
        message = f"patched at {self._server.store.resource_version}"
        return self._with_pod(lambda pod: self._set_status(pod, {"message": message}), _is_any)

    def _replace(self) -> str | None:
        """Prefer pods that are being bound: kube-scheduler may have asked for the one that is gone."""

        def replace(pod: Object) -> None:
            self._remove(pod, 0)
            said = {key: text for key, text in annotations_of(pod).items() if key in _OF_GANGS}
            owner = next((owner["uid"] for owner in pod["metadata"].get("ownerReferences", ())), "")
            name, sharing_class = pod["metadata"]["name"], sharing_class_of(pod)
            self._create(name, _limits(pod), sharing_class, said, is_queued=bool(said), owner=owner)

        return self._with_pod(replace, _is_pending if self._random.random() < 0.5 else _is_any)

    def _nominate(self) -> str | None:
        """Nominate a pod for any node, or one that is not there, or take a nomination back.

        Our mark may be beside it, for that node or another one, or be missing, as where preemption has nominated.
        """
        names = [node["metadata"]["name"] for node in self._server.nodes()]
        node = self._random.choice([*names, "not-there", None])
        mark = self._random.choice([node, node, *names, None])

        def nominate(pod: Object) -> None:
            metadata = {"annotations": {keys.NOMINATED: mark}}
            self._modify(pod, {"metadata": metadata, "status": {"nominatedNodeName": node}}, "status")

        return self._with_pod(nominate, _is_pending)

    def _garble(self) -> str | None:
        return self._with_pod(lambda pod: self._annotate(pod, keys.MIN_BANDWIDTH, "fast"), _is_pending)

    def _crash_container(self) -> str | None:
        return self._with_pod(lambda pod: self._annotate(pod, CRASHING, "true"), _is_running)

    def _bind_around(self) -> str | None:
        """Bind a pod as another scheduler would, without a record."""
        nodes = self._server.nodes()
        if not nodes:
            return None
        node = self._random.choice(nodes)["metadata"]["name"]
        return self._with_pod(lambda pod: self._bind(pod, node, {}), _is_open)

    def _forge(self) -> str | None:
        """Bind a pod with a record that names GPUs of a pod that runs."""
        victims = self._pods(
            lambda pod: _is_running(pod) and _is_not_deleted(pod) and keys.PLACEMENT in annotations_of(pod)
        )
        if not victims:
            return None
        victim = self._random.choice(victims)
        record = {keys.PLACEMENT: annotations_of(victim)[keys.PLACEMENT]}
        forger = self._create(f"f{next(self._numbers)}", _limits(victim), sharing_class_of(victim))
        self._bind(forger, victim["spec"]["nodeName"], record)
        return str(forger["metadata"]["name"])

    def _forbid(self) -> str | None:
        return self._with_pod(lambda pod: self._server.forbidden.add(pod["metadata"]["name"]), _is_pending)

    def _with_pod(self, do: Callable[[Object], object], fits: Callable[[Object], bool]) -> str | None:
        pods = self._pods(fits)
        if not pods:
            return None
        pod = self._random.choice(pods)
        do(pod)
        return f"{pod['metadata']['name']} ({pod['metadata']['uid']})"

    def _pods(self, fits: Callable[[Object], bool]) -> list[Object]:
        return [pod for pod in self._server.pods() if fits(pod)]

    def _remove(self, pod: Object, grace_seconds: int | None) -> None:
        with self._server.writing("user") as store:
            store.delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_period_seconds=grace_seconds)

    def _annotate(self, pod: Object, key: str, value: str) -> None:
        self._modify(pod, {"metadata": {"annotations": {key: value}}})

    def _set_status(self, pod: Object, status: Object) -> None:
        self._modify(pod, {"status": status}, "status")

    def _bind(self, pod: Object, node: str, annotations: Mapping[str, str]) -> None:
        binding = {"metadata": {"name": pod["metadata"]["name"], "annotations": annotations}, "target": {"name": node}}
        with self._server.writing("other-scheduler") as store:
            store.bind(NAMESPACE, pod["metadata"]["name"], binding)

    def _modify(self, pod: Object, patch: Object, subresource: str = "") -> None:
        with self._server.writing("stranger") as store:
            store.modify(
                PODS,
                NAMESPACE,
                pod["metadata"]["name"],
                lambda old: merge_patch(old, patch),
                subresource=subresource,
            )

    def _create(
        self,
        name: str,
        limits: Object,
        sharing_class: str = "",
        said: Mapping[str, str] = {},
        *,
        is_queued: bool = False,
        owner: str = "",
    ) -> Object:
        metadata: Object = {"name": name}
        if owner:
            controller = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
            metadata["ownerReferences"] = [controller]
        if annotations := {**said, **({keys.SHARING_CLASS: sharing_class} if sharing_class else {})}:
            metadata["annotations"] = annotations
        spec: Object = {"containers": [{"name": "main", "resources": {"limits": limits}}], "schedulerName": SCHEDULER}
        if is_queued:
            spec["schedulingGates"] = [{"name": keys.PLAN_GATE}]
        with self._server.writing("user") as store:
            return store.create(PODS, NAMESPACE, {"metadata": metadata, "spec": spec})


def _limits(pod: Object) -> Object:
    limits: Object = pod["spec"]["containers"][0]["resources"]["limits"]
    return limits


def _is_pending(pod: Object) -> bool:
    return not pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending" and _is_not_deleted(pod)


def _is_open(pod: Object) -> bool:
    return _is_pending(pod) and not pod["spec"].get("schedulingGates")


def _is_running(pod: Object) -> bool:
    return str(pod["status"].get("phase")) == "Running"


def _is_not_deleted(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _is_any(pod: Object) -> bool:
    return True
