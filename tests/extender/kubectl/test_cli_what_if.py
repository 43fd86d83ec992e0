"""`kubectl gputopo what-if` says where a pod could go that nobody has created, and leaves no trace of the question."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.cluster.candidates.holds import Hold
from extender.inspect import inspection
from extender.inspect.what_if import what_if
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import DGX, PAIRS, args, at, cluster, node, pod
from tests.extender.plugin import PODS, invoke, plugin
from tests.extender.serving import Running, serving
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import (
    Claim,
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    decode_ledger,
    decode_observed,
    encode_ledger,
    encode_observed,
    encode_placement,
)

NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}
PATH = "/v1/inspect/what-if"


def test_the_answer_is_that_of_the_same_pod_once_it_exists() -> None:
    """Beside what is held for others; its UID and its node in a copied manifest are not believed."""
    waiting = pod("p1", 4, wants=NVLINK)
    state = cluster(node("n1", PAIRS), node("n2", DGX), node("n3", DGX), waiting)
    state.holds.put("other", Hold("n2", 0b11111, expires=60.0))
    told = inspection.explain(state, "ml", "p1", at())
    asked = what_if(state, pod("p1", 4, wants=NVLINK, on="n1"), at())
    assert told is not None
    assert (asked.fits, asked.refusals) == (told.fits, told.refusals)
    assert [fit.node for fit in asked.fits] == ["n3"]


def test_a_copy_of_a_pod_is_another_pod() -> None:
    """What is held for the one is not the other's, and the other has not waited yet."""
    patient = pod("p1", 4, wants=NVLINK | {keys.RELAX_AFTER: "1s"}, created="1970-01-01T00:00:00Z")
    state = cluster(node("n1"), node("n2"), node("n3", "t4-4"), patient)
    state.holds.put("p1", Hold("n1", 0xFF, expires=60.0))
    told = inspection.explain(state, "ml", "p1", at())
    assert told is not None
    assert {fit.node for fit in told.fits} == {"n1", "n2", "n3"}
    assert [fit.node for fit in what_if(state, patient, at()).fits] == ["n2"]


def test_a_question_leaves_no_trace() -> None:
    """What kube-scheduler is told next is what it would have been told; nothing is held or announced for the question."""
    asked, other = pod("p1", 8), pod("p2", 8)
    plain, questioned = (cluster(node("n1"), node("n2"), asked, other) for _ in range(2))
    for question in (pod("p1", 8), pod("p2", 8), pod("new", 1, wants=NVLINK)):
        what_if(questioned, question, at())
    offered = [questioned.memory.offers.refused(uid, questioned.shapes) for uid in ("", "p1", "p2", "new")]
    assert (len(questioned.holds), len(questioned.memory.setbacks), offered) == (0, 0, [frozenset()] * 4)
    for each in (asked, other):
        call = args(each, "n1", "n2")
        assert filter_nodes(questioned, call, at()) == filter_nodes(plain, call, at())
        assert prioritize_nodes(questioned, call, at()) == prioritize_nodes(plain, call, at())


def test_a_pod_that_asks_for_no_gpu_or_cannot_be_read_is_told_so() -> None:
    """It is not told that it fits everywhere."""
    state = cluster(node())
    none = "it asks for none of nvidia.com/gpu, nvidia.com/mig-… and gputopo.dev/gpu-memory-gib"
    assert what_if(state, pod("p", 0), at()).problem == none
    odd = what_if(state, pod("p", 1, wants={keys.REQUIRED_AFFINITY: "near"}), at())
    assert odd.problem is not None and keys.REQUIRED_AFFINITY in odd.problem


MANIFESTS = {
    "pod": {"kind": "Pod", "metadata": {"name": "train", "annotations": NVLINK}},
    "deployment": {"kind": "Deployment", "metadata": {"name": "train"}},
    "cron": {"kind": "CronJob", "metadata": {"name": "train"}},
    "pytorch": {"kind": "PyTorchJob", "metadata": {"name": "train"}},
    "jobset": {"kind": "JobSet", "metadata": {"name": "train"}},
    "ray": {"kind": "RayJob", "metadata": {"name": "train"}},
}


GROUPED = {"pytorch": ["kubeflow"], "jobset": ["jobset"], "ray": ["ray"]}
"""Kinds whose controller makes a group of their pods, and the name of its program."""


def manifest(kind: str, gpus: int) -> dict[str, Any]:
    """Return a manifest whose pod asks for so many GPUs by NVLink."""
    limits = {"limits": {keys.GPU_RESOURCE: gpus}}
    spec = {"schedulerName": "gputopo", "containers": [{"name": "main", "resources": limits}]}
    template = {"template": {"metadata": {"annotations": NVLINK}, "spec": spec}}
    launcher = {"template": {"spec": {"schedulerName": "gputopo", "containers": [{"name": "launcher"}]}}}
    made = {
        "pod": spec,
        "deployment": template,
        "cron": {"jobTemplate": {"spec": template}},
        "pytorch": {"pytorchReplicaSpecs": {"Master": launcher, "Worker": {"replicas": 2} | template}},
        "jobset": {"replicatedJobs": [{"name": "workers", "template": {"spec": template}}]},
        "ray": {"rayClusterSpec": {"headGroupSpec": launcher, "workerGroupSpecs": [template]}},
    }
    return MANIFESTS[kind] | {"spec": made[kind]}


