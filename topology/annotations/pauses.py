"""Read off the Node why its driver is to be left alone, or why no new GPU pod is to come.

The GPU operator's words are those of its versions up to 26.7, its driver-manager's 0.12 and the MIG manager's 0.15.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from topology.annotations.keys import PAUSE

_DEPLOY: Final = "nvidia.com/gpu.deploy."
PAUSED: Final = "paused"
"""How each reason begins."""
CLIENT: Final = f"{_DEPLOY}client"
"""Set to `true` by GPU operators from 26.7 on, where programs that are none of theirs may use the driver."""
_OPERANDS: Final = tuple(
    f"{_DEPLOY}{name}"
    for name in ("device-plugin", "client", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "operator-validator")
)
"""Labels of the programs that are paused while a driver or its MIG slices change; which of them there are differs."""
UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
_UPGRADING: Final = frozenset(
    {
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "drain-required",
        "node-maintenance-required",
        "post-maintenance-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
    }
)
_VALUE: Final = re.compile(r"(?:.*_)?paused-for-([a-z-]+)")
_NAMES: Final = {"driver-upgrade": "driver upgrade", "mig-change": "MIG change"}
_MAX_CHARACTERS: Final = 60
"""Of what people write: kube-scheduler puts it into its events."""


def why_paused(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return why nobody may have the node's driver open just now; empty where everybody may.

    >>> why_paused({"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}, {})
    'paused: driver upgrade'
    >>> why_paused({}, {"gputopo.dev/pause": "new firmware"})
    'paused: new firmware'
    """
    if PAUSE in annotations:
        return _paused(annotations[PAUSE])
    for label in _OPERANDS:
        if label in labels and (found := _VALUE.fullmatch(labels[label])):
            return _paused(_NAMES.get(found[1], found[1].replace("-", " ")))
    return ""


def why_no_new_pods(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return why no new GPU pod is to come to the node; empty where that is nobody's wish.

    >>> why_no_new_pods({"nvidia.com/gpu.deploy.client": "false"}, {})
    'paused: GPU clients are switched off'
    """
    if why := why_paused(labels, annotations):
        return why
    if labels.get(UPGRADE_STATE) in _UPGRADING:
        return _paused(_NAMES["driver-upgrade"])
    if labels.get(CLIENT, "true") != "true":
        return _paused("GPU clients are switched off")
    return ""


def _paused(reason: str) -> str:
    words = " ".join("".join(each if each.isprintable() else " " for each in reason).split())[:_MAX_CHARACTERS]
    return f"{PAUSED}: {words}" if words else PAUSED
