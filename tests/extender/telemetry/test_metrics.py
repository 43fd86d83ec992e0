"""Every series has its help, its unit and a bounded set of labels."""

from __future__ import annotations

from typing import get_args

from prometheus_client.parser import text_string_to_metric_families

from extender.binding.intents import Intent, Reply
from extender.kubernetes.burden import FATES
from extender.telemetry.metrics import BUCKETS, GAUGES, REPAIRS, RESOURCES, VERDICTS, Metrics, Recent
from topology.placement.verdict import Reason


def families(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Return series name → label values, by label → value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(label for _, label in sorted(sample.labels.items()))] = sample.value
    return found


def test_the_verbs_have_their_histograms_before_the_first_call() -> None:
    """A rate of something that does not exist yet is no rate."""
    counts = families(Metrics("digest"))["gputopo_extender_request_duration_seconds_count"]
    assert counts == {(verb,): 0.0 for verb in VERDICTS}


def test_whatever_is_counted_begins_at_nought() -> None:
    """The first bind that fails is an increase, and not a series out of nowhere."""
    found = families(Metrics("digest"))
    assert found["gputopo_verdicts_total"] == {(said, verb): 0 for verb, all_ in VERDICTS.items() for said in all_}
    names = [(intent.__name__, reply.__name__) for intent in get_args(Intent) for reply in get_args(Reply)]
    assert found["gputopo_api_requests_total"] == dict.fromkeys(names, 0)
    assert found["gputopo_ledger_repairs_total"] == {(kind,): 0 for kind in REPAIRS}
    fates = {(fate, resource): 0 for fate in FATES for resource in RESOURCES}
    assert found["gputopo_watch_objects_total"] == fates


def test_every_reason_why_pods_wait_is_countable() -> None:
    """How often it was given, who waits for it now, and how long they did that are bound."""
    metrics = Metrics("digest")
    metrics.watch(dict, lambda: {"affinity": 2})
    metrics.refused({Reason.AFFINITY, Reason.TOO_FEW_FREE})
    metrics.waited({Reason.AFFINITY}, 70.0)
    found = families(metrics)
    assert found["gputopo_refusals_total"] == {(reason,): reason in {"affinity", "too-few-free"} for reason in Reason}
    assert found["gputopo_pods_refused"] == {(reason,): 2 * (reason == "affinity") for reason in Reason}
    assert found["gputopo_waited_seconds_count"] == {(reason,): reason == "affinity" for reason in Reason}
    assert found["gputopo_waited_seconds_sum"]["affinity",] == 70.0


def test_an_answer_is_timed_and_counted() -> None:
    """The buckets are dense where the budget is."""
    metrics = Metrics("digest")
    metrics.answered("filter", "fits", 0.003)
    found = families(metrics)
    buckets = found["gputopo_extender_request_duration_seconds_bucket"]
    assert [buckets[str(float(bound)), "filter"] for bound in BUCKETS[:4]] == [0, 0, 0, 1]
    assert found["gputopo_verdicts_total"]["fits", "filter"] == 1


def test_gauges_are_read_when_somebody_scrapes() -> None:
    """They show the state of that moment."""
    metrics, state = Metrics("digest"), dict.fromkeys(GAUGES, 1.0)
    metrics.watch(lambda: state, dict)
    state["gpus_free"] = 5.0
    found = families(metrics)
    assert found["gputopo_gpus_free"] == {(): 5.0}
    assert {f"gputopo_{name}" for name in GAUGES} <= set(found)


def test_the_build_names_version_and_configuration() -> None:
    """Two replicas with different settings can be told apart."""
    ((config, _),) = families(Metrics("digest"))["gputopo_build_info"]
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
