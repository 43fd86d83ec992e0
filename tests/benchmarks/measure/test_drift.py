"""What was seen on the links of pods is held against what was predicted, and only more than that is a finding."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.cli import app
from benchmarks.measure.drift import DriftVerdict, UnreadableRates, compare, read_rates
from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from tests.extender.builders import PAIRS, claim, cluster, gpus, node, running
from tests.invoking import call
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, PlacementRecord, encode_ledger, encode_placement
from topology.bandwidth.predict import Bandwidth
from topology.node.links import Affinity

PREDICTED = Bandwidth(75.0, 90.0, 96.0)


def record(*uuids: str, affinity: Affinity = Affinity.NVLINK) -> str:
    return encode_placement(PlacementRecord({"main": uuids}, affinity, PREDICTED))


def answer(rates: dict[str, float], label: str = "uuid") -> bytes:
    series = [{"metric": {label: uuid}, "value": [1.5e9, str(rate)]} for uuid, rate in rates.items()]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()


@pytest.mark.parametrize(
    ("sent", "finding"),
    [((97e9, 98e9), DriftVerdict.MORE), ((97e9, 80e9), DriftVerdict.REACHED), ((97e9, 1e9), DriftVerdict.NONE)],
)
def test_only_more_than_predicted_is_a_finding(sent: tuple[float, float], finding: DriftVerdict) -> None:
    """All GPUs of the pod have to have sent so much; a job that hardly communicates proves nothing."""
    pair = gpus("n1", 0, 1, machine_name=PAIRS)
    held = running("p1", "n1", *pair)
    held.metadata.annotations[keys.PLACEMENT] = record(*pair)  # type: ignore[index]
    state = cluster(node("n1", PAIRS, claims=tuple(claim(gpu, "p1") for gpu in pair)), held)
    (seen,) = compare(state.views.values(), read_rates(answer(dict(zip(pair, sent, strict=True)))))

    assert (seen.pod, seen.node, seen.seen_gb_per_s, seen.finding) == ("ml/p1", "n1", min(sent) / 1e9, finding)


def test_pods_of_which_nothing_can_be_said_are_left_out() -> None:
    """Over PCIe no NVLink is used; other GPUs than planned have no prediction; and a GPU without a series is not seen."""
    places = ((0, 2), (4, 5), (6, 7), (1, 3))
    pair, other, third, free = (gpus("n1", *each, machine_name=PAIRS) for each in places)
    pods = []
    for name, held, said in (
        ("pcie", pair, record(*pair, affinity=Affinity.NUMA_NODE)),
        ("moved", other, record(*free)),
        ("dark", third, record(*third)),
    ):
        found = running(name, "n1", *held)
        found.metadata.annotations[keys.PLACEMENT] = said  # type: ignore[index]
        pods.append((name, held, found))
    claims = tuple(claim(gpu, name) for name, held, _ in pods for gpu in held)
    observed = {gpu: name for name, held, _ in pods for gpu in held}
    state = cluster(node("n1", PAIRS, claims=claims, held=observed), *(found for *_, found in pods))

    assert compare(state.views.values(), dict.fromkeys((*pair, *other, *free, third[0]), 1e12)) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no answer of Prometheus"),
        (b"# HELP x y\nx 1\n", "no answer of Prometheus"),
        (b'{"data": {"resultType": "matrix", "result": []}}', "a matrix, and no instant vector"),
        (answer({"a": 1.0}, label="gpu"), "without a label uuid"),
    ],
)
def test_what_is_no_answer_of_prometheus_is_refused(text: bytes, reason: str) -> None:
    """With what it is instead."""
    with pytest.raises(UnreadableRates, match=reason):
        read_rates(text)


def test_several_series_of_one_gpu_are_one_and_what_is_no_number_is_none() -> None:
    """An agent that was restarted leaves two; DCGM's label is read too."""
    series = [{"metric": {"UUID": "a", "pod": str(n)}, "value": [1, rate]} for n, rate in enumerate(("5", "7", "NaN"))]
    found = read_rates(json.dumps({"data": {"resultType": "vector", "result": series}}).encode())
    assert found == {"a": 7.0}


@pytest.mark.slow
async def test_the_command_reads_a_cluster_and_a_file(tmp_path: Path) -> None:
    """Exit 1 is a finding; a file that cannot be read is wrong usage."""
    one = SimulatedNode("n1", "a100-pcie-8-pairs")
    pair = tuple(gpu.uuid for gpu in one.topology.gpus[:2])
    pods = "/api/v1/namespaces/default/pods"
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [one])
        made = (await api.call("POST", pods, gpu_pod("p1", 2, schedulerName="nobody"))).ok()["metadata"]
        claims = tuple(Claim(gpu, made["uid"], "default", "p1", "main", made["resourceVersion"]) for gpu in pair)
        ledger = {"metadata": {"annotations": {keys.LEDGER: encode_ledger(Ledger(1, claims))}}}
        await api.call("PATCH", "/api/v1/nodes/n1", ledger, content_type="application/merge-patch+json")
        bound = {"metadata": {"name": "p1", "annotations": {keys.PLACEMENT: record(*pair)}}, "target": {"name": "n1"}}
        (await api.call("POST", f"{pods}/p1/binding", bound)).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        file, here = tmp_path / "rates.json", ("--kubeconfig", str(tmp_path / "kubeconfig"))
        file.write_bytes(answer(dict.fromkeys(pair, 97e9)))
        more = await asyncio.to_thread(call, app, "drift", str(file), "-o", "json", *here)
        file.write_bytes(answer(dict.fromkeys(pair, 80e9)))
        within = await asyncio.to_thread(call, app, "drift", str(file), *here)

    assert (more.returncode, json.loads(more.stdout)["rows"][0]["finding"]) == (1, "more than predicted")
    assert within.returncode == 0
    assert within.stdout.splitlines()[1].split() == [
        "default/p1",
        "n1",
        "2",
        "80.0",
        "90",
        "(75",
        "to",
        "96)",
        "reached",
    ]
    assert call(app, "drift", "absent.json").returncode == 2
