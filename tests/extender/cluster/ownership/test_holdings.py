"""What each pod of a node holds: by report where that is certainly about it, else by plan, else by claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import pytest

from extender.cluster.objects.gpu_pods import GpuPod, read_gpu_pod
from extender.cluster.objects.kinds import Pod
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.ownership.holdings import Holding, holdings_of
from tests.extender.builders import pod, running
from topology.annotations import keys
from topology.annotations.records import Claim, Holder


@dataclass(frozen=True)
class Told:
    """What is known of a report, without a cluster."""

    is_certain: bool = True
    replaced: frozenset[str] = frozenset()
    """UIDs of pods that a namesake has replaced."""

    def is_about(self, pod: GpuPod, gpus: frozenset[str]) -> bool:
        return self.is_certain

    def has_replaced(self, pod: GpuPod, claim: Claim) -> bool:
        return claim.uid in self.replaced


def claimed(gpu: str, uid: str, name: str = "p") -> Claim:
    return Claim(gpu, uid, "ml", name, "main", "1")


def held(item: Pod, claims: Mapping[str, str], seen: str = "", told: Told = Told(), here: str = "abcdef") -> Holding:
    """Return what a pod holds; claims are GPU → UID, GPUs one letter each, and those of the node are `here`."""
    found = read_gpu_pod(item)
    assert found
    (holding,) = holdings_of(
        [found],
        [claimed(gpu, uid) for gpu, uid in claims.items()],
        {gpu: Holder("ml", "p", "main") for gpu in seen},
        cast("Evidence", told),
        is_here=here.__contains__,
    )
    return holding


def summary(holding: Holding) -> tuple[str, str, bool, int | None]:
    return "".join(sorted(holding.gpus)), "".join(sorted(holding.claimed)), holding.seen, holding.hidden


PLANNED = running("p", "n1", "a", "b")
STRAY = pod("p", 2, on="n1", phase="Running", terminated=False)
OWN = {"a": "p", "b": "p"}


@pytest.mark.parametrize(
    ("item", "claims", "seen", "told", "expected"),
    [
        (PLANNED, OWN, "ab", Told(), ("ab", "ab", True, 0)),
        (PLANNED, OWN, "ab", Told(is_certain=False), ("ab", "ab", False, 0)),
        (PLANNED, OWN, "cd", Told(), ("cd", "ab", True, 0)),
        (PLANNED, OWN, "cd", Told(is_certain=False), ("ab", "ab", False, 0)),
        (PLANNED, OWN, "c", Told(), ("ab", "ab", False, 0)),
        (PLANNED, OWN, "", Told(), ("ab", "ab", False, 0)),
        (PLANNED, {}, "", Told(), ("ab", "", False, 0)),
        (PLANNED, {"c": "p", "d": "p"}, "", Told(), ("ab", "cd", False, 0)),
        (PLANNED, {"c": "p", "d": "p"}, "cd", Told(is_certain=False), ("cd", "cd", False, 0)),
        (STRAY, {}, "", Told(), ("", "", False, 2)),
        (STRAY, {}, "c", Told(), ("c", "", False, 1)),
        (STRAY, {}, "cd", Told(), ("cd", "", True, 0)),
        (STRAY, {}, "cd", Told(is_certain=False), ("cd", "", True, 0)),
        (STRAY, {"c": "p"}, "d", Told(), ("cd", "c", False, 0)),
    ],
)
def test_a_report_counts_if_it_is_whole_and_about_the_pod(
    item: Pod, claims: dict[str, str], seen: str, told: Told, expected: tuple[str, str, bool, int | None]
) -> None:
    """What it names is taken anyway, where nothing was planned."""
    assert summary(held(item, claims, seen, told)) == expected


@pytest.mark.parametrize(
    ("item", "claims", "seen", "hidden"),
    [
        (PLANNED, {}, "", 2),
        (PLANNED, OWN, "", 2),
        (PLANNED, OWN, "ab", 0),
        (PLANNED, OWN, "c", 1),
        (PLANNED, {}, "cd", 0),
        (PLANNED, {"a": "p", "c": "p"}, "", 0),
        (pod("p", 2, on="n1", placed=("a", "c")), {}, "", 0),
    ],
)
def test_a_record_that_names_none_of_the_nodes_gpus_tells_of_none(
    item: Pod, claims: dict[str, str], seen: str, hidden: int
) -> None:
    """Neither do claims: nobody knows which GPUs the pod holds, until a report does. One GPU that was lost is another matter."""
    assert held(item, claims, seen, here="cdef").hidden == hidden


def test_nobody_knows_what_a_pod_hides_that_asks_unreadably() -> None:
    """What is known of it is held all the same."""
    assert summary(held(pod("p", "many", on="n1"), {"a": "p"}, "b")) == ("ab", "a", False, None)


@pytest.mark.parametrize(
    ("claims", "seen", "replaced", "expected"),
    [
        ({"a": "old"}, "ab", set(), "b"),
        ({"a": "old"}, "ab", {"old"}, "ab"),
        ({"a": "old", "b": "older"}, "ab", {"old"}, ""),
        ({"a": "old", "b": "older"}, "ab", {"old", "older"}, "ab"),
        ({"a": "old"}, "abc", {"old"}, "bc"),
    ],
)
def test_what_a_former_pod_of_that_name_has_claims_on_is_not_this_pods(
    claims: dict[str, str], seen: str, replaced: set[str], expected: str
) -> None:
    """Unless all of them are replaced, and the report names exactly as many GPUs as it asks for."""
    told = Told(replaced=frozenset(replaced))
    assert summary(held(STRAY, claims, seen, told))[0] == expected


def test_claims_of_others_on_what_is_seen_do_not_make_it_theirs() -> None:
    """Another name is no namesake: the kubelet gave the GPU to this one."""
    found = read_gpu_pod(STRAY)
    assert found
    others = [claimed("a", "q", name="q")]
    holders = {gpu: Holder("ml", "p", "main") for gpu in "ab"}
    (holding,) = holdings_of([found], others, holders, cast("Evidence", Told()))
    assert set(holding.gpus) == {"a", "b"}


@pytest.mark.parametrize(("phase", "started", "gpus"), [("Pending", None, "ab"), ("Running", False, "cd")])
def test_a_pod_that_takes_no_others_is_not_followed_before_it_runs(phase: str, started: bool | None, gpus: str) -> None:
    """Its node holds it back; once a container has started, facts are facts."""
    wants = {keys.DEVICE_MISMATCH: "refuse"}
    item = pod("p", 2, on="n1", placed=("a", "b"), wants=wants, phase=phase, terminated=started)
    assert "".join(sorted(held(item, OWN, "cd").gpus)) == gpus


def test_stopped_pods_hold_nothing_and_others_come_by_uid() -> None:
    """In an order that does not depend on who was heard of first."""
    pods = [read_gpu_pod(running(name, "n1", "a")) for name in ("q", "p")]
    stopped = read_gpu_pod(pod("o", on="n1", phase="Succeeded", terminated=True))
    assert stopped
    everybody = [*(each for each in pods if each), replace(stopped, stopped=True)]
    assert [holding.pod.uid for holding in holdings_of(everybody, [], {}, cast("Evidence", Told()))] == ["p", "q"]


def test_a_record_is_outdated_if_ledger_and_agent_agree_on_other_gpus() -> None:
    """Both have to say so."""
    assert held(PLANNED, {"c": "p", "d": "p"}, "cd").outdates_record
    assert not held(PLANNED, {"c": "p", "d": "p"}, "cd", Told(is_certain=False)).outdates_record
    assert not held(PLANNED, OWN, "cd").outdates_record
    assert not held(PLANNED, OWN, "ab").outdates_record
