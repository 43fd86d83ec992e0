"""gputopo installed in a control plane: the chart's objects, and the containers of its scheduler's pod as processes.

- Only the chart's workloads are left out: nothing runs containers here. Accounts, rights and configuration are its own.
- The scheduler has the rights of the chart's account; the extender, which shares that account in a pod, has no more than its
  own role, so that a right that it lacks does not hide behind one of the scheduler's.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import SCHEDULER_POD, ExtenderProcess, scheduler_configuration
from tests.manifests.objects import all_objects
from tests.manifests.rendered import NAMESPACE

SCHEDULER_NAME = "gputopo"
_SCHEDULER = f"system:serviceaccount:{NAMESPACE}:{SCHEDULER_POD}"
_EXTENDER = "gputopo-extender"
_WORKLOADS = ("DaemonSet", "Deployment", "PodDisruptionBudget")

USERS: Mapping[str, Sequence[str]] = {_SCHEDULER: (), _EXTENDER: ()}
"""What a control plane has to know of to have gputopo installed. By their names RBAC gives them what the chart says."""


class Installation:
    """What was installed in `plane`, which was made with `USERS`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._numbers = count()
        objects = [found for found in all_objects() if found["kind"] not in _WORKLOADS]
        _apply(plane, [*objects, _extenders_own_rights()])

    def extender(self, settings: Mapping[str, Any] | None = None) -> ExtenderProcess:
        """Return an extender that is not started yet; `settings` replace sections of the chart's configuration."""
        name = f"extender-{next(self._numbers)}"
        return ExtenderProcess(name, self.plane.kubeconfig(_EXTENDER), self.plane.state, settings)

    def start_scheduler(
        self, extender: ExtenderProcess, *, more_profiles: Sequence[str] = (), more_extenders: Sequence[Any] = ()
    ) -> Component:
        """Start a kube-scheduler with our sample configuration, which asks `extender` and then `more_extenders`."""
        configuration = scheduler_configuration({"http://127.0.0.1:8888": extender.url})
        configuration["profiles"] += [{"schedulerName": name} for name in more_profiles]
        configuration["extenders"] += more_extenders
        return self.plane.start_scheduler(configuration, self.plane.kubeconfig(_SCHEDULER))


def _extenders_own_rights() -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "extender-as-a-process"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gputopo-extender"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": _EXTENDER}],
    }


def _apply(plane: ControlPlane, objects: Sequence[Any]) -> None:
    kubectl = [str(plane.binaries / "kubectl"), "--kubeconfig", str(plane.kubeconfig())]
    command = [*kubectl, "apply", "--server-side", "-f", "-"]
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    ended = subprocess.run(command, input=document, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
