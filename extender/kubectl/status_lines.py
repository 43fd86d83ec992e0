"""The lines of `status` about modes, versions and policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from extender.inspect.control_plane import ControlPlane
from extender.inspect.status import Status

_NAMED: Final = 3


def version_lines(status: Status) -> Iterator[str]:
    """Yield what runs, in which version, and how to learn what is not known."""
    yield f"modes: {_on(status.modes)}"
    yield f"agents: {_on(status.agents)}"
    yield f"drivers: {_on(status.drivers)}; CUDA: {_on(status.cuda)}"
    plane = status.control_plane
    yield f"extender: {plane.extender.version if plane.extender else _unknown(plane.extender_unknown)}"
    yield f"API server: {plane.api_server or 'not known'}"
    yield f"policies: {'; '.join(_policies(plane))}"
    if status.queued or plane.planners:
        yield f"queue: {status.queued} waiting; {_planner(plane)}"


def _planner(plane: ControlPlane) -> str:
    if plane.planners is None:
        return f"not known who plans ({plane.planners_unknown})"
    names = ", ".join(f"{planner.namespace}/{planner.holder}" for planner in plane.at_work[:_NAMED])
    return f"planned by {names}" if names else "nobody plans"


def _unknown(why: str) -> str:
    return f"not known ({why})" if why else "not known; --extender auto asks one"


def _on(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{value} on {nodes}" for value, nodes in counts.items()) or "none"


def _policies(plane: ControlPlane) -> Iterator[str]:
    tried = plane.extender and plane.extender.policies_in_force
    if tried is not None:
        yield f"{'in force' if tried else 'not in force'}, as the extender tried"
    if plane.policies is not None:
        at_work = sum(policy.is_at_work for policy in plane.policies)
        yield f"{at_work} of {len(plane.policies)} bound"
    elif tried is not None:
        yield f"not listed ({plane.policies_unknown})"
    else:
        further = "" if plane.extender_unknown else "; --extender auto asks an extender"
        yield f"not known ({plane.policies_unknown}){further}"
