"""A pod of a Job moves only if its Job counts no failure, and each Job is read once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.features.moves.job_reads import READ_AT_ONCE, read_jobs
from extender.features.moves.jobs import AGAIN_SECONDS, TO_READ, JobName, Jobs, JobVerdict, KubernetesJob
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.builders import at
from tests.extender.features.moves.site import MoveSite
from tests.extender.features.moves.test_moves import evicted, fragmented, until_begun

IGNORES = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
INDEXED = {"completionMode": "Indexed", "completions": 1, "podFailurePolicy": {"rules": [IGNORES]}}
JOB = JobName("default", "train", "uid")


def on_exit(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": [*values]}}


def on_condition(action: str, kind: str, status: str = "True") -> dict[str, Any]:
    return {"action": action, "onPodConditions": [{"type": kind, "status": status}]}


def on_any_of(action: str, *kinds: str) -> dict[str, Any]:
    return {"action": action, "onPodConditions": [{"type": kind, "status": "True"} for kind in kinds]}


def of_container(rule: dict[str, Any]) -> dict[str, Any]:
    return rule | {"onExitCodes": rule["onExitCodes"] | {"containerName": "main"}}


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([], JobVerdict.COUNTS),
        ([IGNORES], JobVerdict.CONTINUES),
        ([on_exit("Ignore", "In", 143)], JobVerdict.COUNTS),
        ([on_exit("Ignore", "NotIn", 42)], JobVerdict.COUNTS),
        ([on_exit("Ignore", "In", 143), IGNORES], JobVerdict.CONTINUES),
        ([IGNORES, on_exit("FailJob", "In", 137)], JobVerdict.CONTINUES),
        ([on_exit("FailJob", "In", 42), IGNORES], JobVerdict.COUNTS),
        ([on_exit("FailJob", "In", 137), IGNORES], JobVerdict.COUNTS),
        ([on_exit("FailIndex", "In", 143), IGNORES], JobVerdict.COUNTS),
        ([on_exit("Count", "In", 1), IGNORES], JobVerdict.COUNTS),
        ([on_exit("FailJob", "NotIn", 137, 143), IGNORES], JobVerdict.COUNTS),
        ([on_exit("FailJob", "NotIn", *range(1, 256)), IGNORES], JobVerdict.CONTINUES),
        ([on_exit("Ignore", "In", 143), on_exit("FailJob", "In", 1), IGNORES], JobVerdict.COUNTS),
        ([{**on_exit("FailJob", "In", 42), "onPodConditions": []}, IGNORES], JobVerdict.COUNTS),
        ([of_container(on_exit("FailJob", "In", 143)), IGNORES], JobVerdict.COUNTS),
        ([on_condition("FailJob", "ConfigIssue"), IGNORES], JobVerdict.CONTINUES),
        ([on_condition("FailJob", "Ready", "False"), IGNORES], JobVerdict.COUNTS),
        ([on_condition("Ignore", "Ready", "False")], JobVerdict.COUNTS),
        ([on_condition("Count", "DisruptionTarget"), IGNORES], JobVerdict.COUNTS),
        ([on_condition("FailJob", "DisruptionTarget", "False"), IGNORES], JobVerdict.CONTINUES),
        ([on_condition("Ignore", "DisruptionTarget", "False")], JobVerdict.COUNTS),
        ([on_condition("FailIndex", "DisruptionTarget")], JobVerdict.COUNTS),
        ([on_any_of("Ignore", "ConfigIssue", "DisruptionTarget")], JobVerdict.CONTINUES),
        ([on_any_of("FailJob", "ConfigIssue", "DisruptionTarget"), IGNORES], JobVerdict.COUNTS),
    ],
)
def test_only_a_rule_that_ignores_disruptions_lets_a_pod_go_and_no_rule_before_it_may_match(
    rules: list[object], verdict: JobVerdict
) -> None:
    """Its containers may end with any exit code but zero, and it has the condition `DisruptionTarget`."""
    job = msgspec.convert({"spec": {"podFailurePolicy": {"rules": rules}}}, KubernetesJob)
    assert JobVerdict.of(job) is verdict


class Server:
    """Answers each request for a Job alike."""

    def __init__(self, status: int = 200, **metadata: str) -> None:
        self.status, self.paths = status, list[str]()
        self.body = msgspec.json.encode({"metadata": {"uid": "uid"} | metadata, "spec": INDEXED})

    async def send(self, request: Request) -> tuple[int, bytes]:
        self.paths.append(request.path)
        if not self.status:
            raise Unavailable("nobody answers")
        return self.status, self.body


async def test_a_job_is_read_once() -> None:
    """It need not be read again: its policy never changes."""
    jobs, server = Jobs(), Server()
    assert jobs.verdict(JOB, 0.0) is jobs.verdict(JOB, 0.0) is JobVerdict.UNREAD
    assert await read_jobs(server.send, jobs, at(0.0)) == 1
    assert server.paths == ["/apis/batch/v1/namespaces/default/jobs/train"]
    assert jobs.verdict(JOB, 10 * AGAIN_SECONDS) is JobVerdict.CONTINUES
    assert await read_jobs(server.send, jobs, at(0.0)) == 0


@pytest.mark.parametrize(
    "server",
    [Server(0), Server(403), Server(404), Server(uid="of-another-job"), Server(uid=1)],  # type: ignore[arg-type]
    ids=["unavailable", "no-right", "gone", "namesake", "unreadable"],
)
async def test_a_job_that_cannot_be_read_is_read_again_after_a_pause(server: Server) -> None:
    """Its pods stay where they are."""
    jobs = Jobs()
    jobs.verdict(JOB, 0.0)
    await read_jobs(server.send, jobs, at(0.0))
    assert jobs.verdict(JOB, AGAIN_SECONDS - 1.0) is JobVerdict.UNREAD
    assert jobs.to_read(1) == []
    jobs.verdict(JOB, AGAIN_SECONDS)
    assert jobs.to_read(1) == [JOB]


async def test_a_tenant_with_many_jobs_delays_the_jobs_of_no_other_namespace() -> None:
    """What is to be read is bounded, and namespaces take turns."""
    jobs, server = Jobs(), Server()
    for number in range(2 * TO_READ):
        jobs.verdict(JobName("many", f"job-{number}", f"uid-{number}"), 0.0)
    jobs.verdict(JOB, 0.0)
    assert await read_jobs(server.send, jobs, at(0.0), READ_AT_ONCE) == READ_AT_ONCE
    assert jobs.verdict(JOB, 0.0) is JobVerdict.CONTINUES
    assert len(jobs.to_read(2 * TO_READ)) == TO_READ - READ_AT_ONCE


def with_job(spec: dict[str, Any]) -> MoveSite:
    """Return a site where only pods of a Job may move."""
    return fragmented(job=spec, restartPolicy="Never")


async def test_a_pod_of_an_indexed_job_that_ignores_evictions_moves() -> None:
    """Its Job is read once, before the plan."""
    site = with_job(INDEXED)
    await until_begun(site)
    await site.settle()
    assert (evicted(site), site.node_of("waits")) == (["moves-0"], "n0")
    assert site.read == ["/apis/batch/v1/namespaces/default/jobs/moves-0"]


async def test_no_pod_moves_of_a_job_that_counts_evictions() -> None:
    """As without a policy."""
    site = with_job({"backoffLimit": 6})
    for _ in range(5):
        await site.tick()
    assert (evicted(site), site.outcomes["move_plans begun"], len(site.read)) == ([], 0, 1)
