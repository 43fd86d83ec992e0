"""Scores on the wire: kube-scheduler takes integers 0..10 and breaks ties at random."""

from __future__ import annotations

from collections.abc import Mapping

from extender.wire import MAX_SCORE


def spread(scores: Mapping[str, float], best: str) -> dict[str, int]:
    """Return node → integer: 10 for `best` and for nobody else, 1 to 9 for the others by their distance to it.

    Raises `KeyError` when `best` has no score.

    >>> spread({"a": 3.0, "b": 2.9, "c": 1.0}, best="a")
    {'a': 10, 'b': 8, 'c': 1}
    """
    top, low = scores[best], min(scores.values())
    levels = MAX_SCORE - 2
    span = top - low
    return {
        name: MAX_SCORE if name == best else 1 + int(levels * (score - low) / span) if span > 0 else MAX_SCORE - 1
        for name, score in scores.items()
    }
