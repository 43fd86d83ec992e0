"""A pod that names a scheduler which does not ask gputopo is told so first, wherever people ask about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object
from extender.cluster.objects.gpu_pods import ClaimedRequest
from extender.cluster.objects.kinds import Container, Pod, PodClaim, PodSpec
from extender.cluster.state import ClusterState
from extender.inspect.other_schedulers import scheduler_problem
from extender.inspect.status import status
from extender.inspect.waiting import waiting_pod
from extender.telemetry.gauges import gauges_of
from extender.web import pages
from tests.extender.builders import at, cluster, gpus, node, pod, running
from tests.extender.plugin import invoke
from topology.annotations import keys

FORGOT = "default/forgot: spec.schedulerName is default-scheduler, a scheduler that does not ask gputopo; "
REMEDY = "create the pod with spec.schedulerName: gputopo"


def by(scheduler: str | None, asked: Pod) -> Pod:
    """Return a pod as one that this scheduler is for."""
    return replace(asked, spec=replace(asked.spec, scheduler_name=scheduler))


def snapshot(folder: Path, *pods: dict[str, Any]) -> tuple[str, str]:
    """Return the option for a file with one empty node and these pods."""
    items = [{"kind": "Node", **node_object(SimulatedNode("n1", "dgx-a100"))}, *pods]
    (folder / "cluster").write_text(json.dumps({"items": items}))
    return "--snapshot", str(folder / "cluster")


def waits(name: str, scheduler: str = "default-scheduler", **spec: object) -> dict[str, Any]:
    """Return a pod of two GPUs."""
    made = gpu_pod(name, 2, {}, schedulerName=scheduler, **spec)
    metadata = {**made["metadata"], "uid": name, "namespace": "default", "resourceVersion": "1"}
    return {"kind": "Pod", **made, "metadata": metadata}


@pytest.mark.parametrize("verb", ["why", "pod"])
def test_a_pod_that_forgot_the_scheduler_is_a_no_whose_first_line_says_so(tmp_path: Path, verb: str) -> None:
    """Where it could go is told after that."""
    result = invoke(verb, "forgot", *snapshot(tmp_path, waits("forgot")))
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, FORGOT + REMEDY)
    assert "n1" in result.stdout
    assert invoke(verb, "forgot", "-o", "name", *snapshot(tmp_path, waits("forgot"))).exit_code == 1


@pytest.mark.parametrize("verb", ["why", "pod"])
def test_a_pod_of_our_scheduler_is_told_nothing_of_schedulers(tmp_path: Path, verb: str) -> None:
    """Ours are those that are named, by an option or in the environment."""
    result = invoke(verb, "asks", *snapshot(tmp_path, waits("asks", "gputopo")))
    assert (result.exit_code, "scheduler" in result.stdout) == (0, False)
    named = invoke(verb, "asks", "--scheduler-name", "gpus", *snapshot(tmp_path, waits("asks", "gpus")))
    assert (named.exit_code, "scheduler" in named.stdout) == (0, False)


def test_the_names_of_schedulers_may_stand_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an installation under another name, for every call."""
    monkeypatch.setenv("GPUTOPO_SCHEDULER_NAME", "gpus other-gpus")
    assert invoke("why", "asks", *snapshot(tmp_path, waits("asks", "other-gpus"))).exit_code == 0


def test_a_document_says_which_scheduler_is_wrong(tmp_path: Path) -> None:
    """In a field of its own; documents about all other pods are as they were."""
    documents = [
        json.loads(invoke("why", "p", "-o", "json", *snapshot(tmp_path, waits("p", scheduler))).stdout)
        for scheduler in ("default-scheduler", "gputopo")
    ]
    assert ["scheduler_problem" in document for document in documents] == [True, False]


@pytest.mark.parametrize(("spec", "code"), [({}, 1), ({"schedulerName": ""}, 1), ({"schedulerName": "gputopo"}, 0)])
def test_what_if_takes_a_manifest_without_a_scheduler_as_the_api_server_does(
    tmp_path: Path, spec: dict[str, str], code: int
) -> None:
    """It becomes a pod of default-scheduler."""
    containers = [{"name": "main", "resources": {"limits": {keys.GPU_RESOURCE: 2}}}]
    manifest = {"kind": "Pod", "metadata": {"name": "forgot"}, "spec": {"containers": containers, **spec}}
    (tmp_path / "pod.yaml").write_text(json.dumps(manifest))
    result = invoke("what-if", "-f", str(tmp_path / "pod.yaml"), *snapshot(tmp_path))
    assert (result.exit_code, result.stdout.startswith(FORGOT + REMEDY)) == (code, bool(code))


