"""Which programs say which pods belong together."""

from __future__ import annotations

from extender.kit.settings import Items, Section
from topology.request.domains import GroupSource


class GroupsSettings(Section):
    """Which pods belong together across nodes."""

    sources: Items[GroupSource] = tuple(GroupSource)
    """Other programs whose words count, where a pod has no `gputopo.dev/group`. Their order is fixed."""
    read_sizes: bool = False
    """Read how many pods a group has off Jobs, JobSets and PodGroups, where no pod says it; takes the right to list and watch
    these."""
