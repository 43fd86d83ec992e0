"""`kubectl gputopo why` answers node by node, and every verb in the forms that kubectl has."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.inspect.fragmentation import Fragmentation, InTheWay, Room
from extender.kubectl.form import COLUMNS, Form, Output
from extender.kubectl.output import print_fragmentation
from tests.extender.plugin import PODS, invoke, plugin
from tests.extender.serving import served
from topology.annotations import keys
from topology.annotations.status_codec import decode_status, encode_status
from topology.node.status import LinkFault, Outlook


async def test_each_node_says_rule_numbers_and_remedy(tmp_path: Path) -> None:
    """The one that fits says which GPUs it would give."""
    result = await plugin(tmp_path, "why", "waits", "-n", "default", "-o", "wide")
    head, n1, n2 = result.stdout.splitlines()[2:]
    assert head.split() == ["NODE", "FITS", "RULE", "NUMBERS", "WHAT-WOULD-HELP", "REASON", "SCORE"]
    assert n1.split()[:5] == ["n1", "yes", "<none>", "GPUs", "2,3,4,5"]
    assert "no 4 free GPUs share an NVLink ring   no two do" in n2
    assert "wait or let it relax   affinity" in n2
    assert result.exit_code == 0


@pytest.mark.slow
async def test_long_texts_are_folded_to_a_hundred_columns(tmp_path: Path) -> None:
    """For people; a table without heads is for programs and has a line for each node."""
    shown = (await plugin(tmp_path, "why", "waits")).stdout.splitlines()
    assert max(map(len, shown)) == COLUMNS
    head, _, _, refused, rest = shown[2:]
    assert refused[head.index("RULE") :].startswith("no 4 free GPUs share an NVLink   no two do")
    assert rest == " " * head.index("RULE") + "ring"
    bare = (await plugin(tmp_path, "why", "waits", "--no-headers")).stdout.splitlines()
    assert "no 4 free GPUs share an NVLink ring   no two do" in bare[-1]


@pytest.mark.slow
async def test_pods_are_listed_with_what_they_request_and_where_they_are(tmp_path: Path) -> None:
    """Of one namespace, or of all."""
    assert (await plugin(tmp_path, "pods", "--no-headers")).stdout.splitlines() == [
        "default   huge          16 GPUs   <none>   <none>   <none>   <none>",
        "default   n1-occupant   2 GPUs    n1       0,1      <none>   <none>",
        "default   odd           1 GPU     <none>   <none>   <none>   <none>",
        "default   waits         4 GPUs    <none>   <none>   <none>   <none>",
    ]
    assert (await plugin(tmp_path, "pods", "-n", "empty")).stdout == "no pod requests GPUs\n"
    assert (await plugin(tmp_path, "pods", "-n", "empty", "-A", "-o", "name")).stdout.split()[-1] == "pod/waits"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("waits",), 0, "n1"),
        (("waits", "--node", "n2"), 1, "no two do"),
        (("waits", "--node", "absent"), 1, "no node absent"),
        (("huge",), 1, "node has fewer than 16 GPUs"),
        (("odd",), 1, "unknown annotation, did you mean gputopo.dev/required-affinity?"),
        (("n1-occupant",), 0, "on n1"),
        (("n1-occupant", "--node", "n2"), 0, "get pod n1-occupant -n default -o json | kubectl gputopo what-if -f -"),
        (("absent",), 1, "no pod default/absent asks for nvidia.com/gpu"),
    ],
)
async def test_a_pod_that_fits_nowhere_is_a_clear_no(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """As is one that is not there; of one node alone the answer is about that."""
    result = await plugin(tmp_path, "why", *arguments, "-n", "default")
    assert result.exit_code == code
    assert said in result.output


@pytest.mark.parametrize("arguments", [(), ("--node", "n1")], ids=["no node", "its node"])
async def test_of_a_placed_pod_nothing_is_missing_on_its_own_node(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Only of another node there is no verdict."""
    result = await plugin(tmp_path, "why", "n1-occupant", *arguments, "-n", "default")
    assert "on n1" in result.output and "no verdict" not in result.output


