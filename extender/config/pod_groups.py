"""Which programs say which pods belong together."""

from __future__ import annotations

from extender.kit.settings import Items, Section
from topology.request.domains import GroupSource


class GroupsSettings(Section):
    """Groups of pods."""

    sources: Items[GroupSource] = tuple(GroupSource)
    """Programs whose groups count for pods without `gputopo.dev/group`. Their order is fixed."""
    read_sizes: bool = False
    """Read sizes from Jobs, JobSets and PodGroups. Needs the right to list and watch these."""
