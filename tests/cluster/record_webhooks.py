"""Records what the real kube-scheduler sends to an extender, as the fixtures of the contract tests.

By hand, after a change of a pinned version: `python -m tests.cluster.record_webhooks [FOLDER]`, for the older one with
`GPUTOPO_KUBE_VERSION=1.30`. Each case becomes a folder below `tests/contract/recorded/<version>/` with one body and one head
file per call.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.api import Json
from tests.cluster.binaries import find_or_build, kubernetes_version, wanted
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import NODES, PODS, PRIORITIES, container, node, pod, priority_class
from tests.cluster.polling import eventually
from tests.cluster.recorder import RecordingExtender
from tests.cluster.sweep import sweep

RECORDED = Path(__file__).parents[1] / "contract" / "recorded"


def one_container(plane: ControlPlane) -> None:
    """Place the simplest GPU pod with a choice of three nodes."""
    create_nodes(plane, 3)
    plane.admin.post(PODS, pod("one-container", gpus=2))


def several_containers(plane: ControlPlane) -> None:
    """Place a pod whose containers ask for 2, 1 and no GPUs."""
    create_nodes(plane, 2)
    containers = [container("trainer", gpus=2), container("evaluator", gpus=1), container("logger")]
    plane.admin.post(PODS, pod("several-containers", containers=containers))


def init_containers(plane: ControlPlane) -> None:
    """Place a pod with an init container and a sidecar that ask for GPUs too."""
    create_nodes(plane, 2)
    sidecar = {**container("sidecar", gpus=1), "restartPolicy": "Always"}
    init = [container("warm-up", gpus=4), sidecar]
    plane.admin.post(PODS, pod("init-containers", gpus=2, initContainers=init))


def applied_with_annotations(plane: ControlPlane) -> None:
    """Place an annotated pod made by `kubectl apply`, with all that this adds."""
    create_nodes(plane, 2)
    annotations = {"gputopo.dev/required-affinity": "nvlink", "gputopo.dev/min-bandwidth": "200"}
    manifest = pod(
        "applied",
        gpus=4,
        annotations=annotations,
        labels={"app": "train"},
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        nodeSelector={"example.test/pool": "train"},
        volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    )
    kubectl(plane, "apply", "-f", "-", given=json.dumps(manifest))


def preemption(plane: ControlPlane) -> None:
    """Make room on one of three full nodes: one victim, two victims, or one that a budget protects."""
    create_nodes(plane, 3, gpus=4)
    for name, value in (("low", 10), ("high", 1000)):
        plane.admin.post(PRIORITIES, priority_class(name, value))
    for name, gpus, node_name in (("v1", 4, "gpu-1"), ("v2", 2, "gpu-2"), ("v3", 2, "gpu-2"), ("v4", 4, "gpu-3")):
        labels = {"protected": str(node_name == "gpu-3").lower()}
        plane.admin.post(PODS, pod(name, gpus=gpus, labels=labels, priorityClassName="low", nodeName=node_name))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"protected": "true"}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    plane.admin.post(budgets, {"metadata": {"name": "one-stays"}, "spec": budget})
    plane.admin.post(PODS, pod("urgent", gpus=4, priorityClassName="high"))


CASES: dict[str, Callable[[ControlPlane], None]] = {
    "one-container": one_container,
    "several-containers": several_containers,
    "init-containers": init_containers,
    "applied-with-annotations": applied_with_annotations,
    "preemption": preemption,
}


def create_nodes(plane: ControlPlane, count: int, gpus: int = 8) -> None:
    for number in range(1, count + 1):
        plane.admin.post(NODES, node(f"gpu-{number}", gpus=gpus, labels={"example.test/pool": "train"}))


def all_bound(plane: ControlPlane) -> bool:
    pods: list[Json] = plane.admin.list(PODS)
    return bool(pods) and all("nodeName" in found["spec"] for found in pods)


def record(plane: ControlPlane, extender: RecordingExtender, case: str, folder: Path) -> None:
    """Play one case from its first node to the last binding, and save the calls that it led to."""
    CASES[case](plane)
    eventually(lambda: all_bound(plane))
    shutil.rmtree(folder, ignore_errors=True)
    for body in extender.save(folder):
        print(f"{body}: {body.stat().st_size} bytes")
    sweep(plane.admin)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED / kubernetes_version(wanted())
    with ControlPlane(find_or_build()) as plane:
        extender = RecordingExtender(plane.admin)
        with extender.serving():
            plane.start_scheduler(extender.scheduler_configuration(node_cache_capable=True))
            for case in CASES:
                record(plane, extender, case, target / case)
            plane.stop_schedulers()
            plane.start_scheduler(extender.scheduler_configuration(node_cache_capable=False))
            record(plane, extender, "one-container", target / "whole-nodes")
            plane.stop_schedulers()


if __name__ == "__main__":
    main()