def test_what_if_of_a_number_of_gpus_is_about_one_of_our_pods(tmp_path: Path) -> None:
    """Nobody has written a manifest that could lack a name."""
    assert invoke("what-if", "--gpus", "2", *snapshot(tmp_path)).exit_code == 0


def test_replay_leaves_pods_of_other_schedulers_waiting(tmp_path: Path) -> None:
    """They take no GPUs from ours."""
    pods = waits("forgot", priority=9), waits("asks", "gputopo")
    result = invoke("replay", *snapshot(tmp_path, *pods))
    _, forgot, asks = result.stdout.splitlines()
    assert result.exit_code == 1
    assert forgot.split()[:2] == ["default/forgot", "<none>"]
    assert "spec.schedulerName is default-scheduler" in forgot
    assert asks.split()[:3] == ["default/asks", "n1", "0,1"]


def test_a_pod_whose_claims_a_feature_allocates_may_name_any_scheduler() -> None:
    """It is directed by the allocation, so it races with nobody."""
    state = ClusterState()
    state.claimed.reader = lambda _: ClaimedRequest(None)
    spec = PodSpec(containers=[Container("main")], resource_claims=[PodClaim("gpus")], scheduler_name="volcano")
    waiting = replace(pod("b"), spec=spec)
    bound = replace(pod("a"), spec=replace(spec, node_name="n1"))
    cluster(node("n1"), bound, waiting, into=state)
    assert len(state.pods) == 2
    assert [*state.indexes.schedulers.placed_by_others()] == []
    assert scheduler_problem(state, waiting) is None


def test_status_and_gauge_count_the_pods_that_wait_for_other_schedulers(tmp_path: Path) -> None:
    """Not those that are bound or wait behind a gate, nor those whose scheduler nobody has named."""
    gated = by("volcano", pod("gated"))
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=[{"name": "wait"}]))
    state = cluster(
        node("n1"),
        by("default-scheduler", pod("a")),
        by("volcano", pod("b")),
        by("gputopo", pod("c")),
        by(None, pod("d")),
        by("volcano", running("e", "n1", *gpus("n1", 0))),
        gated,
    )
    told = status(state)
    assert [*state.indexes.schedulers.placed_by_others()] == [("volcano", "n1")]
    assert told.waiting_for_others == gauges_of(state)["pods_waiting_for_other_schedulers"] == 2
    assert "pods with GPUs wait for other schedulers: 2 (ml/a, ml/b)" in [finding.what for finding in told.findings]
    result = invoke("status", *snapshot(tmp_path, waits("forgot"), waits("asks", "gputopo")))
    assert "pods: 2, 2 waiting (1 for other schedulers)" in result.stdout
    assert result.exit_code == 1


def test_where_no_scheduler_is_known_to_ask_nothing_is_said() -> None:
    """An empty setting."""
    asked = by("volcano", pod("a"))
    state = cluster(node("n1"), asked, into=ClusterState(scheduler_names=()))
    assert scheduler_problem(state, asked) is None
    assert status(state).waiting_for_others == 0


def test_the_front_page_counts_and_names_them() -> None:
    """In the row of the pod, too."""
    asked = by("default-scheduler", pod("a"))
    state = cluster(node("n1"), asked)
    [waiting] = state.pods
    page = "".join(pages.overview(gauges_of(state), [], [], [], [waiting_pod(state, waiting, at())]))
    assert "wait for other schedulers, and are never placed here: 1" in page
    assert "spec.schedulerName is default-scheduler" in page


def test_a_name_of_any_length_is_cut() -> None:
    """Nobody else bounds it in a question."""
    problem = scheduler_problem(cluster(node("n1")), by("x" * 10_000, pod("a")))
    assert problem is not None
    assert len(problem) < 500
