"""A playground: a real control plane with gputopo at work, and thirteen GPU nodes that only the API server believes in.

kubelets and agents are simulated too, so pods run and end, and no container is ever started; `tests/installed` has some that
are not. The cluster's own scheduler is there as well, for pods that do not name ours.
"""

import asyncio
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, socket
from typing import Protocol, TypeVar

from benchmarks.processes.client import ApiClient
from benchmarks.simulated.devices import publish_devices, reserve_class
from benchmarks.simulated.fleet import SimulatedNode, join
from tests.cluster.agent_pod import create_agent_pod
from tests.cluster.binaries import is_oldest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import ACCOUNT, USERS, Installation
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import Json
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS
from tests.manifests.rendered import NAMESPACE, QUEUE_POLICY, SCHEDULER_NAME
from tests.world.agents import Agents
from tests.world.in_thread import in_thread
from tests.world.kubelets import running_kubelets

PLUGIN_FLEET = (
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
DRIVER_FLEET = (SimulatedNode("a100-dra", "dgx-a100", has_plugin=False),)
"""Nodes whose GPUs a DRA driver publishes, so that pods get them by ResourceClaims."""

NO_AGENTS = "8760h"
"""How long simulated nodes stay open though no agent writes again: with the default all close after twelve minutes."""


CONTROLLERS = (
    "deployment-controller,garbage-collector-controller,job-controller,replicaset-controller,resourceclaim-controller,"
    "statefulset-controller"
)
"""Those that create pods, and delete them with their owner; none of them looks for a node's kubelet."""

QUEUE_RIGHTS = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "patch"]},
)
"""What the chart gives an extender with a queue; Helm would have to be built to ask it, which takes minutes."""
CLAIM_RIGHTS = ({"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["create"]},)
"""What the chart gives one that allocates ResourceClaims, beside what it has with its kube-scheduler's account."""


def has_claims() -> bool:
    """Whether the control plane has `resource.k8s.io/v1`."""
    return not is_oldest()


def fleet() -> tuple[SimulatedNode, ...]:
    """Return the nodes of the playground."""
    return (*PLUGIN_FLEET, *DRIVER_FLEET) if has_claims() else PLUGIN_FLEET


@contextmanager
def simulated(binaries: Path) -> Iterator[GpuCluster]:
    """Run the playground on simulated nodes for the length of a `with` block, with pods on some GPUs already."""
    with ControlPlane(binaries, users=USERS) as plane:
        asyncio.run(_join(plane.kubeconfig()))  # before there is a scheduler that would bind the pods itself
        address = own_address()
        agents = partial(Agents, nodes=[node.name for node in fleet()], address=address)
        with (
            installed(plane) as cluster,
            running_kubelets(plane.kubeconfig()),
            in_thread("agents", plane.kubeconfig(), agents) as reporting,
        ):
            agents_pods = [
                create_agent_pod(plane, node, metrics=(address, port)) for node, port in reporting.ports.items()
            ]
            eventually(lambda: all(_is_running(plane, pod) for pod in agents_pods))
            yield cluster


def _is_running(plane: ControlPlane, agent: str) -> bool:
    pod = plane.admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{agent}")
    return bool(pod["status"].get("phase") == "Running")


async def _join(kubeconfig: Path) -> None:
    async with ApiClient.from_kubeconfig(kubeconfig) as client:
        await join(client, fleet(), SCHEDULER_NAME)
        if has_claims():
            await publish_devices(client, DRIVER_FLEET)
            await reserve_class(client)


@contextmanager
def installed(plane: ControlPlane) -> Iterator[GpuCluster]:
    """Install gputopo with its queue, and planned claims, for the length of a `with` block; both schedulers are at work."""
    installation = Installation(plane)
    grant(plane, ACCOUNT, (*QUEUE_RIGHTS, *CLAIM_RIGHTS))
    kubectl(plane, "apply", "--server-side", "-f", QUEUE_POLICY)
    settings = {"agents": {"silence": NO_AGENTS}, "queue": {"enabled": True}, "dra": {"enabled": has_claims()}}
    with at_work(installation, settings) as cluster:
        plane.start_scheduler()
        plane.start_controllers(CONTROLLERS)
        yield cluster


def grant(plane: ControlPlane, user: str, rules: Sequence[Json]) -> None:
    """Give a user further rights in the whole cluster."""
    name, group = "playground-queue", "rbac.authorization.k8s.io"
    path, kind = f"/apis/{group}/v1", {"apiGroup": group, "kind": "ClusterRole", "name": name}
    plane.admin.post(f"{path}/clusterroles", {"metadata": {"name": name}, "rules": [*rules]})
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    plane.admin.post(f"{path}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": kind, "subjects": subjects})


def own_address() -> str:
    """Return an address of this machine to which an API server forwards, which loopback is not; empty where there is none."""
    with socket(AF_INET, SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
        return "" if ip_address(address).is_loopback else address


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
    gang = os.path.relpath(MANIFESTS / "workloads" / "gang.yaml")
    claims = ["  kubectl gputopo claim --gpus 2 | kubectl apply -f -; kubectl gputopo claims   # GPUs by DRA"]
    top = ["  kubectl gputopo top --idle   # GPUs that a pod holds and does not use"] if own_address() else []
    return [
        f"  export GPUTOPO_EXTENDER={cluster.extender.url}",
        "",
        f"  kubectl apply -f {os.path.relpath(MANIFESTS / 'examples')}",
        "  kubectl describe pods required-nvlink relax-after   # one placed, one that waits, and why",
        "  kubectl gputopo status; kubectl gputopo pods",
        *top,
        "  kubectl gputopo cordon-gpu t4 0 --why 'fan is loud'; kubectl gputopo node t4",
        f"  kubectl apply -f {gang} -l member=0; kubectl gputopo queue   # one of two pods, which waits for the other",
        f"  kubectl apply -f {gang}; kubectl gputopo queue   # both start",
        *(claims if has_claims() else []),
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
