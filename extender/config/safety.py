"""What keeps claims true: the reconciler, the agents' reports and the admission policies."""

from __future__ import annotations

from extender.kit.settings import Duration, Section


class ReconcileSettings(Section):
    """Reconciler, which releases claims without a pod."""

    interval: Duration = 1.0
    """Interval between two rounds."""
    orphan_after: Duration = 60.0
    """Time after which the claim of an unbound pod is fenced and released. Pods behind our gate or pinned there keep theirs."""


class AgentsSettings(Section):
    """Watch on the agents."""

    namespace: str = "gputopo-system"
    """Namespace of the agents. A node whose agent is not ready takes no new pods."""
    silence: Duration = 750.0
    """A node whose agent has not written for this time takes no new pods. Agents write every five minutes."""


class PoliciesSettings(Section):
    """Admission policies that protect gputopo's annotations."""

    required: bool = False
    """Refuse all verbs unless the policies are in force."""
    look: Duration = 60.0
    """Interval of the check, which is a dry run."""
