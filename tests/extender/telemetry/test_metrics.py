"""Every series has its help, its unit and a bounded set of labels."""

from __future__ import annotations

from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.binding.intents import Intent, Reply
from extender.features.registry import DECLARATIONS
from extender.kubernetes.oversized_objects import FATES
from extender.telemetry.core import CORE, PODS_REFUSED, REFUSALS, REQUEST_SECONDS, VERDICTS_BY_VERB, WAITED_SECONDS
from extender.telemetry.metrics import Declaration, Metrics, Recent, SeriesKind
from tests.extender.telemetry.figures import every_gauge
from topology.placement.verdict import Reason


def families(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Return series name → label values, by label → value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(label for _, label in sorted(sample.labels.items()))] = sample.value
    return found


def test_verbs_have_their_histograms_before_the_first_call() -> None:
    """A rate of something that does not exist yet is no rate."""
    counts = families(Metrics("digest", CORE))["gputopo_extender_request_duration_seconds_count"]
    assert counts == {(verb,): 0.0 for verb in VERDICTS_BY_VERB}


def test_counters_begin_at_zero() -> None:
    """The first bind that fails is an increase, and not a series out of nowhere."""
    series = families(Metrics("digest", CORE))
    verdicts = {(verdict, verb): 0 for verb, all_ in VERDICTS_BY_VERB.items() for verdict in all_}
    assert series["gputopo_verdicts_total"] == verdicts
    names = [(intent.__name__, reply.__name__) for intent in get_args(Intent) for reply in get_args(Reply)]
    assert series["gputopo_api_requests_total"] == dict.fromkeys(names, 0)
    kinds = ("rebuilt", "adopted", "moved", "restored")
    assert series["gputopo_ledger_repairs_total"] == {(kind,): 0 for kind in kinds}
    resources = ("nodes", "pods", "resourceclaims", "resourceslices")
    assert series["gputopo_watch_objects_total"] == {(fate, name): 0 for fate in FATES for name in resources}


def test_every_reason_why_pods_wait_is_countable() -> None:
    """How often it was given, how many pods wait for it now, and how long bound pods have waited."""
    metrics = Metrics("digest", CORE)
    metrics.watch_labels(PODS_REFUSED, lambda: {"affinity": 2})
    metrics.count(REFUSALS, Reason.AFFINITY)
    metrics.observe(WAITED_SECONDS, 70.0, Reason.AFFINITY)
    series = families(metrics)
    assert series["gputopo_refusals_total"] == {(reason,): reason == "affinity" for reason in Reason}
    assert series["gputopo_pods_refused"] == {(reason,): 2 * (reason == "affinity") for reason in Reason}
    assert series["gputopo_waited_seconds_count"] == {(reason,): reason == "affinity" for reason in Reason}
    assert series["gputopo_waited_seconds_sum"]["affinity",] == 70.0


def test_buckets_of_a_verb_are_dense_where_the_budget_is() -> None:
    """3 ms are more than the first three bounds."""
    metrics = Metrics("digest", CORE)
    metrics.observe(REQUEST_SECONDS, 0.003, "filter")
    buckets = families(metrics)["gputopo_extender_request_duration_seconds_bucket"]
    assert [buckets[str(bound), "filter"] for bound in REQUEST_SECONDS.buckets[:4]] == [0, 0, 0, 1]


def test_gauges_are_read_at_each_scrape() -> None:
    """They show the state of that moment; one without a value is absent."""
    metrics, state = Metrics("digest", DECLARATIONS), every_gauge(1.0)
    metrics.watch(lambda: state)
    del state["policies_in_force"]
    state["gpus_free"] = 5.0
    series = families(metrics)
    assert series["gputopo_gpus_free"] == {(): 5.0}
    assert {name for name in every_gauge(0.0) if f"gputopo_{name}" not in series} == {"policies_in_force"}


def test_labels_that_are_read_need_not_be_declared() -> None:
    """Namespaces are not known before; declared values are there without a figure, too."""
    pods = Declaration("gputopo_pods", "Pods.", SeriesKind.READ, labels=("pod_namespace",), values=(("ml",),))
    metrics = Metrics("digest", [pods])
    metrics.watch_labels(pods, lambda: {"web": 3.0})
    assert families(metrics)["gputopo_pods"] == {("ml",): 0.0, ("web",): 3.0}


def test_gauge_shows_its_last_figures_alone() -> None:
    """A size that no machine has any more is gone."""
    sizes = Declaration("gputopo_sizes", "Pods by size.", SeriesKind.GAUGE, labels=("gpus",))
    metrics = Metrics("digest", [sizes])
    metrics.show(sizes, {("1",): 8.0, ("2",): 4.0})
    metrics.show(sizes, {("1",): 7.0})
    assert families(metrics)["gputopo_sizes"] == {("1",): 7.0}


def test_series_that_nobody_declared_are_not_counted() -> None:
    """A feature that is missing in the list fails in its first test."""
    with pytest.raises(KeyError, match="gputopo_refusals"):
        Metrics("digest", []).count(REFUSALS, Reason.AFFINITY)


def test_names_are_declared_once() -> None:
    """Two features cannot share one."""
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Metrics("digest", [REFUSALS, REFUSALS])
    names = [declaration.name for declaration in DECLARATIONS]
    assert len(names) == len(set(names))


def test_the_build_names_version_and_configuration() -> None:
    """Two replicas with different settings can be told apart."""
    ((config, _),) = families(Metrics("digest", CORE))["gputopo_build_info"]
    assert config == "digest"


def test_an_exposition_is_made_once_a_second_however_many_ask() -> None:
    """In 10 s 5,000 scrapes cost what ten do, and nobody reads what is older than a second."""
    made: list[int] = []

    def make() -> bytes:
        made.append(len(made))
        return str(len(made)).encode()

    recent = Recent(make, 1.0)
    read = [recent.at(milliseconds / 1000) for milliseconds in range(0, 10_000, 2)]
    assert made == list(range(10))
    assert read == [str(1 + second).encode() for second in range(10) for _ in range(500)]
