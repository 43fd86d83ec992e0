"""The `podFailurePolicy` of a Job, as a real API server takes, completes and keeps it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from extender.features.moves.jobs import JobVerdict, KubernetesJob
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import Json

JOBS = "/apis/batch/v1/namespaces/default/jobs"
IGNORES: Json = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


@pytest.fixture
def api(cluster: ControlPlane) -> Iterator[Api]:
    """Lend the API server, and remove the Jobs afterwards."""
    yield cluster.admin
    cluster.admin.delete(JOBS, propagationPolicy="Background")


def job(name: str, *rules: Json) -> Json:
    """Return an indexed Job with these rules."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}
    spec = {"completionMode": "Indexed", "completions": 1, "template": template}
    return {"metadata": {"name": name}, "spec": spec | ({"podFailurePolicy": {"rules": [*rules]}} if rules else {})}


def test_a_job_is_read_as_the_api_server_completes_it(api: Api) -> None:
    """It writes the default `status` of a condition; a Job without a policy gets none."""
    made = [api.post(JOBS, job("ignores", IGNORES)), api.post(JOBS, job("counts"))]
    assert made[0]["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"
    verdicts = [JobVerdict.of(msgspec.convert(item, KubernetesJob)) for item in made]
    assert verdicts == [JobVerdict.CONTINUES, JobVerdict.COUNTS]


@pytest.mark.parametrize("policy", [None, {"rules": [{**IGNORES, "action": "Count"}]}], ids=["removed", "changed"])
def test_nobody_can_change_the_policy_of_a_job(api: Api, policy: Json | None) -> None:
    """So the extender reads each Job once."""
    api.post(JOBS, job("ignores", IGNORES))
    with pytest.raises(ApiError, match="field is immutable"):
        api.patch(f"{JOBS}/ignores", {"spec": {"podFailurePolicy": policy}})
    api.patch(f"{JOBS}/ignores", {"spec": {"suspend": True}})