@pytest.mark.parametrize("kind", MANIFESTS)
async def test_a_manifest_is_asked_about(tmp_path: Path, kind: str) -> None:
    """A pod, or anything with a pod template, in the group that its controller will name; the first pod with GPUs counts."""
    file = tmp_path / "pod.yaml"
    file.write_text('{"kind": "ConfigMap"}\n---\n' + json.dumps(manifest(kind, 4)))
    result = await plugin(tmp_path, "what-if", "-f", str(file))
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head == "default/train: if it were created now (an estimate, no extender was asked)"
    groups = [line for line in lines if line.startswith("group ")]
    assert [group.partition(" says")[0] for group in groups] == [
        f"group train, as {name}" for name in GROUPED.get(kind, ())
    ]
    assert "\nn1 " in result.stdout.partition("\nNODE ")[2]
    assert "no 4 free GPUs share an NVLink ring   n2" in result.stdout


@pytest.mark.parametrize(("gpus", "code", "names"), [("4", 0, ["node/n1"]), ("7", 1, [])])
async def test_a_few_words_are_enough(tmp_path: Path, gpus: str, code: int, names: list[str]) -> None:
    """Exit code 1 says that it would fit nowhere now."""
    result = await plugin(tmp_path, "what-if", "--gpus", gpus, "--required-affinity", "nvlink", "-o", "name")
    assert (result.exit_code, result.stdout.splitlines()) == (code, names)


SHARES = {
    ("4",): [0],
    ("5",): [1],
    ("4", "--sharing-class", "dev"): [1],
    ("40",): None,
    ("4", "--gpu-model", "*h100*"): None,
    ("4", "--required-affinity", "nvlink"): None,
}
"""What may be asked beside 35 of 39 GiB of GPU 0, which a pod without a class has, and the GPU that would be given."""


@pytest.mark.slow
async def test_a_share_of_a_gpu_is_asked_about(tmp_path: Path) -> None:
    """By the extender and from a snapshot alike; nothing is written."""

    async def ask(*words: str) -> Result:
        return await asyncio.to_thread(invoke, *words)

    def told(result: Result) -> list[Any]:
        answer = json.loads(result.stdout)
        assert result.exit_code == (not answer["fits"])
        return [[fit["indexes"] for fit in answer["fits"]], answer["refusals"], answer["problem"]]

    file, here = str(tmp_path / "cluster.json"), ("--kubeconfig", str(tmp_path / "kubeconfig"))
    questions = [("what-if", "-o", "json", "--gpu-memory-gib", *each) for each in SHARES]
    async with serving(tmp_path, SimulatedNode("n1", "dgx-a100", shared_gpus=2, shared_gib=35)) as extender:
        before = (await extender.api.call("GET", "/api/v1/nodes/n1")).ok()
        answers = [told(await ask(*each, *here, "--extender", extender.url)) for each in questions]
        await ask("snapshot", file, *here)
        after = (await extender.api.call("GET", "/api/v1/nodes/n1")).ok()
        pods = (await extender.api.call("GET", "/api/v1/pods")).ok()["items"]
    assert [fits for fits, _, _ in answers] == [[] if each is None else [each] for each in SHARES.values()]
    assert [told(await ask(*each, "--snapshot", file)) for each in questions] == answers
    assert (before["metadata"], len(pods)) == (after["metadata"], 1)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--gpus", "0"),
        ("-f", "/nowhere", "--gpus", "1"),
        ("-f", "/nowhere"),
        ("-f", "EMPTY"),
        ("-f", "LIST"),
        ("-f", "BROKEN"),
        ("-f", "EMPTY", "--required-affinity", "nvlink"),
        ("--gpu-memory-gib", "0"),
        ("--gpu-memory-gib", "1", "--gpus", "1"),
        ("-f", "EMPTY", "--gpu-memory-gib", "1"),
        ("-f", "EMPTY", "--sharing-class", "dev"),
        ("--gpus", "1", "--sharing-class", "dev"),
    ],
)
def test_what_is_no_question_is_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2, one reason, and no cluster is asked."""
    for name, text in (("EMPTY", "kind: ConfigMap"), ("LIST", "[1]"), ("BROKEN", "{")):
        (tmp_path / name).write_text(text)
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    files = [str(tmp_path / word) if word.isupper() else word for word in arguments]
    result = invoke("what-if", *files, "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize("text", ["kind: [Pod", "kind: Pod: Pod", "kind: \x07"])
@pytest.mark.parametrize("place", ["pod.yaml", "-"])
def test_what_is_no_yaml_is_refused_by_file_and_line(tmp_path: Path, text: str, place: str) -> None:
    """One line, which names the file as it was named, and what PyYAML read only as a text has no name."""
    (tmp_path / "pod.yaml").write_text(text)
    file = str(tmp_path / place) if place != "-" else place
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    result = invoke("what-if", "-f", file, "--kubeconfig", str(tmp_path / "kubeconfig"), given=text)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f'in "{"<stdin>" if place == "-" else file}"' in result.stderr


async def asked(extender: Running, body: bytes, **headers: str) -> tuple[int, str]:
    """Ask over HTTP."""
    async with extender.session.post(extender.url + PATH, data=BytesIO(body), headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.slow
async def test_the_extender_answers_and_refuses_what_is_no_pod(tmp_path: Path) -> None:
    """Its own holds count; browsers, broken bodies and endless ones are turned away."""
    async with serving(tmp_path, SimulatedNode("n1", "dgx-a100")) as extender:
        made = await extender.create("first", 2)
        await extender.post("filter", {"Pod": made, "Nodes": None, "NodeNames": ["n1"]})
        write_kubeconfig(tmp_path / "plugin", extender.url)
        there = ("--extender", extender.url, "--kubeconfig", str(tmp_path / "plugin"))
        told = await asyncio.to_thread(invoke, "what-if", "--gpus", "6", "-o", "json", *there)
        seen = await asyncio.to_thread(invoke, "node", "n1", "-o", "json", *there)
        answers = [
            await asked(extender, json.dumps(gpu_pod("p", 1, {})).encode()),
            await asked(extender, b"{"),
            await asked(extender, b"[]"),
            await asked(extender, b" " * (3 << 20)),
            await asked(extender, b"{}", Origin="http://evil"),
        ]
        pods = (await extender.api.call("GET", "/api/v1/pods")).ok()["items"]
    held = {gpu["index"] for gpu in json.loads(seen.stdout)["gpus"] if gpu["state"] == "held"}
    (fit,) = json.loads(told.stdout)["fits"]
    assert (len(held), held & set(fit["indexes"])) == (2, set())
    assert [status for status, _ in answers] == [200, 400, 400, 413, 403]
    assert [found["metadata"]["name"] for found in pods] == ["first"]


async def test_an_extender_that_does_not_know_the_question_is_not_believed(tmp_path: Path) -> None:
    """One of an older version answers 404 or 405; the plugin says so and decides by itself."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--extender", server.url)
        result = await asyncio.to_thread(invoke, "what-if", "--gpus", "1", *here)
    assert result.exit_code == 0
    assert "does not answer: status 4" in result.stderr
    assert "an estimate" in result.stdout


