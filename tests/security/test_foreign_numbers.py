"""Any number in any field of what a node or a pod publishes: lists of all nodes and pods go on showing all others."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import extender.inspect.drift
import extender.inspect.fragmentation
import extender.inspect.inspection
import extender.inspect.status
import extender.inspect.waiting
from agent.node.publish import Publication
from benchmarks.processes.client import MERGE_PATCH
from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.drift import drift
from extender.inspect.fragmentation import fragmentation
from extender.inspect.inspection import NOT_SHOWN, NodeList
from extender.inspect.places import places
from extender.inspect.status import status
from extender.inspect.waiting import waiting_pods
from extender.inspect.why import why
from extender.kubectl.cli import app
from extender.kubectl.form import Form, Output
from extender.kubectl.output import print_drift, print_fragmentation, print_node, print_nodes, print_status
from extender.telemetry.gauges import gauges_of
from extender.verbs.filter_prioritize import filter_nodes
from extender.web import pages
from tests.extender.builders import args, at, claim, cluster, gpus, node, pod
from tests.extender.polling import eventually
from tests.extender.serving import serving
from tests.extender.web.test_views import FIGURES
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.overrides import decode_overrides
from topology.annotations.payload import LAST_SECOND
from topology.annotations.records import Holder, Ledger, Observed, Sharer, encode_ledger, encode_observed
from topology.annotations.status_codec import decode_status, encode_status
from topology.effort import finish
from topology.errors import PayloadError
from topology.formats.catalog import machine
from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager
from topology.node.offers import OfferForm, ResourceOffer
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, LinkFault, Mode, NodeGpuStatus, Outlook
from topology.request.words import duration

GPUS = gpus("bad", *range(8))
STATUS = NodeGpuStatus(
    3,
    (
        GpuStatus(GPUS[0], False, ("xid 79",), 3, None, 100, Outlook("it opens by itself", 200, "reset it")),
        *(GpuStatus(gpu, memory_used_gib=1, share_gib=70, beyond_shares_gib=1) for gpu in GPUS[1:]),
    ),
    (LinkFault(GPUS[1], 1, "down", 100, 200),),
    device_plugin=DevicePluginStatus(
        Mode.ENFORCE,
        True,
        topology_manager=TopologyManager(Policy.RESTRICTED, Scope.POD, (NumaCpus(0, 64, 32),)),
        sharing=Sharing(4, Limits.NONE),
    ),
)
OFFERED = NodeGpuStatus(
    3, tuple(GpuStatus(gpu, offers=(ResourceOffer("nvidia.com/gpu", OfferForm.SHARED, 4),)) for gpu in GPUS)
)
HOLDER = ("ml", "held", "main")
PAYLOADS = {
    "topology": encode_topology(machine("dgx-a100", host="bad")),
    "status": encode_status(STATUS),
    "status of another plugin": encode_status(OFFERED),
    "observed": encode_observed(
        Observed({GPUS[2]: Holder(*HOLDER)}, 3, {GPUS[3]: 2}, "7", {GPUS[4]: (Sharer(*HOLDER, parts=2),)})
    ),
    "ledger": encode_ledger(Ledger(2, (claim(GPUS[5], "held"),), "uid-bad")),
}
NUMBERS = (
    0,
    -1,
    1,
    255,
    1023,
    4095,
    2**16,
    2**20,
    2**32 - 1,
    LAST_SECOND,
    LAST_SECOND + 1,
    2**50,
    2**63 - 1,
    2**63,
    10**30,
    1.5,
)


def places_of(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where numbers stand."""
    if isinstance(document, dict | list):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places_of(value, (*path, key))
    elif isinstance(document, int) and not isinstance(document, bool):
        yield path


def kinds_of_places(document: Any) -> list[tuple[Any, ...]]:
    """Return one place of each kind: of all GPUs the first that says something."""
    alike = {
        tuple("*" if isinstance(step, int) or step in GPUS else step for step in path): path
        for path in reversed([*places_of(document)])
    }
    return [*alike.values()]


