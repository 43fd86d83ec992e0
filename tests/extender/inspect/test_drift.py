"""`kubectl gputopo drift` names the pods that have other GPUs than is written, and says what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.cluster.objects.kinds import Node, Pod
from extender.inspect import drift as words
from extender.inspect.drift import drift
from tests.dra import allocated
from tests.extender.builders import claim, cluster, gpus, node, pod, running
from tests.extender.cluster.test_nodes_by_claim import OURS, made_for, published, reported, user
from tests.extender.plugin import plugin
from topology.annotations.records import Holder, Observed, Sharer, encode_observed


def told(*objects: Node | Pod) -> list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], str]]:
    """Return name, planned, claimed and seen GPUs, and the sentence, of each difference."""
    found = drift(cluster(*objects)).differences
    return [(each.name, each.planned, each.claimed, each.seen, each.what) for each in found]


def held(name: str, *positions: int) -> dict[str, str]:
    """Return what the agent of `n1` says: this pod's container has these GPUs."""
    return dict.fromkeys(gpus("n1", *positions), name)


def test_a_pod_that_has_what_was_planned_is_not_named() -> None:
    """Nor is one that waits."""
    kept = node(claims=tuple(claim(gpu, "p1") for gpu in gpus("n1", 0, 1)), held=held("p1", 0, 1))
    assert told(kept, running("p1", "n1", *gpus("n1", 0, 1)), pod("p2", 4)) == []


def test_a_pod_that_the_device_plugin_gave_other_gpus_is_named_with_all_three() -> None:
    """What was planned, what the ledger says, and what the agent sees."""
    seen = node(claims=tuple(claim(gpu, "p1") for gpu in gpus("n1", 0, 1)), held=held("p1", 4, 5))
    assert told(seen, running("p1", "n1", *gpus("n1", 0, 1))) == [("p1", (0, 1), (0, 1), (4, 5), words.OTHER_GPUS)]


def test_pods_that_the_device_plugin_gave_one_gpu_are_both_named() -> None:
    """A ledger cannot say that a GPU is two pods'; people can be told."""
    a, b = gpus("n1", 0, 1)
    sharers = tuple(Sharer("ml", name, "main") for name in ("p1", "p2"))
    observed = encode_observed(Observed({a: Holder("ml", "p1", "main")}, shared={a: sharers}))
    shown = node(claims=(claim(a, "p1"), claim(b, "p2")), observed=observed)
    assert told(shown, running("p1", "n1", a), running("p2", "n1", b)) == [
        ("p1", (0,), (0,), (0,), words.SHARED_BY_PLUGIN),
        ("p2", (1,), (1,), (0,), words.SHARED_BY_PLUGIN),
    ]


def test_a_pod_that_came_past_us_is_named() -> None:
    """Another scheduler bound it, so it has no record; the agent sees its GPUs."""
    seen = node(claims=(), held=held("p1", 2, 3))
    assert told(seen, pod("p1", 2, on="n1", phase="Running", terminated=False)) == [
        ("p1", (), (), (2, 3), words.NO_RECORD)
    ]


def test_two_pods_with_one_gpu_are_both_named() -> None:
    """One of them has to go."""
    seen = node(claims=tuple(claim(gpu, "p1") for gpu in gpus("n1", 0)))
    both = (running("p1", "n1", *gpus("n1", 0)), running("p2", "n1", *gpus("n1", 0)))
    assert [(name, what) for name, _, _, _, what in told(seen, *both)] == [
        ("p1", words.SHARED_BY_MISTAKE),
        ("p2", words.SHARED_BY_MISTAKE),
    ]


def test_a_ledger_without_a_pods_claims_is_told() -> None:
    """Somebody has changed it, or an older backup was restored."""
    assert told(node(held=held("p1", 0)), running("p1", "n1", *gpus("n1", 0))) == [
        ("p1", (0,), (), (0,), words.LEDGER_DIFFERS)
    ]


def test_a_pod_whose_second_container_has_not_begun_is_told_as_seen_in_part() -> None:
    """Until the agent has seen all that was planned."""
    seen = node(claims=tuple(claim(gpu, "p1") for gpu in gpus("n1", 0, 1)), held=held("p1", 0))
    assert told(seen, running("p1", "n1", *gpus("n1", 0, 1))) == [("p1", (0, 1), (0, 1), (0,), words.UNSEEN)]


@pytest.mark.parametrize(
    ("devices", "seen", "what"),
    [
        (("gpu-0", "gpu-1"), (0, 1), None),
        (("gpu-0",), (0,), words.UNSEEN),
        (("gpu-0", "gpu-4"), (0, 4), words.OTHER_DEVICES),
    ],
)
def test_a_pod_with_other_dra_devices_than_planned_is_named(
    devices: tuple[str, ...], seen: tuple[int, ...], what: str | None
) -> None:
    """The claim's allocation may have been changed under it. Its ledger stays: the claim and the agent tell what is taken."""
    state = published(made_for("p", allocated(OURS, "n1", *devices)), ledger=("p", "p"))
    state.pods.changed(running("p", "n1", *gpus("n1", 0, 1)))
    reported(state, user("p", OURS, *devices))
    differences = [(each.planned, each.claimed, each.seen, each.what) for each in drift(state).differences]
    assert differences == ([((0, 1), (0, 1), seen, what)] if what else [])


async def test_the_plugin_says_that_all_is_as_planned(tmp_path: Path) -> None:
    """With exit code 0, which is 1 where a pod is named."""
    result = await plugin(tmp_path, "drift")
    assert (result.exit_code, result.stdout) == (0, "every pod has the GPUs that were planned for it\n")
