"""gputopo installed in a control plane: the chart's objects, and the containers of its scheduler's pod as processes.

Only the chart's workloads are left out: nothing runs containers here. Accounts, rights, admission policies and configuration are
its own, and the processes have the account of the pod that they would run in.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import yaml

from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import SCHEDULER_POD, ExtenderProcess, scheduler_configuration
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import Json
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.objects import all_objects
from tests.manifests.rendered import NAMESPACE

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{SCHEDULER_POD}"
"""Of extender and kube-scheduler, which share a pod."""
_WORKLOADS = ("DaemonSet", "Deployment", "PodDisruptionBudget")
_RULES = (
    *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
)
"""Kinds that say who may do what."""

USERS: Mapping[str, Sequence[str]] = {ACCOUNT: ()}
"""Whom a control plane has to know to have gputopo installed. A token of this kind does not expire; the name says what it may."""


class Installation:
    """What was installed in `plane`, which was made with `USERS`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._numbers = count()
        self._objects = [found for found in all_objects() if found["kind"] not in _WORKLOADS]
        self._kubectl(self._objects, "apply", "--server-side")

    @contextmanager
    def upgraded(self, *settings: str) -> Iterator[None]:
        """Have the chart's objects as `--set` makes them for each setting; skip without Helm."""
        try:
            rendered = helm("template", "gputopo", CHART, "--namespace", NAMESPACE, *_set(settings))
        except HelmUnavailable as reason:
            pytest.skip(str(reason))
        objects = [found for found in yaml.safe_load_all(rendered) if found and found["kind"] in _RULES]
        ours = {_identity(found) for found in self._objects}
        self._kubectl(objects, "apply", "--server-side", "--force-conflicts")
        try:
            yield
        finally:
            self._kubectl(self._objects, "apply", "--server-side", "--force-conflicts")
            if added := [found for found in objects if _identity(found) not in ours]:
                self._kubectl(added, "delete")

    def _kubectl(self, objects: Sequence[Json], *command: str) -> None:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        kubectl(self.plane, *command, "-f", "-", given=document)

    def extender(self, settings: Mapping[str, Any] | None = None) -> ExtenderProcess:
        """Return an extender that is not started yet; `settings` replace sections of the chart's configuration."""
        name = f"extender-{next(self._numbers)}"
        return ExtenderProcess(name, self.plane.kubeconfig(ACCOUNT), self.plane.state, settings)

    def start_scheduler(
        self,
        extender: ExtenderProcess,
        *,
        more_profiles: Sequence[str] = (),
        more_extenders: Sequence[Any] = (),
        more_resources: Sequence[str] = (),
        hostname: str | None = None,
    ) -> Component:
        """Start a kube-scheduler with our sample configuration, which asks `extender` and then `more_extenders`."""
        configuration = scheduler_configuration({"http://127.0.0.1:8888": extender.url})
        configuration["profiles"] += [{"schedulerName": name} for name in more_profiles]
        managed = configuration["extenders"][0]["managedResources"]
        known = {each["name"] for each in managed}
        managed += [{"name": name, "ignoredByScheduler": False} for name in more_resources if name not in known]
        configuration["extenders"] += more_extenders
        return self.plane.start_scheduler(configuration, self.plane.kubeconfig(ACCOUNT), hostname)


def install_chart(plane: ControlPlane, *settings: str) -> None:
    """Install or upgrade the whole chart as its users do, workloads and all, with `--set` for each setting; skip without Helm."""
    target = ("--namespace", NAMESPACE, "--create-namespace", "--kubeconfig", plane.kubeconfig())
    try:
        helm("upgrade", "--install", "gputopo", CHART, *_set(settings), *target)
    except HelmUnavailable as reason:
        pytest.skip(str(reason))


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in ("image.repository=gputopo", *settings) for word in ("--set", setting)]


def _identity(found: Json) -> tuple[str, str, str]:
    metadata = found["metadata"]
    return found["kind"], metadata.get("namespace", ""), metadata["name"]