@pytest.mark.slow
async def test_pods_can_be_thought_away(tmp_path: Path) -> None:
    """Their GPUs count as free, those of others do not; and nothing is written."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        await bound(api, "one", 0, 1)
        await bound(api, "two", 2)
        write_kubeconfig(tmp_path / "kubeconfig", server.url)

        async def fits(gpus: int, *arguments: str) -> int:
            words = ("what-if", "--gpus", str(gpus), *arguments, "--kubeconfig", str(tmp_path / "kubeconfig"))
            return (await asyncio.to_thread(invoke, *words)).exit_code

        before = (await api.call("GET", "/api/v1/nodes/n1")).ok()
        assert [await fits(gpus) for gpus in (1, 2)] == [0, 1]
        assert [await fits(gpus, "--evict", "one") for gpus in (3, 4)] == [0, 1]
        assert await fits(4, "--evict", "one", "--evict", "default/two") == 0
        assert await fits(1, "--evict", "three") == 2
        assert (await api.call("GET", "/api/v1/nodes/n1")).ok() == before


async def bound(api: ApiClient, name: str, *indexes: int) -> None:
    """Have a pod that runs on these GPUs of `n1`, as the ledger, its own record and the kubelet say."""
    found = (await api.call("GET", "/api/v1/nodes/n1")).ok()["metadata"]["annotations"]
    uuids = [decode_topology(found[keys.TOPOLOGY]).gpus[index].uuid for index in indexes]
    placement = encode_placement(PlacementRecord({"main": tuple(uuids)}))
    made = (await api.call("POST", PODS, gpu_pod(name, len(uuids), {keys.PLACEMENT: placement}))).ok()["metadata"]
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
    (await api.call("POST", f"{PODS}/{name}/binding", binding)).ok()
    text, seen = found.get(keys.LEDGER), found.get(keys.OBSERVED)
    ledger = decode_ledger(text) if text else Ledger(0)
    claims = tuple(Claim(uuid, made["uid"], "default", name, "main", made["resourceVersion"]) for uuid in uuids)
    observed = decode_observed(seen) if seen else Observed({})
    holders = {**observed.gpus, **{uuid: Holder("default", name, "main") for uuid in uuids}}
    annotations = {
        keys.LEDGER: encode_ledger(replace(ledger, generation=ledger.generation + 1, claims=(*ledger.claims, *claims))),
        keys.OBSERVED: encode_observed(replace(observed, gpus=holders)),
    }
    body = {"metadata": {"annotations": annotations}}
    (await api.call("PATCH", "/api/v1/nodes/n1", body, content_type="application/merge-patch+json")).ok()
