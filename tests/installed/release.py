"""gputopo as a Helm release in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.image.building import IMAGE
from tests.manifests.helm import CHART, helm
from tests.manifests.rendered import NAMESPACE

WITHIN = "120s"


@dataclass(frozen=True, slots=True)
class Release:
    """Each word of Helm's returns when all pods are Ready, or gone."""

    plane: ControlPlane
    values: Mapping[str, object] = field(default_factory=dict)
    """Beside the image's."""
    chart: Path = CHART
    image: str = IMAGE

    def install(self) -> None:
        """Install it."""
        self._helm("install", "gputopo", str(self.chart), "--create-namespace", *self._values(self.values))

    def upgrade(self, **changed: object) -> None:
        """Upgrade to its chart and image, as the chart's README says, with further values; a `__` stands for a dot."""
        values = self._values({name.replace("__", "."): value for name, value in changed.items()})
        self._helm("upgrade", "gputopo", str(self.chart), "--reset-then-reuse-values", *values)

    def check(self) -> None:
        """Run the chart's own test, whose pod has nothing but its service account."""
        helm("test", "gputopo", "--namespace", NAMESPACE, "--kubeconfig", self.plane.kubeconfig(), "--timeout", WITHIN)

    def roll_back(self) -> None:
        """Go back to what was there before the last upgrade, whatever kubectl has changed since."""
        self._helm("rollback", "gputopo", "--force-conflicts")

    def uninstall(self) -> None:
        """Remove it, if it is there, and the pod of the chart's own test, which Helm leaves."""
        self._helm("uninstall", "gputopo", "--ignore-not-found")
        kubectl(self.plane, "delete", "pod", "gputopo-test", "--ignore-not-found", f"--namespace={NAMESPACE}")
        kubectl(self.plane, "wait", "--for=delete", "pods", "--all", f"--namespace={NAMESPACE}", f"--timeout={WITHIN}")

    def _helm(self, *words: str) -> None:
        where = ("--namespace", NAMESPACE, "--kubeconfig", self.plane.kubeconfig())
        helm(*words, *where, "--wait", "--timeout", WITHIN)

    def _values(self, values: Mapping[str, object]) -> list[str]:
        repository, _, tag = self.image.rpartition(":")
        all_values = {"image.repository": repository, "image.tag": tag, **values}
        return [word for name, value in all_values.items() for word in ("--set", f"{name}={_written(value)}")]


def _written(value: object) -> object:
    """Return a value as Helm reads it; `True` would be a text."""
    return str(value).lower() if isinstance(value, bool) else value
