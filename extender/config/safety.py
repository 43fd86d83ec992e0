"""What keeps claims true: the reconciler, the agents' reports and the admission policies."""

from __future__ import annotations

from extender.kit.settings import Duration, Section


class ReconcileSettings(Section):
    """How claims without a pod are taken back."""

    interval: Duration = 1.0
    """How often they are looked for."""
    orphan_after: Duration = 60.0
    """A claim of an unbound pod that nobody renewed for this long is fenced and dropped."""


class AgentsSettings(Section):
    """How the nodes' agents are watched."""

    namespace: str = "gputopo-system"
    """Where their pods are; a node whose agent's pod is not ready takes no new pods."""
    silence: Duration = 750.0
    """A node whose agent has not written for this long takes no new pods; agents write every five minutes."""


class PoliciesSettings(Section):
    """The admission policies that keep everybody else from writing our annotations."""

    required: bool = False
    """Answer no verb unless they are known to be in force."""
    look: Duration = 60.0
    """How often that is tried; it costs a dry run."""
