"""The work of the core between calls, and which of it is vital."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from extender.core.condition import Condition
from extender.core.derivation import go_on_searching, keep_appraised, keep_derived
from extender.core.device_classes import DeviceClasses
from extender.core.preconditions import UNTIL_KNOWN_SECONDS
from extender.kit.rounds import Round
from extender.kubernetes.rest import Send

RECONCILED_WITHIN_SECONDS = 120.0
"""A reconciler that has not succeeded for longer makes the extender not ready: claims of dead pods stay."""


def core_rounds(condition: Condition, listed: asyncio.Event) -> Iterator[Round]:
    """Yield what every extender does; `listed` is set once there are views."""
    config, state = condition.config, condition.state
    needed, preconditions, reconciler = condition.watches.needed, condition.preconditions, condition.reconciler

    async def derive() -> None:
        await asyncio.gather(*(reflector.synced.wait() for reflector in needed))
        await keep_derived(state, listed.set)

    async def appraise() -> None:
        await listed.wait()
        await keep_appraised(state.values)

    for reflector in needed:
        yield Round(name=f"{reflector.name}-watch", work=reflector.run, is_vital=True, at_once=True)
    yield Round(name="resourceclaims", work=condition.devices.run, is_vital=True, at_once=True)
    yield Round(name="events", work=condition.events.run, at_once=True)
    yield Round(name="views", work=derive, is_vital=True, at_once=True)
    yield Round(name="searches", work=lambda: go_on_searching(state.effort), is_vital=True, at_once=True)
    after_seconds = config.scheduling.appraise_after
    yield Round(name="values", work=appraise, first_after_seconds=after_seconds, at_once=True)
    yield Round(name="preconditions", work=preconditions.check, every_seconds=UNTIL_KNOWN_SECONDS)
    yield Round(
        name="reconcile",
        work=reconciler.round,
        every_seconds=config.reconcile.interval,
        stale_after_seconds=RECONCILED_WITHIN_SECONDS,
    )


def optional_rounds(condition: Condition, send: Send, map_to_dra: Callable[[bool], None]) -> Iterator[Round]:
    """Yield checks that need further rights, or dry runs: policies, DeviceClasses and PodDisruptionBudgets."""
    guard, seconds = condition.guard, condition.config.policies.look
    classes = DeviceClasses(send, condition.config.scheduling.resource, map_to_dra)
    yield Round(name="policies", work=guard.check, every_seconds=lambda: guard.pause_seconds(seconds), at_once=True)
    yield Round(name="device-classes", work=classes.check, every_seconds=seconds, at_once=True)
    yield Round(name="budgets", work=condition.watches.budgets.run, at_once=True)
