"""The kubectl plugin answers from the annotations alone, in kubectl's manner, with exit codes that scripts can use."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from tests.extender.plugin import PODS, invoke, plugin
from tests.extender.serving import served


async def test_nodes_are_listed_in_columns(tmp_path: Path) -> None:
    """Upper-case heads, left aligned, `<none>` for nothing, and no colour to switch off."""
    result = await plugin(tmp_path, "nodes")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "NAME   MACHINE                     GPUS   FREE   NOTE",
        "n1     8 x NVIDIA A100-SXM4-40GB   8      6      <none>",
        "n2     4 x Tesla T4                4      4      <none>",
    ]


async def test_a_node_is_shown_with_matrix_owners_and_worth(tmp_path: Path) -> None:
    """What nvidia-smi would say, who has what, and what is left."""
    result = await plugin(tmp_path, "node", "n1")
    assert result.exit_code == 0
    assert "GPU0   X      NV12" in result.stdout
    assert "0     claimed   default/n1-occupant   main" in result.stdout
    assert "4         2,3,4,5" in result.stdout


async def test_a_placed_pod_is_a_yes(tmp_path: Path) -> None:
    """It says where, which and how fast."""
    result = await plugin(tmp_path, "pod", "n1-occupant")
    assert result.exit_code == 0
    assert result.stdout.startswith("default/n1-occupant: on n1")


async def test_a_pod_that_could_go_somewhere_is_a_yes(tmp_path: Path) -> None:
    """With the reasons against the other nodes."""
    result = await plugin(tmp_path, "pod", "waits", "-n", "default")
    assert result.exit_code == 0
    assert "default/waits: waits" in result.stdout
    assert "1       no 4 free GPUs share an NVLink ring   n2" in result.stdout


@pytest.mark.parametrize("arguments", [("pod", "huge"), ("pod", "absent"), ("node", "absent")])
async def test_a_clear_no_is_1(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """It fits nowhere, or is not there."""
    assert (await plugin(tmp_path, *arguments)).exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["pod", "why"])
async def test_a_pod_of_another_namespace_is_hinted_at(tmp_path: Path, verb: str) -> None:
    """By the extender and by the annotations alike, and only one of that very name."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        for namespace in ("ml", "dev", "qa"):
            (await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})).ok()
        for namespace, name in (("ml", "train"), ("dev", "train"), ("qa", "train-1")):
            (
                await api.call(
                    "POST", PODS.replace("default", namespace), gpu_pod(name, 1, {}, schedulerName="gputopo")
                )
            ).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        async with served(tmp_path / "kubeconfig") as extender:
            answers = [
                await asyncio.to_thread(invoke, verb, name, *here, *there)
                for name in ("train", "rain")
                for there in ((), ("--extender", extender.url))
            ]
    none = "asks for nvidia.com/gpu, nvidia.com/mig-… or gputopo.dev/gpu-memory-gib"
    assert [(answer.exit_code, answer.stderr) for answer in answers] == [
        *[(1, f"no pod default/train {none}; there is one in dev, ml: say -n dev\n")] * 2,
        *[(1, f"no pod default/rain {none}\n")] * 2,
    ]


