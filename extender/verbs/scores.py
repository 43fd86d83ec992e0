"""Scores on the wire: kube-scheduler takes integers 0..10 and breaks ties at random."""

from __future__ import annotations

from collections.abc import Collection

from extender.verbs.wire import MAX_SCORE


def levels(scores: Collection[float | None]) -> dict[float | None, int]:
    """Return score → 1..9, in proportion to how near the best it is; 10 is for one single node, 0 for those that do not fit.

    >>> levels([3.0, 2.9, 1.0, None])
    {None: 0, 3.0: 9, 2.9: 8, 1.0: 1}
    """
    fitting = [score for score in scores if score is not None]
    if not fitting:
        return {None: 0}
    low, top = min(fitting), max(fitting)
    span, steps = top - low, MAX_SCORE - 2
    return {None: 0} | {score: 1 + int(steps * (score - low) / span) if span > 0 else 1 + steps for score in fitting}