@pytest.mark.slow
async def test_the_extender_s_own_answer_is_shown_page_by_page(tmp_path: Path) -> None:
    """With 205 nodes, two pages; what it holds for another pod counts, which annotations do not tell."""
    nodes = [SimulatedNode(f"n{number:03}", "t4-4") for number in range(205)]
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, nodes)
        (
            await api.call(
                "POST", PODS, gpu_pod("waits", 4, {keys.REQUIRED_AFFINITY: "nvlink"}, schedulerName="gputopo")
            )
        ).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("-n", "default", "--kubeconfig", str(tmp_path / "kubeconfig"))
        async with served(tmp_path / "kubeconfig") as extender:
            asked = await asyncio.to_thread(
                invoke, "why", "waits", "--extender", extender.url, "--no-headers", "-o", "wide", *here
            )
            absent = await asyncio.to_thread(invoke, "why", "gone", "--extender", extender.url, *here)
    lines, none = asked.stdout.splitlines(), "nvidia.com/gpu, nvidia.com/mig-… or gputopo.dev/gpu-memory-gib"
    assert (asked.stderr, lines[0]) == ("", "default/waits: waits")
    assert [line.split()[0] for line in lines[2:]] == [node.name for node in nodes]
    assert all(line.endswith("affinity   <none>") for line in lines[2:])
    assert (absent.exit_code, absent.stderr) == (1, f"no pod default/gone asks for {none}\n")


