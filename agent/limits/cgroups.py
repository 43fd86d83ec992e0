"""Finds the cgroups of pods and containers by the kubelet's way of naming them; nothing in them is written here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extender.kit.yaml_text import read_yaml

ROOT: Final = Path("/sys/fs/cgroup")
"""The driver takes limits for what is below this only."""
_QOS = ("", "burstable", "besteffort")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b")
_KERNEL_THREAD = "2"
"""Always `kthreadd` on the host, and never in a PID namespace of its own."""


@dataclass(frozen=True, slots=True)
class PodCgroups:
    """One node's."""

    root: Path = ROOT
    config_file: Path | None = None
    """The kubelet's, read for its `cgroupRoot` where it is there."""

    @property
    def is_unified(self) -> bool:
        """Whether this is cgroup v2; on v1 each controller has a folder of its own here."""
        return (self.root / "cgroup.controllers").exists()

    def all_pods(self) -> Path | None:
        """Return the cgroup of all pods, or `None` where there is none."""
        folders = (self.root / path for path in _paths((*self._above(), "kubepods")))
        return next((path for path in folders if path.is_dir()), None)

    def pods(self) -> Iterator[Path]:
        """Yield the cgroup of each pod that there is."""
        if top := self.all_pods():
            for parent in (top, *(folder for folder in _folders(top) if _is_qos(folder))):
                yield from (folder for folder in _folders(parent) if _is_pod(folder))

    def of_pod(self, uid: str) -> Path | None:
        """Return the cgroup of a pod, or `None`; which class of service it has is seen by where it is."""
        if "/" in uid:  # a ledger is read without trust, and what is below a pod's cgroup can lead anywhere
            return None
        above = (*self._above(), "kubepods")
        names = ((*above, *filter(None, (qos,)), f"pod{uid}") for qos in _QOS)
        folders = (self.root / path for name in names for path in _paths(name))
        return next((path for path in folders if path.is_dir()), None)

    def of_containers(self, pod: Path) -> list[Path]:
        """Return the cgroups of its containers that can take a limit; that of its sandbox is among them."""
        has_dmem = (pod / "dmem.max").exists()
        return [folder for folder in _folders(pod) if not has_dmem or (folder / "dmem.max").exists()]

    def _above(self) -> tuple[str, ...]:
        """Return the kubelet's `cgroupRoot`, part by part."""
        try:
            document = read_yaml(self.config_file.read_text(encoding="utf-8")) if self.config_file else None
        except (OSError, ValueError):
            document = None
        said = document.get("cgroupRoot") if isinstance(document, dict) else None
        return tuple(part for part in said.split("/") if part not in ("", "..", ".")) if isinstance(said, str) else ()


def pod_of(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return the UID of a process's pod, empty outside of pods; `None` where that cannot be told.

    NVML tells the host's numbers, which mean something only to who shares the host's PID namespace.
    """
    try:
        if (proc / _KERNEL_THREAD / "comm").read_text(errors="replace").strip() != "kthreadd":
            return None
        text = (proc / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    match = _POD.search(text)
    return match[1].replace("_", "-") if match else ""


def _paths(parts: tuple[str, ...]) -> tuple[str, str]:
    """Return how the drivers `cgroupfs` and `systemd` of kubelets name a cgroup.

    >>> _paths(("kubepods", "burstable", "pod1-2"))[1]
    'kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice'
    """
    escaped = [part.removesuffix(".slice").replace("-", "_") for part in parts]
    slices = ["-".join(escaped[: count + 1]) + ".slice" for count in range(len(escaped))]
    return "/".join(parts), "/".join(slices)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _last_part(folder: Path) -> str:
    return folder.name.removesuffix(".slice").rpartition("-")[2] if folder.suffix == ".slice" else folder.name


def _is_qos(folder: Path) -> bool:
    return _last_part(folder) in _QOS[1:]


def _is_pod(folder: Path) -> bool:
    return _last_part(folder).startswith("pod")
