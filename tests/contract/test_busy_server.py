"""Contract with the API: how it refuses what is too much."""

from __future__ import annotations

import asyncio

from benchmarks.processes.client import ApiClient, ClientResponse
from tests.contract.conftest import Backend
from tests.contract.requests import NODES
from tests.extender.polling import eventually


async def test_a_busy_server_refuses_with_429_and_says_when_to_come_back(backend: Backend) -> None:
    """Of requests that are too many at once some are refused, without a Status; in whole seconds they may come again."""
    with backend.crowded() as kubeconfig:
        async with ApiClient.from_kubeconfig(kubeconfig) as crowd:
            refused = await eventually(lambda: _refused_of_many(crowd), timeout_seconds=60)
    assert all(answer.retry_after_seconds for answer in refused)
    assert not any(answer.body for answer in refused)


async def _refused_of_many(api: ApiClient) -> list[ClientResponse]:
    answers = await asyncio.gather(*(api.call("GET", NODES) for _ in range(32)))
    return [answer for answer in answers if answer.code == 429]
