"""What the agent's other thread meets while the side towards the kubelet fails, and until that has started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.config import load
from agent.gpus.discovery import NOTHING
from agent.kubelet import side
from agent.kubelet.kubelet_watch import KubeletWatch
from agent.kubelet.serving.devices import PluginDevice
from agent.kubelet.side import KubeletSide
from agent.metrics import AgentMetrics
from agent.node.look import Look
from tests.extender.polling import until
from topology.node.status import DevicePluginStatus, Mode

SEEN = Look(DevicePluginStatus(Mode.OBSERVE, ready=True), {})
UNSEEN = replace(SEEN, held=None)
"""What is returned where nobody has looked: what containers hold is not known."""


class Watch:
    """Fails as soon as somebody asks it anything, and answers nobody."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.last_look = SEEN
        self.ending = False
        self.taken: list[tuple[PluginDevice, ...]] = []
        self.lets_end = Event()
        self.lets_end.set()

    async def run(self) -> None:
        await self.asked.wait()
        asyncio.get_running_loop().run_in_executor(None, self.lets_end.wait)
        raise LookupError("nobody has thought of this")

    async def look(self) -> Look:
        self.asked.set()
        return await asyncio.Future[Look]()

    async def about_to_publish(self, look: Look) -> bool:
        self.asked.set()
        return await asyncio.Future[bool]()

    def take(self, devices: tuple[PluginDevice, ...], *_: object) -> None:
        self.taken.append(devices)


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[KubeletSide, list[Watch]]]:
    """Run a side whose watches fail; give it, and its watches so far."""
    watches = list[Watch]()

    def make(*_: object) -> Watch:
        watches.append(Watch())
        return watches[-1]

    monkeypatch.setattr(side, "KubeletWatch", make)
    settings = load(None, {}, {"mode": "observe"})
    made = KubeletSide(settings, dict, AgentMetrics("test"), lambda: None, lambda _: {})
    made.start()
    try:
        yield made, watches
    finally:
        for watch in watches:
            watch.lets_end.set()
        made.close()


async def fail(kubelet: KubeletSide) -> None:
    """Have the side fail, and return once nobody runs its loop any more."""
    with capture_logs() as logs:
        kubelet.look()
        await until(lambda: any(entry["event"] == "the kubelet side failed, and starts again" for entry in logs))


@pytest.mark.slow
def test_what_is_asked_as_the_side_fails_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who asks goes on, as when an answer takes too long."""
    with running(monkeypatch) as (kubelet, _):
        assert kubelet.look() == UNSEEN
    with running(monkeypatch) as (kubelet, _):
        assert not kubelet.about_to_publish(SEEN)


def test_what_is_asked_while_the_side_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop is still there then, for as long as a thread of it works, and begins what it never finishes."""
    monkeypatch.setattr(side, "LOOK_SECONDS", 30.0)
    with running(monkeypatch) as (kubelet, watches):
        watches[0].lets_end.clear()
        began = time.monotonic()
        assert [kubelet.look(), kubelet.look()] == [UNSEEN, UNSEEN]
        assert time.monotonic() - began < 30.0


async def test_nobody_is_harmed_while_the_side_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says of itself what was seen last, and takes nothing in."""
    monkeypatch.setattr(side, "_PAUSE_SECONDS", 60.0)
    with running(monkeypatch) as (kubelet, _):
        await fail(kubelet)
        assert kubelet.look() == UNSEEN
        assert not kubelet.about_to_publish(SEEN)
        kubelet.published(SEEN)


@pytest.mark.slow
async def test_gpus_that_are_offered_while_the_side_is_down_are_taken_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next discovery may be a long time off."""
    with running(monkeypatch) as (kubelet, watches):
        await fail(kubelet)
        kubelet.offer(NOTHING)
        await until(lambda: watches[1:] and () in watches[1].taken)


@pytest.mark.slow
def test_a_side_that_is_closed_just_as_it_starts_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no task to cancel yet, and nobody closes it twice."""
    monkeypatch.setattr(side, "_PAUSE_SECONDS", 0.0)
    with running(monkeypatch) as (kubelet, _):
        make, closing = kubelet._make, Thread(target=kubelet.close)

        def closed_meanwhile(*arguments: Any) -> KubeletWatch:
            closing.start()
            closing.join(0.1)  # it waits for this thread, so it does not end here
            return make(*arguments)

        monkeypatch.setattr(kubelet, "_make", closed_meanwhile)
        kubelet.look()
        assert kubelet._closing.wait(60)
        closing.join(60)
        assert not closing.is_alive()
