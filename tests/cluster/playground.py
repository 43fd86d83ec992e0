"""A playground: a real control plane with gputopo at work, and a dozen GPU nodes that only the API server believes in.

kubelets are simulated too, so pods run, end and can be deleted, and no container is ever started; `tests/installed` has some
that are not. The cluster's own scheduler is there as well, for pods that do not name ours.
"""

import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import USERS, Installation
from tests.manifests.helm import MANIFESTS
from tests.world.kubelets import running_kubelets

FLEET = (
    SimulatedNode("p100", "dgx-1p", used=(0,)),
    SimulatedNode("v100-a", "dgx-1v", used=(3, 4, 5)),
    SimulatedNode("v100-b", "dgx-1v", used=(4, 5, 6)),
    SimulatedNode("v100-c", "dgx-2", used=tuple(range(9))),
    SimulatedNode("a100", "dgx-a100", used=(0, 1)),
    SimulatedNode("a100-bridged", "a100-pcie-8-pairs"),
    SimulatedNode("h100-a", "hgx-h100", used=(7,)),
    SimulatedNode("h100-b", "hgx-h100", used=(0, 1, 2, 3, 4)),
    SimulatedNode("h100-bridged", "h100-nvl-8-pairs", used=(1, 4)),
    SimulatedNode("b200", "hgx-b200-gpu2-off-fabric", used=(0,)),
    SimulatedNode("l40s", "l40s-8", shared_gpus=4),
    SimulatedNode("t4", "t4-4"),
)
"""No eight GPUs that are free have a ring of NVLinks: the example that requires one shows how a pod waits."""

NO_AGENTS = "8760h"
"""How long simulated nodes stay open though no agent writes again: with the default all close after twelve minutes."""


@contextmanager
def simulated(binaries: Path) -> Iterator[GpuCluster]:
    """Run the playground on simulated nodes for the length of a `with` block, with pods on some GPUs already."""
    with (
        ControlPlane(binaries, users=USERS) as plane,
        installed(plane) as cluster,
        running_kubelets(plane.kubeconfig()),
    ):
        cluster.join(*FLEET)
        yield cluster


@contextmanager
def installed(plane: ControlPlane) -> Iterator[GpuCluster]:
    """Install gputopo for the length of a `with` block; both schedulers are at work."""
    with at_work(Installation(plane), {"agents": {"silence": NO_AGENTS}}) as cluster:
        plane.start_scheduler()
        yield cluster


class Played(Protocol):
    """What can be looked at."""

    @property
    def plane(self) -> ControlPlane:
        """Its control plane."""
        ...


Cluster = TypeVar("Cluster", bound=Played)


def stay(playground: AbstractContextManager[Cluster], nodes: str, words: Callable[[Cluster], Sequence[str]]) -> None:
    """Run a playground until Ctrl-C (or SIGTERM), and say how to look at it.

    Args:
        playground: what is run.
        nodes: what it has, for a person.
        words: the commands that are worth a try there.

    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        print(f"starting a control plane, gputopo and {nodes} ...", flush=True)
        with playground as cluster:
            print(instructions(cluster.plane, words(cluster)), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)


def simulated_words(cluster: GpuCluster) -> list[str]:
    """Return what is worth a try on simulated nodes."""
    return [
        f"  kubectl apply -f {os.path.relpath(MANIFESTS / 'examples')}",
        "  kubectl describe pods required-nvlink relax-after   # one placed, one that waits, and why",
        "  kubectl gputopo nodes",
        "",
        f"The extender's own view: {cluster.extender.url}/v1/inspect/",
    ]


def instructions(plane: ControlPlane, words: Sequence[str]) -> str:
    """Return what to type in another terminal."""
    lines = [
        "In another terminal, in this folder:",
        "",
        *_exports(plane),
        "",
        *words,
        "",
        f"Logs: {plane.state}",
        "Ctrl-C ends it and leaves nothing behind.",
    ]
    return "\n".join(lines)


def _exports(plane: ControlPlane) -> Iterator[str]:
    yield f"  export KUBECONFIG={plane.kubeconfig()}"
    where = {"kubectl": plane.binaries, "kubectl-gputopo": Path(sysconfig.get_path("scripts"))}
    missing = [str(folder) for program, folder in where.items() if shutil.which(program) is None]
    if missing:
        yield f"  export PATH={':'.join(missing)}:$PATH"