@pytest.mark.slow
async def test_a_mistyped_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    """Of nodes and of the namespace's pods, by an extender and by the annotations alike; a name like no other is not."""
    node, pod = "; did you mean dgx-a100-rack2?\n", "; did you mean train?\n"
    questions = {
        ("node", "dgx-a100-rack1"): node,
        ("why", "train", "--node", "dgx-a100-rack1"): node,
        ("pod", "trian"): pod,
        ("why", "trian"): pod,
        ("why", "serve"): " or gputopo.dev/gpu-memory-gib\n",
    }
    of_no_extender = {("top", "dgx-a100-rack1"): node, ("cordon-gpu", "dgx-a100-rack1", "0"): node}
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("dgx-a100-rack2", "dgx-a100"), SimulatedNode("t4", "t4-4")])
        (await api.call("POST", PODS, gpu_pod("train", 1, {}, schedulerName="gputopo"))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        async with served(tmp_path / "kubeconfig") as extender:
            for words, end in (questions | of_no_extender).items():
                for source in ((), ("--extender", extender.url))[: 1 + (words in questions)]:
                    answer = await asyncio.to_thread(invoke, *words, *here, *source)
                    assert (answer.exit_code, answer.stdout) == (1, "")
                    assert answer.stderr.endswith(end), (words, answer.stderr)


@pytest.mark.slow
async def test_json_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    """For every command."""
    for arguments in (("nodes",), ("node", "n1"), ("pod", "waits")):
        document = json.loads((await plugin(tmp_path, *arguments, "-o", "json")).stdout)
        assert document.keys() >= {"nodes": {"nodes"}, "node": {"matrix"}, "pod": {"fits", "refusals"}}[arguments[0]]


@pytest.mark.slow
async def test_a_running_extender_is_asked_where_its_url_is_given(tmp_path: Path) -> None:
    """It knows what it holds: a pod of eight fits beside no hold, and the node's page shows them."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "dgx-a100")])
        first = (await api.call("POST", PODS, gpu_pod("first", 2, {}, schedulerName="gputopo"))).ok()
        (await api.call("POST", PODS, gpu_pod("waits", 7, {}, schedulerName="gputopo"))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        async with served(tmp_path / "kubeconfig") as extender, aiohttp.ClientSession() as session:
            body = {"Pod": first, "Nodes": None, "NodeNames": ["n1"]}
            (await session.post(f"{extender.url}/v1/extender/filter", json=body)).raise_for_status()
            asked = {
                name: await asyncio.to_thread(invoke, *arguments, "--extender", extender.url, *here)
                for name, arguments in {
                    "nodes": ("nodes",),
                    "pods": ("pods", "--no-headers"),
                    "node": ("node", "n1"),
                    "pod": ("pod", "waits", "-n", "default"),
                    "absent": ("node", "n2"),
                }.items()
            }
    assert {name: (result.exit_code, result.stderr) for name, result in asked.items()} == {
        "nodes": (0, ""),
        "pods": (0, ""),
        "node": (0, ""),
        "pod": (0, ""),
        "absent": (1, "no node n2\n"),
    }
    assert "8      6" in asked["nodes"].stdout
    assert [line.split()[1] for line in asked["pods"].stdout.splitlines()] == ["first", "waits"]
    assert asked["node"].stdout.count("held") == 2
    assert asked["pod"].stdout.startswith("default/waits: waits\n")


@pytest.mark.parametrize(
    ("server", "reason"),
    [("https://127.0.0.1:9", "127.0.0.1:9: Connect"), ("https://nobody.invalid:9", "nobody.invalid:9: ")],
)
def test_a_cluster_that_does_not_answer_is_named_with_the_reason(tmp_path: Path, server: str, reason: str) -> None:
    """In words, without what Python calls its objects."""
    write_kubeconfig(tmp_path / "kubeconfig", server)
    result = invoke("nodes", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert result.exit_code == 2
    assert f"cannot read the cluster: cannot connect to {reason}" in result.stderr
    assert "object at" not in result.stderr


@pytest.mark.parametrize("verb", [("nodes",), ("pods",), ("fragmentation",), ("top",), ("drift",), ("replay",)])
async def test_a_cluster_without_gpus_is_a_sentence_and_not_an_empty_table(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    """Heads without rows look like a fault."""
    async with ApiServer(ObjectStore()) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        result = await asyncio.to_thread(invoke, *verb, "--kubeconfig", str(tmp_path / "kubeconfig"))
    (line,) = result.stdout.splitlines()
    assert line[0].islower()
    assert "   " not in line


@pytest.mark.slow
async def test_what_no_extender_was_asked_about_is_called_an_estimate(tmp_path: Path) -> None:
    """Nobody listens there, or it is something else that listens."""
    alone = await plugin(tmp_path, "pod", "waits", "-n", "default")
    assert (alone.stdout.splitlines()[0], alone.stderr) == (
        "default/waits: waits (an estimate, no extender was asked)",
        "",
    )
    for url in ("http://127.0.0.1:9", "file:///etc"):
        result = await plugin(tmp_path, "pod", "waits", "-n", "default", "--extender", url)
        assert result.stdout == alone.stdout
        assert result.stderr.startswith(f"the extender at {url} does not answer: ")


@pytest.mark.parametrize(
    "arguments", [("nodes", "--kubeconfig", "/nowhere/at/all"), ("node",), ("frobnicate",), ("nodes", "-o", "xml")]
)
def test_wrong_usage_and_no_cluster_are_2(arguments: tuple[str, ...]) -> None:
    """The reason is on standard error."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


def kubeconfig(file: Path, **parts: object) -> str:
    """Write a kubeconfig with some of its parts, and return where it is."""
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
    return str(file)


async def test_kubeconfig_is_a_list_as_it_is_for_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what several files say the first counts, the current context too; one that is not there is passed over."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        context = {"cluster": "here", "user": "me"}
        files = [
            kubeconfig(tmp_path / "a", contexts=[{"name": "mine", "context": context}], **{"current-context": "mine"}),
            str(tmp_path / "absent"),
            kubeconfig(tmp_path / "b", clusters=[{"name": "here", "cluster": {"server": server.url}}]),
            kubeconfig(tmp_path / "c", users=[{"name": "me", "user": {}}], **{"current-context": "other"}),
        ]
        monkeypatch.setenv("KUBECONFIG", ":".join(files))
        result = await asyncio.to_thread(invoke, "nodes", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [node["name"] for node in json.loads(result.stdout)["nodes"]] == ["n1"]


async def test_a_pod_is_looked_for_in_the_context_s_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `kubectl get pod` does, unless it is told another one."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        (await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "ml"}})).ok()
        (await api.call("POST", PODS.replace("default", "ml"), gpu_pod("train", 1, {}, schedulerName="gputopo"))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        written = (tmp_path / "kubeconfig").read_text().replace("user: anybody", "user: anybody\n    namespace: ml")
        (tmp_path / "kubeconfig").write_text(written)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        here = await asyncio.to_thread(invoke, "pod", "train")
        elsewhere = await asyncio.to_thread(invoke, "pod", "train", "-n", "default")
    assert here.stdout.startswith("ml/train: waits")
    assert elsewhere.stderr.startswith("no pod default/train asks for nvidia.com/gpu")
    assert elsewhere.stderr.endswith("; there is one in ml: say -n ml\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no kubeconfig: FILE not found, or empty"),
        ("", "no kubeconfig: FILE not found, or empty"),
        ("{", "FILE: while parsing a flow node"),
        ("contexts: [{}]", "FILE: Object missing required field `name` - at `$.contexts[0]`"),
        ("contexts: []", "the kubeconfig has no current context: name one with --context"),
        ("current-context: mine", "no context mine in FILE; there are: none"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said_in_one_line(tmp_path: Path, text: str | None, reason: str) -> None:
    """With the file and the reason, and nothing else."""
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    result = invoke("nodes", "--kubeconfig", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith("cannot read the cluster: " + reason.replace("FILE", str(file)))
    assert len(result.stderr.splitlines()) == 1
