"""`kubectl gputopo snapshot` keeps a cluster in a file that every verb can ask, and `replay` decides about all pods that wait."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join, node_object
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop
from extender.features.dra.claim_spec import OUR_CLASS
from extender.kubectl import reading
from extender.kubectl.snapshot import Snapshot
from tests.dra import allocated, gpu, resource_slice
from tests.extender.plugin import PODS, invoke, plugin
from tests.extender.serving import serving
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger

QUESTIONS = [
    ("nodes", "-o", "wide"),
    ("node", "n1"),
    ("pod", "waits"),
    ("why", "huge"),
    ("why", "odd"),
    ("what-if", "--gpus", "4", "--required-affinity", "nvlink"),
    ("what-if", "--gpus", "6", "--evict", "waits"),
    ("what-if", "--gpu-memory-gib", "10"),
    ("status",),
    ("fragmentation",),
    ("replay",),
]


@pytest.mark.slow
async def test_a_snapshot_answers_what_the_cluster_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb, in the same words and with the same exit code, when the cluster is long gone."""
    monkeypatch.setattr(reading, "APPRAISE_SECONDS", 60.0)  # what time cuts off may differ
    file = tmp_path / "cluster.json.gz"
    assert (await plugin(tmp_path, "snapshot", str(file))).exit_code == 0
    for question in QUESTIONS:
        live = await plugin(tmp_path, *question)
        kept = await asyncio.to_thread(invoke, *question, "--snapshot", str(file))
        assert (kept.exit_code, kept.stdout) == (live.exit_code, live.stdout), question
        assert kept.stdout


SECRET = "hunter2"
GANG = {"jobset.sigs.k8s.io/jobset-name": "train"}


def talkative(name: str) -> dict[str, Any]:
    """Return a pod that tells a secret wherever a pod can."""
    state = {"terminated": {"exitCode": 1, "message": SECRET, "reason": SECRET}}
    container = {
        "name": "main",
        "image": SECRET,
        "command": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "resources": {"limits": {keys.GPU_RESOURCE: "1"}},
    }
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, keys.REQUIRED_AFFINITY: "nvlink"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "labels": {"a": SECRET, **GANG}, "annotations": annotations},
        "spec": {"containers": [container], "volumes": [{"name": SECRET}], "schedulingGates": [{"name": "gate"}]},
        "status": {"message": SECRET, "containerStatuses": [{"name": "main", "image": SECRET, "state": state}]},
    }


def test_a_snapshot_holds_no_secret(tmp_path: Path) -> None:
    """Nothing that is not read here; of annotations and labels only ours and what names a group."""
    listed, file = tmp_path / "listed.json", tmp_path / "cluster.json.gz"
    node = {
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"rack": "r1"}, "annotations": {"join-token": SECRET, keys.STATUS: "{}"}},
        "spec": {"providerID": SECRET},
        "status": {"conditions": [{"type": "Ready", "status": "True", "message": SECRET}]},
    }
    listed.write_text(json.dumps({"kind": "List", "items": [node, talkative("p1")]}))
    Snapshot.read(listed).write(file)
    text = gzip.decompress(file.read_bytes()).decode()
    assert SECRET not in text
    for kept in ('"rack":"r1"', '"train"', keys.STATUS, keys.REQUIRED_AFFINITY, '"name":"gate"', '"terminated":{}'):
        assert kept in text


