"""What the API server and the extender say of themselves, and what of it needs somebody: versions, and admission policies."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from extender.inspect.inspection import Answer

UNKNOWN: Final = "unknown"
"""The version of an agent that does not say its own, as 0.1.0 did not."""
GUARDS: Final = ("agent-own-node", "extender-ledger", "node-annotations", "pod-allocations", "binding-allocations")
"""The ends of the names of the policies that keep our records from being forged."""
QUEUE_GUARD: Final = "extender-pods"
"""The end of the name of the policy on an extender that plans the queue."""
CLOCKS_DIFFER_SECONDS: Final = 60.0
"""At most, of this machine and of the one that renews a Lease."""
_OLDEST: Final = (1, 30)
_STEERS_FROM: Final = (1, 35)
_RISK: Final = "whoever may patch nodes or pods can forge our records"
_QUEUE_RISK: Final = "an extender's token can change any pod"
_INSTALL: Final = "install them (chart: `policies.enabled`); the page Security says what they keep out"
_AGAIN: Final = "run `helm upgrade` once more, or apply manifests/rendered/policies.yaml"
_UPGRADE: Final = "run `helm upgrade` once more, with `policies.enabled`"
_CONTROL_PLANE_TOO_OLD: Final = (
    "upgrade the control plane: before, its Binding API has faults that gputopo cannot work around"
)
_NO_STEERING: Final = "switch it off (chart: `extender.steerQueues`), or upgrade the control plane"
_AGENTS_BEHIND: Final = (
    "let the rollout of the agents' DaemonSet end, and wait five minutes for their reports; else upgrade the release"
)
_AGENTS_AHEAD: Final = "upgrade the extender, too: agents and extenders of one release are tested together"


class ExtenderInfo(Answer):
    """One running extender, as it says itself."""

    version: str
    steers_queues: bool
    policies_in_force: bool | None
    """As its own forbidden write was answered; `None`: it has not been able to try."""


class PolicyInfo(Answer):
    """One ValidatingAdmissionPolicy of ours, as the API server lists it."""

    name: str
    actions: tuple[str, ...]
    """What its bindings do: `Deny`, `Warn`, `Audit`; empty: it has none, so it does nothing."""

    @property
    def guards(self) -> str | None:
        """Which of `GUARDS` it is, or `QUEUE_GUARD`; `None` for one that only helps."""
        return next((guard for guard in (*GUARDS, QUEUE_GUARD) if self.name.endswith(f"-{guard}")), None)

    @property
    def is_at_work(self) -> bool:
        """Whether it does what it is there for."""
        return "Deny" in self.actions if self.guards else bool(self.actions)


class PlannerInfo(Answer):
    """Who holds the Lease of the replica that plans a queue."""

    namespace: str
    holder: str
    """Empty: nobody."""
    silent_seconds: float
    """Since it has renewed the Lease."""
    lease_seconds: float
    """After which another one may take it."""

    @property
    def plans(self) -> bool:
        """Whether it still holds the Lease, as far as clocks tell."""
        return bool(self.holder) and self.silent_seconds <= self.lease_seconds + CLOCKS_DIFFER_SECONDS


class ControlPlane(Answer):
    """What is around the agents, as far as it can be asked."""

    api_server: str | None = None
    """Its version, such as `v1.36.2`."""
    policies: tuple[PolicyInfo, ...] | None = None
    """By name; `None`: not known."""
    policies_unknown: str = ""
    """Why they are not known."""
    extender: ExtenderInfo | None = None
    """`None`: not known."""
    extender_unknown: str = ""
    """Why it is not known; empty where none was asked."""
    planners: tuple[PlannerInfo, ...] | None = None
    """One for each installation whose queue has been enabled; `None`: not known."""
    planners_unknown: str = ""
    """Why they are not known."""

    @property
    def at_work(self) -> tuple[PlannerInfo, ...]:
        """Those that plan now."""
        return tuple(planner for planner in self.planners or () if planner.plans)


def troubles(plane: ControlPlane, agents: Mapping[str, str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield what needs somebody, what to do, and the nodes where it is so; `agents` is node → version."""
    yield from _of_versions(plane, agents)
    yield from _of_api_server(plane)
    yield from _of_policies(plane)


def _of_versions(plane: ControlPlane, agents: Mapping[str, str]) -> Iterator[tuple[str, str, list[str]]]:
    """Hold agents against the extender, else against the newest of them."""
    if plane.extender:
        reference, others = plane.extender.version, f"the extender, which is {plane.extender.version}"
    else:
        reference = max(agents.values(), key=_numbers, default=UNKNOWN)
        others = f"others, which are {reference}"
    unlike = defaultdict[str, list[str]](list)
    for node, version in sorted(agents.items()):
        if version != reference:
            unlike[version].append(node)
    for version, nodes in unlike.items():
        said = "do not say their version, so they are" if version == UNKNOWN else f"are {version},"
        here, there = _numbers(version), _numbers(reference)
        how = "newer than" if here > there else "older than" if here < there else "unlike"
        yield f"agents {said} {how} {others}", _AGENTS_AHEAD if here > there else _AGENTS_BEHIND, nodes


def _of_api_server(plane: ControlPlane) -> Iterator[tuple[str, str, list[str]]]:
    minor = _numbers(plane.api_server or "")[:2]
    if not minor:
        return
    if minor < _OLDEST:
        yield f"the API server is {plane.api_server}, older than 1.30", _CONTROL_PLANE_TOO_OLD, []
    elif plane.extender and plane.extender.steers_queues and minor < _STEERS_FROM:
        what = f"queues are planned ahead, which needs Kubernetes 1.35: the API server is {plane.api_server}"
        yield what, _NO_STEERING, []


def _of_policies(plane: ControlPlane) -> Iterator[tuple[str, str, list[str]]]:
    listed = plane.policies
    refuses_nothing = plane.extender is not None and plane.extender.policies_in_force is False
    if listed is None:
        if refuses_nothing:
            yield f"the admission policies are not in force: {_RISK}", _INSTALL, []
        return
    here = {policy.guards for policy in listed}
    missing = [guard for guard in GUARDS if guard not in here]
    idle = [policy.name for policy in listed if not policy.is_at_work]
    if len(missing) == len(GUARDS):
        yield f"there are no admission policies: {_RISK}", _INSTALL, []
    elif missing:
        yield f"admission policies are missing ({', '.join(missing)}): {_RISK}", _AGAIN, []
    if idle:
        yield f"admission policies have no binding that acts, so they do nothing: {', '.join(idle)}", _AGAIN, []
    if plane.at_work and QUEUE_GUARD not in here and len(missing) < len(GUARDS):
        yield f"the queue is planned without its admission policy ({QUEUE_GUARD}): {_QUEUE_RISK}", _UPGRADE, []
    if refuses_nothing and not missing and not idle:
        yield f"the admission policies let the extender's forbidden write pass: {_RISK}", _AGAIN, []


def _numbers(version: str) -> tuple[int, ...]:
    """Return what a version begins with, so that versions can be compared; of a text that is none, less than any.

    >>> _numbers("v1.36.2-gke.100"), _numbers("0.2.0"), _numbers("unknown")
    ((1, 36, 2), (0, 2, 0), ())
    """
    match = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)", version)
    return tuple(map(int, match[1].split("."))) if match else ()
