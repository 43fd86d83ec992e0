"""What is kept of claims as lists and events show them."""

from __future__ import annotations

from extender.cluster.objects.devices import ClaimMeta, ResourceClaim
from extender.cluster.objects.kinds import ObjectMeta, Pod, PodClaim, PodSpec
from extender.cluster.objects.versions import Listing
from extender.features.dra.caches import ClaimCache


def claim(uid: str) -> ResourceClaim:
    return ResourceClaim(ClaimMeta("c", "ml", uid, "1"))


def test_a_claim_that_was_made_again_under_its_name_stays_when_the_old_one_goes() -> None:
    """A list shows the new one before it is known that the old one is gone."""
    cache = ClaimCache(lambda before, after: None)
    pod = Pod(ObjectMeta("p", "ml"), PodSpec(resource_claims=[PodClaim("gpus", resource_claim_name="c")]))
    cache.changed(claim("old"))
    cache.changed(claim("new"))
    for _ in cache.replacing([claim("new")], Listing()):
        pass
    assert cache.of_pod(pod) == [claim("new")]
    cache.deleted(claim("new"))
    assert cache.of_pod(pod) is None