async def test_what_kubectl_lists_is_a_snapshot_too(tmp_path: Path) -> None:
    """For a cluster where nobody has the plugin."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        nodes = (await api.call("GET", "/api/v1/nodes")).ok()["items"]
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Node", **node} for node in nodes]}
    (tmp_path / "list.json").write_text(json.dumps(listed))
    result = await asyncio.to_thread(invoke, "nodes", "-o", "name", "--snapshot", str(tmp_path / "list.json"))
    assert (result.exit_code, result.stdout) == (0, "node/n1\n")


def test_a_snapshot_keeps_what_claims_hold(tmp_path: Path) -> None:
    """Also when it is written anew, without what is opaque to us, which may be secret."""
    here = SimulatedNode("n1", "dgx-a100")
    claim = allocated("job", "n1", "gpu-3") | {"spec": {"devices": {"config": [{"opaque": {"parameters": SECRET}}]}}}
    vm = allocated("vm", "n1", "gpu-vfio-0")
    slices = resource_slice("n1", [gpu(minor, each.uuid) for minor, each in enumerate(here.topology.gpus)])
    listed, kept = tmp_path / "listed.json", tmp_path / "kept.json.gz"
    listed.write_text(json.dumps({"kind": "List", "items": [node_object(here), claim, vm, slices]}))
    Snapshot.read(listed).write(kept)
    assert SECRET not in gzip.decompress(kept.read_bytes()).decode()
    for file in (listed, kept):
        told = invoke("node", "n1", "--snapshot", str(file)).stdout
        assert "held by ResourceClaim ml/job" in told
        assert "allocated by DRA: ResourceClaim ml/vm holds gpu-vfio-0" in told


@pytest.mark.parametrize(("owner", "is_conflict"), [("u", False), ("another", True)])
def test_a_pod_and_its_claim_hold_the_same_gpus_without_a_conflict(
    owner: str, is_conflict: bool, tmp_path: Path
) -> None:
    """Where the extender allocates the claim; as kubectl lists them, and in a file of ours."""
    here = SimulatedNode("n1", "dgx-a100", has_plugin=False)
    uuid = here.topology.gpus[3].uuid
    node = node_object(here)
    node["metadata"]["annotations"][keys.LEDGER] = encode_ledger(
        Ledger(
            1, (Claim(uuid, "u", "default", "runs", "main", "1"),), gpus=tuple(gpu.uuid for gpu in here.topology.gpus)
        )
    )
    pod = gpu_pod("runs", 0)
    pod["metadata"] |= {"namespace": "default", "uid": "u"}
    pod["spec"]["nodeName"] = "n1"
    requests = [{"exactly": {"deviceClassName": OUR_CLASS}}]
    claim = allocated("runs-gpus", "n1", "gpu-3") | {"spec": {"devices": {"requests": requests}}}
    claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "runs", "uid": owner, "controller": True}]
    slices = resource_slice("n1", [gpu(minor, each.uuid) for minor, each in enumerate(here.topology.gpus)])
    listed, kept = tmp_path / "listed.json", tmp_path / "kept.json.gz"
    listed.write_text(json.dumps({"kind": "List", "items": [node, pod, claim, slices]}))
    Snapshot.read(listed).write(kept)
    for file in (listed, kept):
        shown = invoke("status", "--snapshot", str(file)).stdout
        assert ("a pod and a ResourceClaim have one GPU" in shown) == is_conflict


def test_the_moment_of_a_snapshot_is_its_own(tmp_path: Path) -> None:
    """A pod that relaxes after an hour has not waited for years, only because nobody looked."""
    wants = {keys.REQUIRED_AFFINITY: "nvlink", keys.RELAX_AFTER: "1h"}
    pod = gpu_pod("patient", 2, wants)
    pod["metadata"] |= {"namespace": "default", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z"}
    node = {"kind": "Node", **node_object(SimulatedNode("n1", "t4-4"))}
    answers = []
    for taken in (1800, 7200):
        (tmp_path / "cluster").write_text(json.dumps({"items": [node, pod], "taken": taken}))
        answers.append(invoke("pod", "patient", "--snapshot", str(tmp_path / "cluster")).exit_code)
    assert answers == [1, 0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"{", "no snapshot of a cluster"),
        (b"\x1f\x8b broken", "no snapshot of a cluster"),
        (gzip.compress(b'{"items": []}', mtime=0)[:-9], "no snapshot of a cluster"),
        (b'{"kind": "Node"}', "missing required field `items`"),
        (b'{"items": [{"kind": "Secret"}]}', "Secret, and neither a Node nor a Pod"),
        (b'{"items": [{"kind": "Pod", "metadata": 5}]}', "metadata"),
    ],
)
def test_what_is_no_snapshot_is_refused_by_name(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """Exit code 2, and one line with the file and the reason."""
    file = tmp_path / "cluster.json.gz"
    if content is not None:
        file.write_bytes(content)
    result = invoke("nodes", "--snapshot", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(file) in result.stderr
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1


FLEET = (SimulatedNode("n1", "dgx-1v"), SimulatedNode("n2", "dgx-a100", used=(0, 3)), SimulatedNode("n3", "t4-4"))
WAITING = [("a", 4, "nvlink"), ("b", 2, "nvlink"), ("c", 6, "nvlink"), ("d", 1, None), ("e", 3, None), ("f", 8, None)]


@pytest.mark.slow
async def test_replay_decides_as_scheduler_and_extender_do(tmp_path: Path) -> None:
    """The same pods on the same GPUs of the same nodes, and the same ones go on waiting; nothing is written."""
    async with serving(tmp_path, *FLEET) as extender:
        for name, gpus, affinity in WAITING:
            await extender.create(name, gpus, {keys.REQUIRED_AFFINITY: affinity} if affinity else None)
        before = (await extender.api.call("GET", "/api/v1/pods")).ok()["items"]
        there = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        taken = await asyncio.to_thread(invoke, "snapshot", str(tmp_path / "before"), *there)
        await asyncio.to_thread(invoke, "replay", *there)
        assert (await extender.api.call("GET", "/api/v1/pods")).ok()["items"] == before
        scheduler = SchedulerLoop(extender.api, extender.session, extender.url)
        really = {pod["metadata"]["name"]: await scheduler.schedule(pod) for pod in before}
    assert taken.exit_code == 0
    told = await asyncio.to_thread(invoke, "replay", "-o", "json", "--snapshot", str(tmp_path / "before"))
    assert told.exit_code == 1, "one pod finds no node"
    replayed = {step["pod"]["name"]: step for step in json.loads(told.stdout)["steps"]}
    placed = {name: outcome for name, outcome in really.items() if isinstance(outcome, BoundPod)}
    assert {name: step["pod"]["node"] for name, step in replayed.items()} == {
        name: placed[name].node if name in placed else None for name, _, _ in WAITING
    }
    assert {name: replayed[name]["pod"]["containers"] for name in placed} == {
        name: {container: list(gpus) for container, gpus in outcome.record.containers.items()}
        for name, outcome in placed.items()
    }
    assert all(replayed[name]["reason"] for name in replayed.keys() - placed.keys())


async def test_replay_begins_with_the_most_important_pod(tmp_path: Path) -> None:
    """As kube-scheduler's queue does: by priority, then by age; pods that are gated are not in it."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        for name, priority, gates in (
            ("early", 0, []),
            ("late", 0, []),
            ("high", 9, []),
            ("gated", 9, [{"name": "g"}]),
        ):
            pod = gpu_pod(name, 2, {}, schedulerName="gputopo")
            pod["spec"] |= {"priority": priority, "schedulingGates": gates}
            (await api.call("POST", PODS, pod)).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        told = await asyncio.to_thread(invoke, "replay", "-o", "json", "--kubeconfig", str(tmp_path / "kubeconfig"))
    steps = json.loads(told.stdout)["steps"]
    assert [(step["pod"]["name"], step["pod"]["node"]) for step in steps] == [
        ("high", "n1"),
        ("early", "n1"),
        ("late", None),
    ]
