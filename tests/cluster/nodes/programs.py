"""The programs that a node of the tests runs beside the kubelet: our own small tools, a real container runtime, NVIDIA's plugin.

Each set is pinned by a Go module of its own, so that none lifts what another depends on, and is built once per user.

By hand: `python -m tests.cluster.nodes.programs` builds all sets if need be and prints their folders.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.go_build import BinariesUnavailable, GoBuild

HERE = Path(__file__).parent
_SMALL = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w")
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_CNI = "github.com/containernetworking/plugins/plugins"
_NVIDIA = "github.com/NVIDIA/k8s-device-plugin/cmd"

TOOLS = GoBuild(HERE / "tools", "node-tools", ("./...",), _SMALL, "the nodes' tools (once, about twenty seconds)")
"""`fakecri`, `ask`, `wilful`, `dradriver`, `inside`, `unconfined`, `certify`."""

CONTAINERD = GoBuild(
    HERE / "runtime",
    "containerd",
    (f"{_CONTAINERD}/containerd", f"{_CONTAINERD}/ctr", f"{_CONTAINERD}/containerd-shim-runc-v2"),
    (*_SMALL, "-tags", "no_btrfs no_devmapper no_zfs no_tracing"),
    "containerd (once, about a minute)",
)
RUNC = GoBuild(
    HERE / "runtime", "runc", ("github.com/opencontainers/runc",), _SMALL, "runc (once, half a minute)", cgo=True
)

NETWORK = GoBuild(
    HERE / "network",
    "network",
    (f"{_CNI}/main/ptp", f"{_CNI}/ipam/host-local"),
    _SMALL,
    "the network plugins of CNI (once, about ten seconds)",
)

# NVML's symbols are bound at their first call, which a linker's `-z now` would forbid.
_LAZY = (*_SMALL[:-1], "-s -w -extldflags=-Wl,-z,lazy")
NVIDIA = GoBuild(
    HERE / "nvidia",
    "nvidia",
    (f"{_NVIDIA}/nvidia-device-plugin", f"{_NVIDIA}/gpu-feature-discovery"),
    _LAZY,
    "NVIDIA's device plugin and gpu-feature-discovery (once, about two minutes)",
    cgo=True,
)


def find_or_build(sets: tuple[GoBuild, ...], announce: Callable[[str], None] = print) -> list[Path]:
    """Return the folder of each set; raises `BinariesUnavailable`."""
    return [each.find_or_build(announce) for each in sets]


if __name__ == "__main__":
    try:
        print(
            *find_or_build((TOOLS, CONTAINERD, RUNC, NETWORK, NVIDIA), lambda text: print(text, file=sys.stderr)),
            sep="\n",
        )
    except BinariesUnavailable as error:
        sys.exit(str(error))
