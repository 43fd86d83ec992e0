"""What a kubelet says next of a pod, and how it tells the API server: no clock, no wire, and nothing runs.

`kubelets` says it over HTTP, to the double or to a real server. The kubelet of the simulation says it in virtual time,
and knows what runs on which GPU. The device plugin's side of a kubelet is another one's to play: the double of
`tests.kubelet`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from benchmarks.processes.client import MERGE_PATCH, Json

EXIT_CODE: Final = "simulation.gputopo.dev/exit-code"
"""On a pod: end now, with this exit code in every container; 0 is success."""

_TERMINATED_BY_SIGNAL: Final = 143


def next_status(pod: Json, now: str, *, terminating: bool) -> Json | None:
    """Return the status that follows, `None` when the pod has nothing to report.

    `now` is in the words of the API; `terminating` says that a deleted pod's containers have had their time.
    """
    if has_ended(pod):
        return None
    asked = (pod["metadata"].get("annotations") or {}).get(EXIT_CODE)
    if terminating or asked is not None:
        code = int(asked) if asked is not None and asked.isdecimal() else _TERMINATED_BY_SIGNAL
        return _ended(pod, now, code)
    if pod["status"].get("phase") == "Running" or "deletionTimestamp" in pod["metadata"]:
        return None
    return _running(pod, now)


@dataclass(frozen=True, slots=True)
class Message:
    """One request of a kubelet."""

    method: str
    path: str
    body: Json
    content_type: str = "application/json"


def message(pod: Json, status: Json | None, *, stopped: bool) -> Message | None:
    """Return what tells the API server of a pod's next status, or lets go of a deleted pod; `None`: there is nothing to say.

    `stopped` says that none of its containers runs any more, and that all of it has been told.
    """
    metadata = pod["metadata"]
    uid, path = metadata["uid"], f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    if status is not None:
        return Message("PATCH", f"{path}/status", {"metadata": {"uid": uid}, "status": status}, MERGE_PATCH)
    if stopped and "deletionTimestamp" in metadata:
        return Message("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
    return None


def has_ended(pod: Json) -> bool:
    """Whether its containers have ended, and it has said so."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _running(pod: Json, now: str) -> Json:
    running = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": _conditions(pod, now, ready="True"),
        "initContainerStatuses": [
            _container(init, running if _is_sidecar(init) else _terminated(init, now, now, 0))
            for init in pod["spec"].get("initContainers", [])
        ],
        "containerStatuses": [_container(container, running) for container in pod["spec"]["containers"]],
    }


def _ended(pod: Json, now: str, exit_code: int) -> Json:
    """Return the final status; an init container that had ended before keeps its success."""
    started = pod["status"].get("startTime", now)
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "startTime": started,
        "conditions": _conditions(pod, now, ready="False"),
        "initContainerStatuses": [
            _container(init, _terminated(init, started, now, exit_code if _is_sidecar(init) else 0))
            for init in pod["spec"].get("initContainers", [])
        ],
        "containerStatuses": [
            _container(container, _terminated(container, started, now, exit_code))
            for container in pod["spec"]["containers"]
        ],
    }


def _is_sidecar(init: Json) -> bool:
    return bool(init.get("restartPolicy") == "Always")


def _container(container: Json, state: Json) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": "running" in state,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _terminated(container: Json, started: str, now: str, exit_code: int) -> Json:
    return {
        "terminated": {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": started,
            "finishedAt": now,
            "containerID": f"simulated://{container['name']}",
        }
    }


def _conditions(pod: Json, now: str, *, ready: str) -> list[dict[str, Any]]:
    """Return all conditions: a merge patch replaces the list, and PodScheduled is not the kubelet's."""
    ours = ("Initialized", "ContainersReady", "Ready")
    kept = [c for c in pod["status"].get("conditions", []) if c["type"] not in ours]
    return [
        *kept,
        {"type": "Initialized", "status": "True", "lastTransitionTime": now},
        {"type": "ContainersReady", "status": ready, "lastTransitionTime": now},
        {"type": "Ready", "status": ready, "lastTransitionTime": now},
    ]
