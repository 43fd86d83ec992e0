"""Runs the Jobs of a survey side by side, and removes each of them however it ends, Ctrl-C included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from benchmarks.measure.cluster import ApiRefused, JobNamespace, Json
from benchmarks.measure.job import CONTAINER, GO, Failed, JobOptions, figures_in, job, job_name
from benchmarks.measure.survey import Target
from extender.kubernetes.reflector import Unavailable
from topology.annotations import keys
from topology.annotations.records import decode_placement
from topology.bandwidth.measured import Figure, MeasuredMachine
from topology.errors import PayloadError

TRIES: Final = 5
INTERRUPTED: Final = "interrupted"
CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class PollTimes:
    """How long to wait, in seconds."""

    look: float = 2.0
    """Between two looks at a Job."""
    bound_within: float = 120.0
    """A pod that waits longer is taken back: the node is not idle any more, and nobody shall have to make room."""


@dataclass(slots=True)
class MeasurementOutcome:
    """What became of one machine."""

    target: Target
    figures: tuple[Figure, ...] = ()
    failed: tuple[Failed, ...] = ()
    problem: str | None = None
    """Why there is no figure at all."""
    left: str | None = None
    """The name of a Job that could not be removed."""

    @property
    def machine(self) -> MeasuredMachine:
        """The figures as they are kept."""
        return MeasuredMachine(self.target.description, self.figures)


class _Ended(Exception):
    """There will be no figure; the text says why."""


@dataclass(slots=True)
class Measuring:
    """One go over several machines."""

    cluster: JobNamespace
    wanted: JobOptions
    say: Callable[[str], None]
    """Takes a line about progress."""
    utc_now: Callable[[], str]
    pace: PollTimes = PollTimes()
    go: str = field(default_factory=lambda: uuid4().hex)
    """Its own name, by which it knows its Jobs."""
    outcomes: list[MeasurementOutcome] = field(default_factory=list)
    """Of all machines; what is measured when somebody interrupts is there."""

    async def run(self, targets: tuple[Target, ...]) -> None:
        """Measure all of them at the same time: they are different nodes."""
        self.outcomes = [MeasurementOutcome(target) for target in targets]
        await asyncio.gather(*map(self._measure, self.outcomes))

    async def _measure(self, outcome: MeasurementOutcome) -> None:
        name = job_name(outcome.target)
        try:
            await _whole(self.cluster.create_job(job(outcome.target, self.wanted, self.go)))
            self.say(f"{outcome.target.node}: {len(outcome.target.sets)} sets, by Job {self.cluster.namespace}/{name}")
            await self._await_figures(outcome, name)
        except ApiRefused as error:
            outcome.problem = "somebody measures it already" if error.code == CONFLICT else str(error)
        except (_Ended, Unavailable) as error:
            outcome.problem = str(error)
        except asyncio.CancelledError:
            outcome.problem = INTERRUPTED
            raise
        finally:
            outcome.left = name
            await _whole(self._remove(outcome, name))

    async def _await_figures(self, outcome: MeasurementOutcome, name: str) -> None:
        pod = await self._ended(name)
        log = await self._log(pod["metadata"]["name"])
        try:
            record = decode_placement((pod["metadata"].get("annotations") or {})[keys.PLACEMENT])
        except (KeyError, PayloadError) as error:
            raise _Ended("its pod has no record of the GPUs that it was given: was it placed by gputopo?") from error
        outcome.figures, outcome.failed = figures_in(log, outcome.target, record, self.utc_now())
        self.say(f"{outcome.target.node}: {len(outcome.figures)} of {len(outcome.target.sets)} sets measured")

    async def _log(self, pod: str) -> str:
        for _ in range(TRIES - 1):
            with suppress(ApiRefused, Unavailable):
                return await self.cluster.log(pod, CONTAINER)
            await asyncio.sleep(self.pace.look)
        return await self.cluster.log(pod, CONTAINER)

    async def _ended(self, job: str) -> Json:
        """Return the Job's pod once its container has ended, or its time is over: what it has done by then counts."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        pod: Json | None = None
        while True:
            before = pod
            with suppress(Unavailable):  # the next look may do better
                pod = await self.cluster.pod_of(job, (GO, self.go))
            if before and not (pod and pod["metadata"]["uid"] == before["metadata"]["uid"]):
                raise _Ended("its pod was removed before it had ended")
            phase = pod["status"].get("phase") if pod else None
            waited = clock.time() - began
            if pod and phase in ("Succeeded", "Failed"):
                if pod["status"].get("reason") and not pod["status"].get("containerStatuses"):
                    raise _Ended(f"its pod ended before it began: {pod['status']['reason']}")
                return pod
            if not (pod and pod["spec"].get("nodeName")) and waited > self.pace.bound_within:
                raise _Ended(f"its pod was not placed within {self.pace.bound_within:g} s")
            if waited > self.wanted.timeout_seconds:
                if pod and phase == "Running":
                    return pod
                raise _Ended(f"its container did not start within {self.wanted.timeout_seconds:g} s")
            await asyncio.sleep(self.pace.look)

    async def _remove(self, outcome: MeasurementOutcome, name: str) -> None:
        """Remove the Job if we have made it, whatever we were told of that; where it goes, it is not `left`."""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(self.pace.look)
            try:
                await self.cluster.delete_job(name, (GO, self.go))
            except (ApiRefused, Unavailable):
                continue
            outcome.left = None
            return


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Do what must not be left half done: whoever is interrupted meanwhile is so afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody else will ask for it
        raise
