"""Whether the policy on NVIDIA's DeviceClasses is in force, by the answer to what it forbids."""

from __future__ import annotations

import msgspec
import pytest

from extender.features.dra.claim_spec import MATCHES_NOTHING
from extender.features.dra.guard import RESERVED, DraGuard
from extender.kubernetes.rest import Request
from tests.dra import Json

CLASS = {"spec": {"selectors": [{"cel": {"expression": MATCHES_NOTHING}}]}}


def refusal(policy: str, message: str) -> Json:
    words = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
    return {"message": f'resourceclaims.resource.k8s.io "x" is forbidden: {words}'}


@pytest.mark.parametrize(
    ("status", "answer", "obstacle"),
    [
        (403, refusal("gputopo-reserved-classes", RESERVED), None),
        (422, refusal("n" * 100, RESERVED), None),
        (403, refusal("quotas", "this namespace creates no ResourceClaims"), "creates no ResourceClaims"),
        (422, refusal("quotas", "this namespace creates no ResourceClaims"), "creates no ResourceClaims"),
        (403, {"message": f"RBAC says that {RESERVED}"}, "RBAC says"),
        (201, {}, "accepts such claims"),
    ],
    ids=["ours", "ours under a long name", "another policy", "another policy by default", "no policy", "accepted"],
)
async def test_only_a_refusal_by_our_policy_says_that_it_is_in_force(
    status: int, answer: Json, obstacle: str | None
) -> None:
    """Another policy may refuse the claim, and let others pass."""

    async def send(request: Request) -> tuple[int, bytes]:
        return (200, msgspec.json.encode(CLASS)) if request.method == "GET" else (status, msgspec.json.encode(answer))

    guard = DraGuard(send, "gputopo-system", is_needed=True)
    guard.policy_in_force = obstacle is not None  # it was otherwise before
    await guard.check()
    assert (obstacle is None) == (guard.obstacle is None)
    assert (obstacle or "") in (guard.obstacle or "")
