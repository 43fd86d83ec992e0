"""Which GPUs a pod of a group takes among equals, for the sake of the network between nodes.

A rail is the place of an RDMA NIC on its node, and of the GPUs that are nearest to it. In a rail-optimised fabric the
NICs of one rail are attached to the same leaf switch. So pods on the same rails reach each other without the spine.
"""

from __future__ import annotations

from typing import NamedTuple


class Rails(NamedTuple):
    """What tells GPUs of one node apart to one pod, as masks over positions."""

    preferred: int = 0
    """GPUs on the rails that most pods of its group have on other nodes."""
    busy: int = 0
    """GPUs with a NIC that a pod of a group on several nodes uses already."""

    def among(self, free: int, must: int) -> Rails:
        """Return what is left of it where some GPUs are chosen from, and some among them in any case.

        >>> Rails(preferred=0b0110).among(0b1110, 0), Rails(preferred=0b0110).among(0b0110, 0) is NO_RAILS
        (Rails(preferred=6, busy=0), True)
        """
        if self is NO_RAILS:
            return self
        open_ = free & ~must
        preferred, busy = (mask & open_ for mask in self)
        if preferred in (0, open_) and busy in (0, open_):
            return NO_RAILS
        return Rails(preferred | must, busy)

    def cost(self, gpus: int) -> tuple[int, int]:
        """Return by what sets of equal size are compared; less is better."""
        return -(gpus & self.preferred).bit_count(), (gpus & self.busy).bit_count()


NO_RAILS = Rails()
