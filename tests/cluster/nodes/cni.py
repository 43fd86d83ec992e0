"""Where a container runtime finds how pods are joined to a network."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Cni:
    """Plugins, and the list of those that are asked."""

    programs: tuple[Path, ...]
    """Folders."""
    conflist: Mapping[str, Any]


_NOTHING = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [], "ips": [{"address": "10.88.0.2/32"}]}' ;;
esac
"""


def no_network(folder: Path) -> Cni:
    """Return a network of which pods see nothing but its address, written to a folder; kubelets insist on one."""
    plugin = folder / "gputopo-none"
    plugin.write_text(_NOTHING)
    plugin.chmod(0o755)
    return Cni((folder,), {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "gputopo-none"}]})