def exchanged(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at one place."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = exchanged(document[path[0]], path[1:], value)
    return copy


CASES = [
    (name, path) for name, text in PAYLOADS.items() for path in kinds_of_places(json.loads(text)) if path != ("v",)
]


def test_every_kind_of_number_is_tried() -> None:
    """As many as the payloads have; a new one counts by itself."""
    named = {path[-1] for _, path in CASES}
    assert {
        "sick_since",
        "until",
        "since",
        "memory_bytes",
        "numa_node",
        "index",
        "share_gib",
        "parts",
        "total",
    } <= named
    assert len(CASES) >= 25


def look_at_everything(state: ClusterState, *bad: str) -> NodeList:
    """Make every list of nodes and pods and a page of each bad node, and print each in every form; return the list of nodes."""
    gauges_of(state)
    listed = NodeList(nodes=tuple(inspection.nodes(state, list(inspection.node_names(state)), at())))
    placed, waiting = inspection.pod_infos(state, state.pods), waiting_pods(state, state.pods, at(60.0))
    condition, differences, fragments = status(state), drift(state), fragmentation(state)
    details = [inspection.node(state, name, at()) for name in bad]
    "".join(pages.overview(FIGURES, finish(places(state)), listed.nodes, placed, waiting))
    for detail in details:
        assert detail is not None
        "".join(pages.node_page(detail, placed))
    with redirect_stdout(io.StringIO()):
        for form in map(Form, Output):
            print_nodes(listed, form)
            for detail in details:
                assert detail is not None
                print_node(detail, form)
            print_status(condition, form)
            print_drift(differences, form)
            print_fragmentation(fragments, form)
    return listed


@pytest.mark.parametrize(
    ("name", "path"), CASES, ids=lambda each: each if isinstance(each, str) else "/".join(map(str, each))
)
def test_no_number_of_a_node_hides_another(name: str, path: tuple[Any, ...]) -> None:
    """The other node is shown with all of its GPUs, and takes the pod; what is beyond its meaning closes its own node."""
    bad = [f"bad-{number}" for number in range(len(NUMBERS))]
    objects = [each for host, number in zip(bad, NUMBERS, strict=True) for each in bad_node(host, name, path, number)]
    state = cluster(*objects, node("good"), pod("waits", 4))
    shown = {each.name: each for each in look_at_everything(state, *bad).nodes}
    assert shown["good"].free == 8
    assert [host for host in bad if shown[host].closed == NOT_SHOWN] == []
    assert "good" in filter_nodes(state, args(pod("asked", 4), "good", *bad), at()).node_names


def bad_node(host: str, name: str, path: tuple[Any, ...], number: float) -> tuple[Node, Pod]:
    """Return a node that publishes such a number at one place, and the pod that it says it holds."""
    texts: dict[str, Any] = {key: PAYLOADS[key] for key in ("status", "observed", "ledger")}
    texts[name.partition(" ")[0]] = json.dumps(exchanged(json.loads(PAYLOADS[name]), path, number))
    own = dict(zip(GPUS, gpus(host, *range(8)), strict=True)) | {
        '"uid-bad"': f'"uid-{host}"',
        '"held"': f'"held-{host}"',
    }
    for before, after in own.items():
        texts = {key: text.replace(before, after) for key, text in texts.items()}
    held = pod(f"held-{host}", 1, on=host, placed=(own[GPUS[5]],), phase="Running")
    return node(host, **texts), held


WORDS = (
    "",
    "0",
    "-1",
    "1.5",
    "9" * 9,
    "9" * 5000,
    "1e999",
    "nan",
    "999999999s",
    "999999h999999m999999999s",
    "9" * 15 + "T",
    "٣",
)


@pytest.mark.parametrize(
    "key",
    sorted(value for name, value in vars(keys).items() if name.isupper() and str(value).startswith(keys.USER_PREFIX)),
)
def test_no_annotation_of_a_pod_hides_another(key: str) -> None:
    """Nor does its record, its CPU, its priority or its age."""
    odd: dict[str, Any] = {"cpu": "1e99", "priority": 2**62, "created": "0001-01-01T00:00:00+23:59"}
    bad = [pod(f"bad-{number}", 2, wants={key: text}, **odd) for number, text in enumerate(WORDS)]
    state = cluster(node("bad"), node("good"), *bad, pod("good", 1))
    look_at_everything(state, "bad")
    assert {each.name for each in inspection.pod_infos(state, state.pods)} >= {"good"}
    for each in bad:
        why(state, "ml", each.metadata.name, at(), limit=10)
        inspection.explain(state, "ml", each.metadata.name, at())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function"),
    [
        (extender.inspect.inspection, "_node"),
        (extender.inspect.status, "_wrong_with"),
        (extender.inspect.drift, "_differences"),
        (extender.inspect.fragmentation, "_in_the_way"),
    ],
)
def test_a_node_that_cannot_be_shown_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, module: Any, function: str
) -> None:
    """Whatever is wrong with our own code for it: each row is made by itself."""
    real = getattr(module, function)

    def broken(*given: Any) -> Any:
        if any(getattr(each, "name", "") == "bad" for each in given):
            raise OverflowError("date value out of range")
        return real(*given)

    monkeypatch.setattr(module, function, broken)
    stranger = pod("stranger", 1, on="good", phase="Running")
    state = cluster(
        node("bad"), node("good", held={gpus("good", 0)[0]: "stranger"}), node("sick", sick=gpus("sick", 0)), stranger
    )
    listed = list(inspection.nodes(state, ["bad", "good"], at()))
    assert [(each.name, each.free) for each in listed] == [("bad", 0 if function == "_node" else 8), ("good", 7)]
    assert (listed[0].closed == NOT_SHOWN) == (function == "_node")
    assert any("sick" in finding.nodes for finding in status(state).findings)
    assert any("bad" in finding.nodes for finding in status(state).findings) == (function == "_wrong_with")
    assert [each.name for each in drift(state).differences] == ["stranger"]
    assert fragmentation(state).sizes[0].now == 22