VERBS = {
    "nodes": (("nodes",), ["node/n1", "node/n2"]),
    "node": (("node", "n1"), ["node/n1"]),
    "pods": (("pods",), ["pod/huge", "pod/n1-occupant", "pod/odd", "pod/waits"]),
    "pod": (("pod", "waits", "-n", "default"), ["pod/waits"]),
    "why": (("why", "waits", "-n", "default"), ["node/n1"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
async def test_yaml_says_what_json_says_and_name_only_names(tmp_path: Path, verb: str) -> None:
    """One document, or names that kubectl takes."""
    arguments, names = VERBS[verb]
    as_json: Any = json.loads((await plugin(tmp_path, *arguments, "-o", "json")).stdout)
    as_yaml: Any = yaml.safe_load((await plugin(tmp_path, *arguments, "-o", "yaml")).stdout)
    for document in (as_json, as_yaml):
        for pod in (document.get("pod", {}), *document.get("pods", ())):
            pod.pop("uid", None)  # each time another cluster
    assert as_yaml == as_json
    assert (await plugin(tmp_path, *arguments, "-o", "name")).stdout.splitlines() == names


def test_a_pod_that_is_in_the_way_of_several_sizes_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Pods of one name in two namespaces are two."""
    first, second = (InTheWay(namespace=name, name="p", node="n", gpus=1, room=1) for name in "ab")
    both, one = (first, second), (first,)
    sizes = (
        Room(gpus=1, now=0, by_count=0, empty=2, in_the_way=both),
        Room(gpus=2, now=0, by_count=0, empty=1, in_the_way=one),
    )
    print_fragmentation(Fragmentation(sizes=sizes), Form(Output.NAME))
    assert capsys.readouterr().out.split() == ["pod/p", "pod/p"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
async def test_without_heads_the_rows_stay(tmp_path: Path, verb: str) -> None:
    """And wide shows more columns of the same rows, none of them folded."""
    arguments, _ = VERBS[verb]
    if verb == "why":
        arguments = ("why", "huge", "-n", "default")  # its texts are short, so that nothing is folded
    plain = (await plugin(tmp_path, *arguments)).stdout.splitlines()
    bare = (await plugin(tmp_path, *arguments, "--no-headers")).stdout.splitlines()
    wide = (await plugin(tmp_path, *arguments, "-o", "wide")).stdout.splitlines()
    words = {tuple(line.split()) for line in plain}
    assert {tuple(line.split()) for line in bare} < words
    assert len(wide) == len(plain)
    assert sum(map(len, wide)) > sum(map(len, plain))


async def test_an_unusable_gpu_is_shown_with_its_reason(tmp_path: Path) -> None:
    """In the table of the node."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        closed = {"metadata": {"annotations": {keys.LEDGER: "{"}}}
        (await api.call("PATCH", "/api/v1/nodes/n1", closed, content_type="application/merge-patch+json")).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        shown = await asyncio.to_thread(invoke, "node", "n1", "--kubeconfig", str(tmp_path / "kubeconfig"))
    rows = [line for line in shown.stdout.splitlines() if "unusable" in line]
    assert len(rows) == 4
    assert all(row.endswith("GPU ledger cannot be read") for row in rows)


@pytest.mark.slow
async def test_dead_links_and_doubtful_gpus_are_shown(tmp_path: Path) -> None:
    """Which links of which GPU, since when, and when they are used again; and which GPU pods get last."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "dgx-a100")])
        (node,) = (await api.call("GET", "/api/v1/nodes")).ok()["items"]
        before = decode_status(node["metadata"]["annotations"][keys.STATUS])
        uuid = before.gpus[2].uuid
        doubted = replace(before.gpus[2], reasons=("on probation: xid 74",), doubtful=True)
        faults = (
            LinkFault(uuid, 9, "inactive", 1_780_000_000),
            LinkFault(uuid, 11, "inactive", 1_780_000_000),
            LinkFault(uuid, 3, "up again, not yet for long", 1_780_000_000, 1_780_000_300),
        )
        status = replace(before, gpus=(*before.gpus[:2], doubted, *before.gpus[3:]), link_faults=faults)
        told = {"metadata": {"annotations": {keys.STATUS: encode_status(status)}}}
        (await api.call("PATCH", "/api/v1/nodes/n1", told, content_type="application/merge-patch+json")).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        where = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        shown = await asyncio.to_thread(invoke, "node", "n1", *where)
        document = json.loads((await asyncio.to_thread(invoke, "node", "n1", "-o", "json", *where)).stdout)
    lines = [re.split(r" {3,}", line) for line in shown.stdout.splitlines()]
    at = lines.index(["GPU", "NVLINKS", "SINCE", "WHAT", "NEXT", "WHEN"])
    since = "2026-05-28T20:26:40Z"
    assert [line[1:] for line in lines[at + 1 : at + 3]] == [
        ["3", since, "up again, not yet for long", "used again if up until then", "2026-05-28T20:31:40Z"],
        ["9,11", since, "inactive", "used again when up for some minutes", "<none>"],
    ]
    assert [line[-1] for line in lines if "free" in line and line[-1] != "<none>"] == [
        "on probation: xid 74; pods get it last"
    ]
    assert [(fault["links"], fault["until"]) for fault in document["link_faults"]] == [
        ([3], "2026-05-28T20:31:40Z"),
        ([9, 11], None),
    ]
    assert [gpu["uuid"] for gpu in document["gpus"] if gpu["doubtful"]] == [uuid]
    assert {fault["index"] for fault in document["link_faults"]} == {
        gpu["index"] for gpu in document["gpus"] if gpu["doubtful"]
    }


async def test_a_sick_gpu_is_shown_with_what_comes_next(tmp_path: Path) -> None:
    """Since when, what happens if nobody does anything, when, and what a person can do: below the table of the GPUs."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        (node,) = (await api.call("GET", "/api/v1/nodes")).ok()["items"]
        before = decode_status(node["metadata"]["annotations"][keys.STATUS])
        outlook = Outlook("it opens by itself", until=1_780_000_300, remedy="look at it")
        sick = replace(before.gpus[2], healthy=False, reasons=("xid 74",), sick_since=1_780_000_000, outlook=outlook)
        status = encode_status(replace(before, gpus=(*before.gpus[:2], sick, *before.gpus[3:])))
        told = {"metadata": {"annotations": {keys.STATUS: status}}}
        (await api.call("PATCH", "/api/v1/nodes/n1", told, content_type="application/merge-patch+json")).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        where = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        shown = await asyncio.to_thread(invoke, "node", "n1", *where)
        document = await asyncio.to_thread(invoke, "node", "n1", "-o", "json", *where)
    lines = [re.split(r" {3,}", line) for line in shown.stdout.splitlines()]
    at = lines.index(["GPU", "SINCE", "NEXT", "WHEN", "TO-DO"])
    assert lines[at + 1][1:] == ["2026-05-28T20:26:40Z", "it opens by itself", "2026-05-28T20:31:40Z", "look at it"]
    assert lines[at + 2] == [""]
    told_of = [gpu["outlook"] for gpu in json.loads(document.stdout)["gpus"]]
    assert [each is None for each in told_of].count(False) == 1
