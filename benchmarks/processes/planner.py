"""The extender as a planner of the queue: no kube-scheduler has to know it, and nobody asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks.processes.client import ApiClient
from benchmarks.processes.control_plane import RunningControlPlane
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.process import READY_WITHIN_SECONDS, NotReady
from topology.annotations import keys

GATE: Final = {"name": keys.PLAN_GATE}
"""Of the pods that it plans."""
_NAMESPACE: Final = "gputopo-system"
_HAS_SERVED: Final = "gputopo_queue_silence_seconds "
_POLL_SECONDS: Final = 0.05


@asynccontextmanager
async def running_planner(
    plane: RunningControlPlane, api: ApiClient, more_settings: Mapping[str, Any] | None = None, says: str = _HAS_SERVED
) -> AsyncIterator[RunningExtender]:
    """Run the extender with the queue enabled, and enter once it serves the queue; raises `NotReady`.

    With `more_settings` of its configuration, enter when its page of metrics `says` so, too.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    (await api.call("POST", "/api/v1/namespaces", namespace)).ok()
    settings = {
        "scheduling": {"schedulerNames": ["default-scheduler"]},
        "queue": {"enabled": True},
        **(more_settings or {}),
    }
    async with running_extender(plane.kubeconfig, plane.folder, settings) as planner, ApiClient(planner.url) as page:
        try:
            async with asyncio.timeout(READY_WITHIN_SECONDS):
                for words in (_HAS_SERVED, says):
                    while words not in await page.text("/metrics"):  # noqa: ASYNC110 - it is not ours
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as silence:
            raise NotReady(f"the planner does not serve the queue:\n{planner.process.log_tail()}") from silence
        yield planner
