"""The real `gputopo-extender` as a process beside the control plane: killed at any moment, and started again where it was.

It runs the chart's configuration file, in which only what a pod has and a process has not is replaced: ports on loopback,
and a kubeconfig. Like every component it dies with the process that holds it. `tests.process.replica` puts one behind a proxy.

Two others only look like it. `benchmarks.processes.extender_process` runs the defaults for the length of a block and knows no
chart. A replica of the simulation is no process: it is the same code in virtual time, where a kill takes place between two steps.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from benchmarks.processes.process import free_port
from tests.cluster.component import Component
from tests.cluster.forked import Forked, fork_server
from tests.manifests.helm import MANIFESTS
from tests.manifests.objects import file_of
from tests.manifests.rendered import FOLDER

SCHEDULER_POD = "gputopo-scheduler"
"""The name of nearly everything that the chart makes for the pod of kube-scheduler and extender."""
PROGRAM = Path(sysconfig.get_path("scripts")) / "gputopo-extender"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of our program, and of the configuration file that its chart gives it."""

    program: Sequence[str | Path] = (PROGRAM,)
    rendered: Path = FOLDER

    @classmethod
    def of(cls, checkout: Path) -> Version:
        """Return the version whose files are in a folder, with the distributions that are installed here."""
        program = ("env", f"PYTHONPATH={checkout}", sys.executable, "-P", "-m", "extender")
        return cls(program, checkout / FOLDER.relative_to(MANIFESTS.parent))


class ExtenderProcess(Component):
    """One extender; every start of it serves the same port and adds to the same log.

    Args:
        name: of its configuration and log in `state`.
        kubeconfig: how to reach the API server, and as whom.
        state: the folder that takes configuration and log.
        settings: sections that replace those of the chart's configuration.
        version: what runs; this one by default.

    """

    stop_grace_seconds = 60.0
    """It answers first what it was asked, which takes its time on a busy machine."""

    def __init__(
        self,
        name: str,
        kubeconfig: Path,
        state: Path,
        settings: Mapping[str, Any] | None = None,
        version: Version = Version(),
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        own = {"listen": {"port": port}, "health": {}, "kubernetes": {"kubeconfig": str(kubeconfig)}}
        self._settings = {**own, **(settings or {})}
        self._file = state / f"{name}.yaml"
        super().__init__(name, [], state, f"{self.url}/readyz")
        self.become(version)

    def become(self, version: Version) -> None:
        """Be of another version from the next start on."""
        configuration = yaml.safe_load(file_of(SCHEDULER_POD, "extender.yaml", version.rendered))
        self._file.write_text(yaml.safe_dump({**configuration, **self._settings}, sort_keys=False))
        self._command = [*map(str, version.program), "--config", str(self._file)]

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes] | Forked:
        """Fork this version, and start any other one."""
        if self._command[0] != str(PROGRAM):
            return super()._spawn(log)
        return fork_server().start(self._command, self._state, log)

    def read(self, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Return status and text of a page, or of the answer to a call with `body`; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", body, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except OSError:  # also where it ends in mid-answer
            return 0, ""

    def metric(self, series: str) -> float | None:
        """Return a figure of the running process by its name without `gputopo_`, with its labels if it has any."""
        return figure(self.read("/metrics")[1], series)

    def said(self, verb: str) -> list[dict[str, Any]]:
        """Return what the log tells of all calls of a verb, over all starts."""
        return [facts for facts in self.logged() if facts.get("verb") == verb]


def figure(page: str, series: str) -> float | None:
    """Return a figure of a page of metrics by its name without `gputopo_`, with its labels if it has any."""
    found = re.search(rf"^gputopo_{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else None


def in_its_container(state: Path, configuration: str, settings: Mapping[str, object]) -> Component:
    """Return an extender whose configuration is the text of a ConfigMap; `settings` replace what only a pod has.

    It answers probes on a port of its own.
    """
    health_port, file = free_port(), state / "extender.yaml"
    file.write_text(configuration)
    settings = {**settings, "health.host": "127.0.0.1", "health.port": health_port}
    overrides = [f"--set={key}={value}" for key, value in settings.items()]
    return Component(
        "extender", [PROGRAM, "--config", file, *overrides], state, f"http://127.0.0.1:{health_port}/readyz"
    )


def scheduler_configuration(urls: Mapping[str, str]) -> dict[str, Any]:
    """Return our sample `KubeSchedulerConfiguration`, with addresses replaced as `urls` says (old → new)."""
    text = file_of(SCHEDULER_POD, "scheduler.yaml")
    for old, new in urls.items():
        assert old in text, f"the sample configuration does not name {old}"
        text = text.replace(old, new)
    configuration: dict[str, Any] = yaml.safe_load(text)
    return configuration