@pytest.mark.parametrize(
    ("module", "function"), [(extender.inspect.inspection, "pod_info"), (extender.inspect.waiting, "waiting_pod")]
)
def test_a_pod_that_cannot_be_shown_hides_no_other(monkeypatch: pytest.MonkeyPatch, module: Any, function: str) -> None:
    """It is left out."""
    real = getattr(module, function)

    def broken(state: ClusterState, found: Any, *given: Any) -> Any:
        if found.key[1] == "bad":
            raise OverflowError("date value out of range")
        return real(state, found, *given)

    monkeypatch.setattr(module, function, broken)
    state = cluster(node("good"), pod("bad", 1), pod("good", 1))
    made: dict[str, list[Any]] = {
        "pod_info": inspection.pod_infos(state, state.pods),
        "waiting_pod": waiting_pods(state, state.pods, at()),
    }
    assert len(made[function]) == 1


@pytest.mark.slow
async def test_one_status_from_the_far_future_is_its_own_nodes_trouble(tmp_path: Path) -> None:
    """Pages, JSON and the plugin go on showing all nodes; that one is closed, and says why."""
    nodes = (SimulatedNode("n1", "l40s-8"), SimulatedNode("n2", "l40s-8"))
    async with serving(tmp_path, *nodes) as extender:
        annotations = (await extender.api.call("GET", "/api/v1/nodes/n1")).ok()["metadata"]["annotations"]
        uuid = json.loads(annotations[keys.TOPOLOGY])["gpus"][0]["uuid"]
        forged = json.loads(annotations[keys.STATUS])
        outlook = {"next": "x", "until": 2**63 - 1}
        forged["gpus"][uuid] = {"healthy": False, "reasons": ["x"], "sick_since": 2**63 - 1, "outlook": outlook}
        body = {"metadata": {"annotations": {keys.STATUS: json.dumps(forged)}}}
        (await extender.api.call("PATCH", "/api/v1/nodes/n1", body, content_type=MERGE_PATCH)).ok()

        async def is_closed() -> bool:
            answer = json.loads((await extender.get("/v1/inspect/nodes"))[1])
            return [each["closed"] for each in answer["nodes"]] == ["GPU status cannot be read", None]

        await eventually(is_closed)
        for path in (
            "/",
            "/nodes/n1",
            "/nodes/n2",
            "/v1/inspect/nodes/n1",
            "/v1/inspect/nodes/n2",
            "/metrics",
            "/readyz",
        ):
            assert (await extender.get(path))[0] == 200


def test_times_end_with_the_calendar() -> None:
    """The last second of the year 9999 is one, the next is none; so it is with what people say."""
    for document, decode in (
        ('{"v":1,"generation":1,"gpus":{"GPU-a":{"healthy":false,"sick_since":%d}}}', decode_status),
        ('{"v":1,"gpus":{"GPU-a":{"is":"cordoned","until":%d}}}', decode_overrides),
    ):
        decode(document % LAST_SECOND)
        with pytest.raises(PayloadError):
            decode(document % (LAST_SECOND + 1))


def test_the_longest_duration_is_a_century_or_two() -> None:
    """However many digits it has."""
    assert duration("key", "999999h999999m999999999s") < 200 * 366 * 86_400


def test_an_agent_goes_on_from_any_generation() -> None:
    """At the end of the numbers, where only somebody else can have put it, it begins anew."""
    publication = Publication(lambda: 0.5, 300.0)
    publication.learned({keys.STATUS: encode_status(NodeGpuStatus(2**63 - 1))}, 0.0)
    patch = publication.patch(publication.last_discovery(), 400.0)
    assert patch is not None and decode_status(patch.annotations[keys.STATUS]).generation == 1


@pytest.mark.parametrize("hours", ["nan", "inf", "1e300", "-1"])
def test_nobody_can_cordon_a_gpu_beyond_the_calendar(hours: str) -> None:
    """It is bad usage, before anything is asked."""
    assert CliRunner().invoke(app, ["cordon-gpu", "n1", "0", "--hours", hours]).exit_code == 2
