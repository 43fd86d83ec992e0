"""Which report decides about a pod that is gone: a later one, unless its agent counts anew or a namesake begins to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from extender.cluster.caches.node_cache import KnownNode
from extender.cluster.objects.gpu_pods import GpuPod, read_gpu_pod
from extender.cluster.ownership.later_reports import LaterReports
from tests.extender.builders import claim, cluster, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, encode_observed

(GPU, OTHER) = gpus("n1", 0, 1)
CLAIM = claim(GPU, "gone")


def known(writes: int, *held: str, by: str = "gone", version: int = 10, **more: Any) -> KnownNode:
    """Return the node with its agent's so manieth report, which shows these GPUs held under that name."""
    found = cluster(node(reports=writes, held=dict.fromkeys(held, by), version=version, **more)).nodes.get("n1")
    assert found
    return found


def blind(writes: int) -> KnownNode:
    """Return the node with a report of an agent that does not look at containers."""
    return known(writes, observed=None)


def looked(writes: int, at_version: str) -> KnownNode:
    """Return the node with a report that names a version of the node, and shows nothing held."""
    return known(writes, observed=encode_observed(Observed({}, node_version=at_version)), version=20)


@dataclass
class Running:
    """Who runs under the claim's name."""

    uid: str | None = None
    asked: list[tuple[tuple[str, str], str]] = field(default_factory=list)

    def __call__(self, key: tuple[str, str], name: str) -> str | None:
        self.asked.append((key, name))
        return self.uid


def namesake(uid: str) -> GpuPod:
    found = read_gpu_pod(pod("gone", uid=uid, on="n1", phase="Running"))
    assert found
    return found


@pytest.mark.parametrize(
    ("before", "after", "is_free"),
    [
        (known(5), known(5), False),
        (known(5), known(6), False),
        (known(5), known(7), True),
        (known(5), known(7, GPU), False),
        (known(5), known(7, GPU, by="somebody"), False),
        (known(5), known(7, OTHER), True),
        (known(5, GPU), known(6), True),
        (known(5, GPU, by="somebody"), known(6), False),
        (known(5), looked(6, "10"), False),
        (known(5), looked(6, "11"), True),
        (known(5), looked(6, ""), False),
        (blind(5), blind(5), False),
        (blind(5), blind(6), True),
        (known(5), blind(5), False),
        (known(5), blind(6), True),
        (blind(5), known(6), False),
        (blind(5), known(7), True),
    ],
)
def test_a_report_shows_a_gpu_free_if_it_is_certainly_of_a_later_look(
    before: KnownNode, after: KnownNode, is_free: bool
) -> None:
    """It shows the end of what the baseline shows, or names a later version, or is the second after it."""
    later_reports = LaterReports(Running())
    assert not later_reports.shows_free(after, CLAIM)
    later_reports.put(before, CLAIM)
    assert later_reports.shows_free(after, CLAIM) is is_free
    later_reports.drop("n1", "gone")
    assert not later_reports.shows_free(after, CLAIM)


@pytest.mark.parametrize(
    ("then", "now", "writes", "serves"),
    [
        (None, None, 5, True),
        (None, None, 6, True),
        (None, None, 4, False),
        ("q", "q", 5, True),
        ("q", None, 5, True),
        (None, "q", 5, False),
        ("q", "r", 5, False),
    ],
)
def test_a_baseline_serves_until_its_agent_counts_anew_or_a_namesake_begins_to_run(
    then: str | None, now: str | None, writes: int, serves: bool
) -> None:
    """One that has ended since does not matter."""
    running = Running(then)
    later_reports = LaterReports(running)
    assert not later_reports.serves(known(5), CLAIM)
    later_reports.put(known(5), CLAIM)
    running.uid = now
    assert later_reports.serves(known(writes), CLAIM) is serves
    assert set(running.asked) == {(("ml", "gone"), "n1")}


@pytest.mark.parametrize(("asked", "is_asked"), [(None, False), ("9", False), ("10", True), ("11", True), ("x", False)])
def test_an_agent_is_asked_if_the_question_is_not_older_than_the_baseline(asked: str | None, is_asked: bool) -> None:
    """Whoever has put it there."""
    later_reports = LaterReports(Running())
    found = known(5)
    annotations = dict(found.node.metadata.annotations or {}) | ({keys.LOOK: asked} if asked else {})
    assert found.node.metadata.annotations is not None
    found.node.metadata.annotations.clear()
    found.node.metadata.annotations.update(annotations)
    assert not later_reports.is_asked(found, CLAIM)
    later_reports.put(found, CLAIM)
    assert later_reports.is_asked(found, CLAIM) is is_asked
    later_reports.put(known(6), CLAIM)
    assert not later_reports.is_asked(found, CLAIM)


@pytest.mark.parametrize(
    ("then", "now", "after", "has_replaced"),
    [
        ("new", "new", known(7), True),
        ("new", "new", known(6), False),
        ("new", "new", blind(7), True),
        ("new", "new", looked(6, "11"), True),
        (None, "new", known(7), False),
        ("new", None, known(7), False),
        ("other", "new", known(7), False),
        ("new", "other", known(7), False),
    ],
)
def test_a_namesake_has_replaced_a_pod_if_it_ran_before_the_look_and_still_does(
    then: str | None, now: str | None, after: KnownNode, has_replaced: bool
) -> None:
    """Else what is seen under the name may be the other one's."""
    running = Running(then)
    later_reports = LaterReports(running)
    assert not later_reports.has_replaced(after, namesake("new"), CLAIM)
    later_reports.put(known(5), CLAIM)
    running.uid = now
    assert later_reports.has_replaced(after, namesake("new"), CLAIM) is has_replaced


def test_what_an_agent_saw_is_about_the_claims_pod_by_name() -> None:
    """Of another namespace is another one."""
    for holder, shows in ((("ml", "gone"), True), (("other", "gone"), False), (("ml", "other"), False)):
        found = known(5, observed=encode_observed(Observed({GPU: Holder(*holder, "main")})))
        assert found.report.shows(CLAIM) is shows
    assert not blind(5).report.shows(CLAIM)
