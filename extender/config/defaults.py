"""Defaults that the core shares with the settings; without pydantic, which would slow the start of `kubectl gputopo`."""

from __future__ import annotations

from typing import Final

HOLD_SECONDS: Final = 30.0
"""Longer than kube-scheduler usually takes from prioritize to the end of bind."""
NODE_GROUP_LABEL: Final = "node.kubernetes.io/instance-type"
"""Cloud providers and Karpenter write it, and cluster-autoscaler's templates have it."""
QUEUE_LEASE: Final = "gputopo-queue"
"""Lease of one installation; the replica that holds it plans."""
SCHEDULER_NAME: Final = "gputopo"
"""Of the kube-scheduler that the chart installs."""
