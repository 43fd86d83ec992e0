"""Every step of the product is one that the model allows, and the steps of a mutilated product are not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import chain, repeat
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.binding import bind, release
from extender.binding.intents import Intent, Reply
from extender.cluster import derivation
from extender.cluster.objects.kinds import Pod
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.state import ClusterState
from tests.extender.exploration import explore
from tests.model.beliefs import Beliefs
from tests.model.library import GPUS, Model, Setup
from tests.model.product import Product, Step
from tests.model.refinement import Shadow
from tests.model.setups import USUAL, Case
from tests.simulation.mutants import shares
from topology.annotations.records import PlacementRecord
from topology.placement.shares import SharedGpu

pytestmark = pytest.mark.slow
MAY = (*USUAL, "graceful", "force", "refusals", "unfit")


class Refused(Exception):
    """The product has taken a step that the model does not allow."""


SHARES = {
    "fit": Case("two shares of a GPU", gpus=GPUS, units=2, shares=(1, 1, 0), may=MAY),
    "do not fit": Case("a share and the rest", gpus=GPUS, units=2, shares=(2, 1, 0), shareable=1, may=MAY),
    "two classes": Case("two classes", gpus=GPUS, units=2, shares=(1, 1, 0), classes=(0, 1, 0), shareable=1, may=MAY),
    "beside whole": Case("a share and both GPUs", gpus=GPUS, units=2, wanted=(1, 2, 1), shares=(1, 0, 0), may=MAY),
}


def case(wanted: int) -> Case:
    return Case("one machine", gpus=GPUS, wanted=(wanted, wanted, wanted), may=MAY)


def run(model: Model, setup: Setup, choose: Callable[[list[Step]], Step], *, sickness: bool = False) -> None:
    """Let the product run its course, with the mishaps that are chosen."""
    product, shadow, taken = Product(setup, sickness=sickness), Shadow(model, setup), []
    while course := list(product.course()):
        step = choose([course[0], *product.mishaps(), *course[1:]])
        taken.append(step.name)
        if not shadow.follow(product, step):
            raise Refused("; ".join(taken))


def follow(plot: Iterable[str]) -> Callable[[list[Step]], Step]:
    """Take the named steps, in this order, each as soon as it can be taken; until then all goes well."""
    names = deque(plot)

    def choose(options: list[Step]) -> Step:
        step = next((step for step in options if names and step.name == names[0]), None)
        if step is None:
            return options[0]
        names.popleft()
        return step

    return choose


@pytest.mark.parametrize("wanted", [1, 2])
def test_the_model_allows_what_the_product_does(model: Model, believed: Beliefs, wanted: int) -> None:
    """Any single mishap: pods of one GPU, which can sit side by side, and of two, which cannot."""
    setup = case(wanted).setup(believed)
    assert explore(lambda choices: run(model, setup, choices.choose, sickness=wanted == 1), faults=1) > 100


@pytest.mark.parametrize("name", SHARES)
def test_the_model_allows_what_the_product_does_with_shares(model: Model, believed: Beliefs, name: str) -> None:
    """Any single mishap: shares that fit on one GPU, that do not, of two classes, and beside a pod that takes both GPUs."""
    setup = SHARES[name].setup(believed)
    assert explore(lambda choices: run(model, setup, choices.choose, sickness=True), faults=1) > 100


@given(wanted=st.integers(1, 2), script=st.lists(st.integers(0, 100), max_size=40))
@settings(max_examples=100)
def test_the_model_allows_what_the_product_does_in_any_mess(
    model: Model, believed: Beliefs, wanted: int, script: list[int]
) -> None:
    """Mishap upon mishap; after the script all goes well."""
    numbers = chain(script, repeat(0))
    run(model, case(wanted).setup(believed), lambda options: options[next(numbers) % len(options)], sickness=True)


@given(name=st.sampled_from([*SHARES]), script=st.lists(st.integers(0, 100), max_size=40))
@settings(max_examples=100)
def test_the_model_allows_what_the_product_does_with_shares_in_any_mess(
    model: Model, believed: Beliefs, name: str, script: list[int]
) -> None:
    """Likewise."""
    numbers = chain(script, repeat(0))
    run(model, SHARES[name].setup(believed), lambda options: options[next(numbers) % len(options)], sickness=True)


def _fence_nobody(self: Any, pod: Pod) -> Generator[Intent, Reply, Pod]:
    yield from ()
    return pod


def _withdraw_in_doubt(self: Any) -> Generator[Intent, Reply, Any]:
    self._in_doubt = False
    return (yield from _GONE(self))


def _post_again(
    self: Any, pod: Pod, record: PlacementRecord, annotations: Mapping[str, str]
) -> Generator[Intent, Reply, Any]:
    result = yield from _POST(self, pod, record, annotations)
    while isinstance(result, bind._Again) and result.pod:
        result = yield from _POST(self, result.pod, record, annotations)
    return result


def _orphans_without_fence(state: ClusterState, task: release.Task) -> Generator[Intent, Reply, frozenset[str]]:
    yield from ()
    return task.orphans


_GONE, _POST = bind._Bind._gone, bind._Bind._post
MUTILATIONS = {
    "another choice without a fence": (
        (bind._Bind, "_fence", _fence_nobody),
        ["0 is killed, its request held up (BindPod)", "a GPU falls sick", "0 hears", "0 begins with p0"],
    ),
    "claim withdrawn while in doubt": (
        (bind._Bind, "_gone", _withdraw_in_doubt),
        ["0 loses the answer (BindPod)", "p0 is deleted by force"],
    ),
    "Binding sent again without a claim": (
        (bind._Bind, "_post", _post_again),
        ["0 is answered (SwapLedger)", "p0 is touched"],
    ),
    "orphan dropped without a fence": (
        (release, "_fence_orphans", _orphans_without_fence),
        ["0 is killed, its request held up (BindPod)", "2 begins"],
    ),
}


SHARE_MUTILATIONS = {
    "sum of shares not compared": ("do not fit", (derivation, "shares_of", shares.sum_ignored), []),
    "shared GPU given whole": ("beside whole", (derivation, "_shape", shares.shared_taken_for_free), []),
    "class of shares not compared": ("two classes", (SharedGpu, "takes", shares.class_ignored), []),
    "share free before its process is gone": (
        "do not fit",
        (Evidence, "standing", shares.share_free_when_gone),
        ["0 is answered (BindPod)", "p0 is deleted by force"],
    ),
}


@pytest.mark.parametrize("name", MUTILATIONS)
def test_c2_the_model_refuses_what_a_mutilated_product_does(model: Model, believed: Beliefs, name: str) -> None:
    """So the tests above hold the product to the protocol."""
    mutilation, plot = MUTILATIONS[name]
    refuse(model, case(1).setup(believed), mutilation, plot)


@pytest.mark.parametrize("name", SHARE_MUTILATIONS)
def test_c2_the_model_refuses_what_a_mutilated_product_does_with_shares(
    model: Model, believed: Beliefs, name: str
) -> None:
    """So those of shares hold it to each of their rules."""
    asked, mutilation, plot = SHARE_MUTILATIONS[name]
    refuse(model, SHARES[asked].setup(believed), mutilation, plot)


def refuse(model: Model, setup: Setup, mutilation: tuple[Any, str, Any], plot: list[str]) -> None:
    run(model, setup, follow(plot), sickness=True)
    with mock.patch.object(*mutilation), pytest.raises(Refused):
        run(model, setup, follow(plot), sickness=True)
