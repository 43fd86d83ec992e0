"""Claims of our classes as the API has them: what they request, for which pod they are, and what they were given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.simulated.double.resources import Object
from extender.cluster.objects.devices import DRIVER
from extender.features.dra.claim_spec import MIG_CLASS, OUR_CLASS
from topology.annotations import keys


def request_for(counts: int | Sequence[int], selector: str, profile: str = "") -> Object:
    """Return a request for devices of our classes; of several counts the first counts for which there is room."""
    every = counts if isinstance(counts, Sequence) else [counts]
    name = MIG_CLASS if profile else OUR_CLASS
    selector = f"device.attributes['{DRIVER}'].profile == '{profile}'" if profile else selector
    ways: list[Object] = [{"deviceClassName": name, "count": count} for count in every]
    ways[0] |= {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    if not isinstance(counts, Sequence):
        return {"name": "gpus", "exactly": ways[0]}
    return {"name": "gpus", "firstAvailable": [{"name": f"way-{at}", **way} for at, way in enumerate(ways)]}


def owner_of(claim: Object) -> str:
    """Return the pod that a claim is for."""
    return made_for(claim) or str((claim["metadata"].get("annotations") or {}).get(keys.CLAIM_POD, ""))


def made_for(claim: Object) -> str:
    owners = claim["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(owners[0]["uid"])


def allocation_of(claim: Object) -> Any:
    return (claim.get("status") or {}).get("allocation")
