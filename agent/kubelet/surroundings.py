"""Looks around the kubelet: sockets, rivals, CDI specs, the topology manager's policy."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agent.config import Enforce, Kubelet
from agent.kubelet.registration import KUBELET_SOCKET, answers
from agent.plugin.readiness import Setting

_LONGEST_NAME = len("gputopo-4194304-9999999.sock")


async def look_around(kubelet: Kubelet, enforce: Enforce, resource: str, gpus: frozenset[str]) -> Setting:
    """Return what is found now; whatever cannot be read counts as absent."""
    folder = kubelet.device_plugins
    rival = folder / f"{resource.split('.', maxsplit=1)[0]}-{resource.rpartition('/')[2]}.sock"
    return Setting(
        kubelet_socket=await answers(folder / KUBELET_SOCKET),
        rival=rival.name if _is_socket(rival) and await answers(rival) else None,
        topology_policy=await asyncio.to_thread(topology_policy, kubelet.config_file),
        cdi=gpus <= await asyncio.to_thread(cdi_names, enforce.cdi_folder, enforce.cdi_kind),
        socket_path_bytes=len(os.fsencode(folder)) + 1 + _LONGEST_NAME,
    )


def topology_policy(config: Path) -> str:
    """Return the topology manager policy that a kubelet's configuration file asks for; `none` is its default."""
    document = _document(config)
    return str(document.get("topologyManagerPolicy") or "none")


def cdi_names(folder: Path, kind: str) -> frozenset[str]:
    """Return the names of the devices that the CDI specs in a folder have for a kind."""
    return frozenset(name for spec in _specs(folder) if spec.get("kind") == kind for name in _names(spec))


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
        document = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
