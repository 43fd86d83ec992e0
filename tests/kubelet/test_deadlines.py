"""Invariant I5: the kubelet is answered in time, whatever hangs; it stands still until it is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.config import load
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode
from tests.kubelet.pods import Phase, gpu_pod


@pytest.fixture
def pressed(tmp_path: Path, goal: Callable[[float], float]) -> AgentOnNode:
    """Return a node whose agent has the default deadline with `--long`, and every day what a busy machine can keep."""
    default_seconds = load(None, {}, {"mode": "enforce"}).enforce.deadline
    return AgentOnNode(tmp_path, settings={"enforce.deadline": f"{1000 * goal(default_seconds):.0f}ms"})


def answers_in_time(node: AgentOnNode, *questions: str) -> bool:
    """Whether the slowest answer to these questions, to all when none is named, took little longer than the deadline."""
    slowest = max(took for name, took in node.kubelet.calls if not questions or name in questions)
    return slowest < 1.25 * node.settings.enforce.deadline


def test_the_default_deadline_is_four_tenths_of_a_second() -> None:
    """What the other tests scale, and what docs/explanation/modes.md promises the kubelet."""
    assert load(None, {}, {"mode": "enforce"}).enforce.deadline == 0.4


@asynccontextmanager
async def hanging_disk(state: Path) -> AsyncIterator[None]:
    """Have every write of the journal wait; after the block the disk answers, and the one under way is made."""
    journal = state / "journal.new"
    os.mkfifo(journal)  # whoever opens it waits for a reader
    try:
        yield
    finally:
        # Were the reader gone before the writer has written, the next writer would wait for ever, and the process with it.
        reader = os.open(journal, os.O_RDWR)
        await until(lambda: not journal.is_fifo())
        os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 5])
async def test_api_server_that_hangs_costs_no_more_than_the_deadline(pressed: AgentOnNode, rounds: int) -> None:
    """The ledger that was read last stands in: a pod that is in it gets its GPUs, and others wait with what is nobody's."""
    async with pressed as node:
        promised = gpu_pod("promised", 2)
        node.promise(promised, {"c0": [1, 6]}, exact=True)
        await node.place(gpu_pod("first", 1), [0])
        node.api_answers.clear()
        strays = [gpu_pod(f"stray-{number}", 1) for number in range(rounds)]
        for number, stray in enumerate(strays):
            await node.kubelet.run(gpu_pod(f"cpu-{number}", 0), stray)
        await node.kubelet.run(promised)
        await node.kubelet.started(promised)
        assert node.got(promised) == [node.named(1, 6)]
        assert {stray.phase for stray in strays} == {Phase.PENDING}
        node.api_answers.set()
        await node.kubelet.started(*strays)
        assert not set().union(*(node.got(stray)[0] for stray in strays)) & node.named(0, 1, 6)
        assert answers_in_time(node, "GetPreferredAllocation", "Allocate")


@pytest.mark.slow
async def test_plan_that_was_heard_of_is_kept_while_the_api_server_hangs(pressed: AgentOnNode) -> None:
    """Where every GPU is promised, a pod whose claims are in no known ledger would be turned away."""
    async with pressed as node:
        await node.place(gpu_pod("first", 6), [0, 1, 2, 3, 4, 5])
        node.api_answers.clear()
        heard = gpu_pod("heard", 2)
        node.promise(heard, {"c0": [6, 7]})
        node.tell()
        await node.kubelet.run(heard)
        await node.kubelet.started(heard)
        assert node.got(heard) == [node.named(6, 7)]
        assert answers_in_time(node)


@pytest.mark.slow
async def test_plan_that_comes_too_late_is_still_kept(pressed: AgentOnNode) -> None:
    """A pod that takes its own GPUs only, and whose claims could not be read in time, never starts with others."""
    async with pressed as node:
        await node.place(gpu_pod("first", 1), [0])
        node.api_answers.clear()
        late = gpu_pod("late", 2)
        node.promise(late, {"c0": [5, 6]}, exact=True)
        await node.kubelet.run(late)
        await until(lambda: "the ledger cannot be read" in late.reason)
        node.api_answers.set()
        await until(lambda: "promised to the pod" in late.reason)
        assert late.phase is Phase.PENDING


@pytest.mark.slow
async def test_list_that_hangs_costs_no_more_than_the_deadline(pressed: AgentOnNode) -> None:
    """It cannot be told who asks: no promise is touched, and no pod of its own GPUs is guessed at."""
    async with pressed as node:
        exact, easy = gpu_pod("exact", 2), gpu_pod("easy", 2)
        node.promise(easy, {"c0": [1, 6]})
        node.kubelet.hang_lists = True
        await node.kubelet.run(gpu_pod("cpu", 0), easy)
        node.promise(exact, {"c0": [4, 5]}, exact=True)
        await node.kubelet.run(exact)
        assert (exact.phase, easy.phase) == (Phase.FAILED, Phase.PENDING)
        assert answers_in_time(node)
        node.kubelet.hang_lists = False
        await node.kubelet.started(easy)
        assert not node.got(easy)[0] & node.named(1, 6, 4, 5)


@pytest.mark.slow
async def test_disk_that_hangs_costs_no_more_than_the_deadline(tmp_path: Path, pressed: AgentOnNode) -> None:
    """The journal is given up for now; what was handed out is still known."""
    async with pressed as node, hanging_disk(tmp_path / "state"):
        for number in range(3):
            pod = await node.place(gpu_pod(f"p{number}", 1), [number], exact=True)
            assert node.got(pod) == [node.named(number)]
        assert answers_in_time(node)


@pytest.mark.slow
async def test_everything_hangs_at_once(tmp_path: Path, pressed: AgentOnNode) -> None:
    """The worst day."""
    async with pressed as node, hanging_disk(tmp_path / "state"):
        node.kubelet.hang_lists = True
        node.api_answers.clear()
        await node.kubelet.run(gpu_pod("cpu", 0), pod := gpu_pod("pod", 1))
        assert pod.phase is Phase.PENDING
        assert answers_in_time(node)
        node.kubelet.hang_lists = False
        node.api_answers.set()
        await node.kubelet.started(pod)


async def test_busy_list_is_asked_again(tmp_path: Path) -> None:
    """The kubelet answers 100 calls a second, everybody's together, and refuses the others."""
    async with AgentOnNode(tmp_path) as node:
        node.kubelet.refuse_lists = 4
        assert node.got(await node.place(gpu_pod("p", 2), [3, 4], exact=True)) == [node.named(3, 4)]
        await until(lambda: node.kubelet.refuse_lists == 0)
