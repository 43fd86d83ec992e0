"""The playground on real nodes: gputopo installed by Helm as on a cluster of one's own; only the GPUs are pretended."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.nodes import programs
from tests.cluster.nodes.namespaces import why_not
from tests.cluster.nodes.network import why_no_network
from tests.cluster.nodes.node import GpuNode, Parts
from tests.cluster.polling import eventually
from tests.image import kept
from tests.image.building import IMAGE
from tests.installed.cluster import Cluster, Programs, running
from tests.installed.release import Release
from tests.manifests.helm import executable
from tests.manifests.rendered import NAMESPACE
from tests.nvml.library import FakeNvml, has_compiler
from topology.annotations import keys

MACHINES = {"h100": "hgx_h100", "islands": "two_islands", "l40s": "pcie_l40s"}

INSTRUCTIONS = [
    "  kubectl apply -f manifests/examples/required-nvlink.yaml -f manifests/examples/relax-after.yaml",
    "  kubectl wait --for=condition=Ready pod required-nvlink relax-after",
    "  kubectl logs required-nvlink   # the GPUs that its process found, and their links",
    "  kubectl gputopo nodes",
    "  kubectl gputopo what-if --gpus 8 --required-affinity nvlink   # why there is no room for one more ring of eight",
    f"  kubectl get pods --namespace {NAMESPACE}   # what Helm has installed",
]


class NodesUnavailable(Exception):
    """No real node can run here; the text says why in one line."""


@contextmanager
def real(kubernetes: Path) -> Iterator[Cluster]:
    """Run the playground on real nodes for the length of a `with` block."""
    with bare(kubernetes, MACHINES) as cluster:
        print("installing the chart, and waiting until the nodes offer their GPUs", flush=True)
        Release(cluster.plane, {"agent.mode": "enforce"}).install()
        # A pod that comes before the second node would get GPUs of the only one that the next pod fits on.
        for node in cluster.nodes:
            eventually(partial(_offers_its_gpus, node), 60)
        yield cluster


def _offers_its_gpus(node: GpuNode) -> bool:
    topology = node.object()["metadata"].get("annotations", {}).get(keys.TOPOLOGY)
    return bool(topology) and node.allocatable() == len(node.machine.uuids)


@contextmanager
def bare(kubernetes: Path, machines: Mapping[str, str], *more: Path) -> Iterator[Cluster]:
    """Run a cluster of these machines, into which gputopo can be installed, for the length of a `with` block.

    Its nodes have `more` images than that of this checkout. Raises what says which program is missing: `NodesUnavailable`,
    `BinariesUnavailable`, `HelmUnavailable`, `ImageUnavailable`.
    """
    if reason := why_not() or why_no_network():
        raise NodesUnavailable(reason)
    if not has_compiler():
        raise NodesUnavailable("no gcc to build the fake NVML library")
    print("looking for Helm, which Go builds the first time (minutes)", flush=True)
    executable()
    image = kept.find_or_build(print, IMAGE)
    sets = (programs.TOOLS, programs.CONTAINERD, programs.RUNC, programs.NETWORK)
    tools, *others = programs.find_or_build(sets, print)
    with TemporaryDirectory(prefix="gputopo-playground-") as folder:
        parts = Parts(kubernetes, tools, FakeNvml(Path(folder)))
        print("starting the nodes", flush=True)
        with running(parts, Programs(*others), [image, *more], machines) as cluster:
            yield cluster
