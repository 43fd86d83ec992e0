"""Features: which ones a configuration switches on, and that no answer of a verb depends on their order or their health."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.movable_pods import OPTED_IN, MovablePods
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.features.configuration import WholeConfiguration
from extender.features.dra.feature import Dra
from extender.features.registry import FEATURES
from extender.inspect.front_tables import FrontTable
from extender.inspect.inspection import NodeList
from extender.inspect.notes import PodNote
from extender.kit.clock import Instant
from extender.kubernetes.kube import KubeApi
from extender.service import Extender
from extender.verbs.wire import ExtenderArgs, ExtenderFilterResult
from tests.extender.builders import args, node, pod
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, Mode, NodeGpuStatus

OBSERVED = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.OBSERVE, ready=True)))
SWITCHES = {"enabled": True, "file": "/nowhere"}
"""Settings that switch a feature on."""
ALL_ON = {"groups": {"readSizes": True}} | {
    kind.name: switches
    for kind in FEATURES
    if kind.section
    and (switches := {name: value for name, value in SWITCHES.items() if name in kind.section.model_fields})
}


class Failing(Feature):
    """Fails whenever it is called."""

    name = "failing"

    @classmethod
    def of(cls, core: Core) -> Failing:
        return cls()

    def before_filter(self, args: ExtenderArgs) -> None:
        raise RuntimeError("broken")

    def after_filter(self, args: ExtenderArgs, result: ExtenderFilterResult) -> None:
        raise RuntimeError("broken")

    def note(self, pod: GpuPod) -> PodNote:
        raise RuntimeError("broken")

    def front_table(self) -> FrontTable:
        raise RuntimeError("broken")


class Absent(Feature):
    """Is switched off, and says so of each pod."""

    name = "absent"
    report_kind = NodeList

    @classmethod
    def of(cls, core: Core) -> None:
        return None

    @classmethod
    def report_without(cls, state: ClusterState, now: Instant) -> NodeList:
        return NodeList(nodes=())

    @classmethod
    def note_without(cls, state: ClusterState, pod: GpuPod, now: Instant, *, is_off: bool) -> PodNote:
        return PodNote(feature=cls.name, line=f"{pod.key[1]}: off" if is_off else "not asked")


def extender_with(folder: Path, features: Sequence[type[Feature]], settings: Mapping[str, object] = ALL_ON) -> Extender:
    """Return an extender that knows two observed nodes."""
    config = WholeConfiguration.model_validate(settings)
    extender = Extender(config, KubeApi.from_kubeconfig(folder / "nobody"), features)
    extender.state.nodes.replaced([node(name, "dgx-1v", status=OBSERVED) for name in ("n1", "n2")])
    extender.state.pods.replaced([])
    return extender


async def answers(extender: Extender) -> list[object]:
    """Return what filter and prioritize answer for pods that fit, and for one that does not."""
    calls = [args(pod(f"p{gpus}", gpus), "n1", "n2") for gpus in (1, 2, 4, 8, 9)]
    return [(await extender.filter(call), await extender.prioritize(call)) for call in calls]


def off(extender: Extender) -> set[str]:
    return {kind.name for kind in FEATURES if extender.features.get(kind) is None}


async def test_a_configuration_switches_features_on(tmp_path: Path) -> None:
    """These are off by default; what is off has no object, and so remembers nothing."""
    switched = {"autoscaling", "steering", "queue", "moves", "dra", "group-sizes", "measured", "view"} & {
        kind.name for kind in FEATURES
    }
    assert off(extender_with(tmp_path, FEATURES, {})) == switched
    assert off(extender_with(tmp_path, FEATURES)) == set()


async def test_pods_are_read_as_the_moves_are_configured(tmp_path: Path) -> None:
    """More is kept of pods that may move, so they are named before any is read."""
    settings = {"moves": {"enabled": True, "movable": {"namespaces": ["ml"], "priorityClasses": "batch, test"}}}
    assert extender_with(tmp_path, FEATURES, settings).state.movable == MovablePods(("ml",), ("batch", "test"))
    assert extender_with(tmp_path, FEATURES, {}).state.movable == OPTED_IN


@pytest.mark.parametrize(("settings", "preempts"), [({}, True), ({"preemption": False}, False)])
async def test_pods_preempt_others_for_their_claims_unless_that_is_off(
    tmp_path: Path, settings: dict[str, bool], preempts: bool
) -> None:
    """It has a round of its own."""
    on = {"queue": {"enabled": True}, "dra": {"enabled": True, **settings}}
    dra = extender_with(tmp_path, FEATURES, on).features.get(Dra)
    assert dra is not None
    assert any(item.name == "dra-preemption" for item in dra.rounds()) is preempts


@pytest.mark.slow
async def test_no_answer_depends_on_the_features_or_their_order(tmp_path: Path) -> None:
    """Observers only take note of calls; each feature is first once, and each order is also reversed."""
    without = await answers(extender_with(tmp_path, ()))
    for first in range(len(FEATURES)):
        features = (*FEATURES[first:], *FEATURES[:first])
        assert await answers(extender_with(tmp_path, features)) == without
        assert await answers(extender_with(tmp_path, features[::-1])) == without


@pytest.mark.slow
async def test_a_feature_that_fails_changes_no_answer_and_is_counted(tmp_path: Path) -> None:
    """The others still hear of the call."""
    extender = extender_with(tmp_path, (Failing,))
    assert await answers(extender) == await answers(extender_with(tmp_path, ()))
    assert 'gputopo_failed_rounds_total{name="failing"} 10.0' in extender.exposition().decode()


async def test_a_feature_that_is_off_speaks_of_pods_and_one_that_fails_is_left_out(tmp_path: Path) -> None:
    """A pod that nobody knows has no notes."""
    extender = extender_with(tmp_path, (Failing, Absent))
    item = pod("p", 1)
    extender.state.pods.replaced([item])
    assert [note.line for note in extender.features.notes(item.metadata.namespace, "p")] == ["p: off"]
    assert extender.features.notes(item.metadata.namespace, "unknown") == ()
    assert extender.features.front_tables() == ()
    assert extender.features.report(Absent) == NodeList(nodes=())


async def test_each_round_has_its_series_of_failures_from_the_start(tmp_path: Path) -> None:
    """Those of features and of the optional checks, too: the first failure is an increase."""
    extender = extender_with(tmp_path, FEATURES)
    async with extender:
        extender.begin_checks()
        rounds = {
            round_.name for kind in FEATURES if (feature := extender.features.get(kind)) for round_ in feature.rounds()
        }
        names = set(extender.condition.life())
        text = extender.exposition().decode()
    assert rounds and rounds | {"policies", "reconcile"} <= names
    assert {name for name in names if f'gputopo_failed_rounds_total{{name="{name}"}} 0.0' in text} == names


def test_the_cel_library_is_imported_where_dra_is_enabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the first selector, which the event loop waits for, and not elsewhere."""
    monkeypatch.setitem(sys.modules, "cel", None)
    extender_with(tmp_path, [Dra], {"dra": {"enabled": False}})
    with pytest.raises(ImportError):
        extender_with(tmp_path, [Dra], {"queue": {"enabled": True}, "dra": {"enabled": True}})
