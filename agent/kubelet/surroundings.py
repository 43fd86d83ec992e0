"""Looks around the kubelet: sockets, rivals, CDI specs, how it aligns by NUMA nodes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.config import EnforceSettings, KubeletSettings
from agent.kubelet.serving.registration import KUBELET_SOCKET, answers
from agent.plugin.alignment import Alignment
from agent.plugin.readiness import Setting
from extender.kit.yaml_text import read_yaml

_MAX_CPU = 8191
"""More than Linux is built for."""
_LONGEST_NAME = len("gputopo-4194304-9999999.sock")


async def look_around(
    kubelet: KubeletSettings,
    enforce: EnforceSettings,
    resource: str,
    gpus: frozenset[str],
    sys_root: Path = Path("/sys"),
) -> Setting:
    """Return what is found now; whatever cannot be read counts as absent."""
    folder = kubelet.device_plugins
    in_specs = await asyncio.to_thread(cdi_devices, enforce.cdi_folder)
    return Setting(
        kubelet_socket=await answers(folder / KUBELET_SOCKET),
        rival=await rival_for(kubelet, resource),
        alignment=await asyncio.to_thread(alignment, kubelet),
        cpus=await asyncio.to_thread(numa_nodes_of_cpus, sys_root),
        cdi=in_specs.issuperset(f"{enforce.cdi_kind}={gpu}" for gpu in gpus),
        cdi_devices=in_specs,
        socket_path_bytes=len(os.fsencode(folder)) + 1 + _LONGEST_NAME,
    )


async def rival_for(kubelet: KubeletSettings, resource: str) -> str | None:
    """Return the socket of NVIDIA's device plugin for a resource, where it answers."""
    rival = kubelet.device_plugins / f"{resource.split('.', maxsplit=1)[0]}-{resource.rpartition('/')[2]}.sock"
    return rival.name if _is_socket(rival) and await answers(rival) else None


def alignment(kubelet: KubeletSettings) -> Alignment | None:
    """Return how the kubelet aligns, as we are told, or as its configuration file says; `None`: not at all, its default."""
    given = kubelet.topology_manager
    if given.policy != "auto":
        return Alignment.named(given.policy, given.scope)
    document = _document(kubelet.config_file)
    policy, scope = (str(document.get(key)) for key in ("topologyManagerPolicy", "topologyManagerScope"))
    options = document.get("cpuManagerPolicyOptions")
    by_socket = isinstance(options, dict) and str(options.get("align-by-socket")).lower() == "true"
    return Alignment.named(policy, scope, cpus_count=not by_socket)


def numa_nodes_of_cpus(sys_root: Path) -> dict[int, int]:
    """Return CPU → its NUMA node, as the kernel tells; empty where it does not."""
    nodes: dict[int, int] = {}
    for file in (sys_root / "devices/system/node").glob("node*/cpulist"):
        with suppress(OSError, ValueError):
            numa_node = int(file.parent.name.removeprefix("node"))
            nodes |= dict.fromkeys(_ranges(file.read_text()), numa_node)
    return nodes


def _ranges(text: str) -> Iterator[int]:
    """Read `0-3,8`."""
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), min(int(last or first), _MAX_CPU) + 1)


def cdi_devices(folder: Path) -> frozenset[str]:
    """Return the devices that the CDI specs in a folder have, each as `vendor/class=name`."""
    return frozenset(f"{spec.get('kind')}={name}" for spec in _specs(folder) for name in _names(spec))


def _specs(folder: Path) -> Iterator[dict[str, Any]]:
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".json", ".yaml", ".yml"))
    except OSError:
        return
    yield from map(_document, files)


def _names(spec: dict[str, Any]) -> Iterator[str]:
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            yield device["name"]


def _document(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        document = json.loads(text) if file.suffix == ".json" else read_yaml(text)
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
