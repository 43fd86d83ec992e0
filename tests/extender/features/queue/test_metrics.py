"""The queue's metrics stay few, however many namespaces there are."""

from __future__ import annotations

from collections import Counter

from extender.features.queue.series import NAMESPACES, OTHERS, by_largest


def test_namespaces_with_the_most_pods_have_series_of_their_own() -> None:
    """All others are one series, and no pod is lost."""
    pods = Counter({f"n{number}": number + 1 for number in range(NAMESPACES + 5)})
    shown = by_largest(pods)
    assert len(shown) == NAMESPACES + 1
    assert shown[OTHERS] == sum(range(1, 6))
    assert sum(shown.values()) == pods.total()


def test_few_namespaces_have_no_series_of_others() -> None:
    """A series that is always zero says nothing."""
    assert by_largest(Counter({"a": 2})) == {"a": 2}
