"""A PodDisruptionBudget counts the pods that its selector means, as Kubernetes reads it."""

from __future__ import annotations

import pytest

from extender.cluster.caches.budgets import Budgets
from extender.cluster.objects.budgets import TOO_MANY_LABELS, LabelSelector, PodDisruptionBudget
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.versions import Listing
from extender.kubernetes.documents import decoder
from tests.extender.builders import budget, pod

read = decoder(PodDisruptionBudget)


@pytest.mark.parametrize(
    ("selector", "labels", "means"),
    [
        ('{"matchLabels":{"a":"1"}}', {"a": "1", "b": "2"}, True),
        ('{"matchLabels":{"a":"1","b":"3"}}', {"a": "1", "b": "2"}, False),
        ('{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}', {"a": "2"}, True),
        ('{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}', {}, False),
        ('{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}', {"a": "1"}, False),
        ('{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}', {}, True),
        ('{"matchExpressions":[{"key":"a","operator":"Exists"}]}', {"a": ""}, True),
        ('{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}', {"a": ""}, False),
        ('{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"Exists"}]}', {"a": "1"}, False),
        ("{}", {}, True),
        ("null", {"a": "1"}, False),
        ('{"matchLabels":{"a":"1"}}', TOO_MANY_LABELS, True),
    ],
)
def test_whom_a_selector_means(selector: str, labels: dict[str, str], means: bool) -> None:
    """An empty one all pods, none nobody; a pod with more labels than are kept may be any."""
    found = read(f'{{"metadata":{{"name":"b","namespace":"ml"}},"spec":{{"selector":{selector}}}}}'.encode())
    assert found.counts(ObjectMeta(name="p", namespace="ml", labels=labels)) is means


def test_the_status_says_how_many_evictions_are_allowed_and_whose_are_counted_already() -> None:
    """In the words of policy/v1."""
    text = (
        b'{"metadata":{"name":"b","namespace":"ml"},"spec":{"selector":{"matchLabels":{}}},'
        b'"status":{"disruptionsAllowed":3,"disruptedPods":{"gone":"2026-01-01T00:00:00Z"},"currentHealthy":5}}'
    )
    found = read(text)
    assert found.allowed == 3
    assert not found.counts(ObjectMeta(name="gone")) and found.counts(ObjectMeta(name="p"))


def names(budgets: Budgets, **labels: str) -> list[str]:
    """Return the budgets that have to bear the eviction of such a pod."""
    return [each.metadata.name for each in budgets.of(pod("p", labels=labels).metadata)]


def test_budgets_count_in_their_namespace_only_as_they_come_and_go() -> None:
    """Before the first list nothing is known of them."""
    budgets = Budgets()
    known = [budgets.known]
    budgets.replaced([budget("a", 1, app="x"), budget("b", 1, app="y")])
    known.append(budgets.known)
    assert names(budgets, app="x") == ["a"]
    assert budgets.of(ObjectMeta(name="p", namespace="other", labels={"app": "x"})) == []
    budgets.changed(budget("b", 0, app="x"))
    assert names(budgets, app="x") == ["a", "b"]
    budgets.deleted(budget("a", 1, app="x"))
    assert names(budgets, app="x") == ["b"]
    budgets.is_denied = lambda: True
    known.append(budgets.known)
    assert known == [False, True, False], "what was read before may be out of date"


def test_a_budget_that_cannot_be_read_bears_no_eviction_in_its_namespace() -> None:
    """What we cannot know is not evicted, where others will do."""
    budgets = Budgets()
    budgets.replaced([], Listing("7", (ObjectMeta(name="huge", namespace="ml"),)))
    (found,) = budgets.of(pod("p").metadata)
    assert found.allowed == 0
    budgets.unread(ObjectMeta(name="huge", namespace="ml"), gone=True)
    assert names(budgets) == []


def test_a_selector_that_says_nothing_means_everybody() -> None:
    """As in policy/v1."""
    assert LabelSelector().selects({})
